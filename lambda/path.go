package idemlambda

import (
	"net/url"
	"strings"

	"github.com/idem-go/idempotency/internal/pathtemplate"
)

// withoutBase takes off what stands in front of the route's template: the stage,
// or the base path of a custom domain. A path that does not end in the template
// with these parameters stays as it is.
func withoutBase(path, template string, parameters map[string]string) string {
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

// same compares a path's part with what the front says of it: one of the two may
// be decoded.
func same(a, b string) bool {
	if a == b {
		return true
	}
	decoded, err := url.PathUnescape(a)
	return err == nil && decoded == b
}

// withoutStage takes off the stage, which only the API's own endpoint shows: a
// custom domain maps it away.
func withoutStage(path, stage, domain, api string) string {
	if stage == "" || stage == "$default" || api == "" || !strings.HasPrefix(domain, api+".") {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+stage)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return path
}
