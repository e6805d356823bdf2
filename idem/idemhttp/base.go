package idemhttp

import (
	"net/url"
	"strings"

	"github.com/idem-go/idempotency/idem/internal/pathtemplate"
)

// WithoutBase removes what precedes a route's template in a path: the stage, or the base
// path of a custom domain. A path that does not end in the template with these parameters
// is returned unchanged. It is for adapters of services that send template and parameters
// in addition to the path.
func WithoutBase(path, template string, parameters map[string]string) string {
	switch template {
	case "":
		return path
	case "/":
		return template
	}
	template = "/" + strings.Trim(template, "/")
	fits := func(s pathtemplate.Segment, part string) bool {
		switch s.Kind {
		case pathtemplate.Parameter:
			return same(part, parameters[s.Text])
		case pathtemplate.Rest:
			return same(part, strings.Trim(parameters[s.Text], "/"))
		}
		return same(part, s.Text)
	}
	for have := "/" + strings.Trim(path, "/"); ; {
		if _, ok := pathtemplate.Match(have, template, fits); ok {
			return have
		}
		next := strings.IndexByte(have[1:], '/')
		if next < 0 {
			return path
		}
		have = have[1+next:]
	}
}

// same compares a part of a path with the service's value for it. Only one of them may
// be decoded.
func same(a, b string) bool {
	if a == b {
		return true
	}
	decoded, err := url.PathUnescape(a)
	return err == nil && decoded == b
}
