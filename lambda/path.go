package idemlambda

import (
	"net/url"
	"strings"
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
	want := strings.Split(strings.Trim(template, "/"), "/")
	have := strings.Split(strings.Trim(path, "/"), "/")
	for i := range have {
		if fits(have[i:], want, parameters) {
			return "/" + strings.Join(have[i:], "/")
		}
	}
	return path
}

func fits(have, want []string, parameters map[string]string) bool {
	for i, w := range want {
		if i >= len(have) {
			return false
		}
		name, variable := strings.CutPrefix(w, "{")
		name, greedy := strings.CutSuffix(name, "+}")
		switch {
		case variable && greedy:
			return same(strings.Join(have[i:], "/"), strings.Trim(parameters[name], "/"))
		case variable && !same(have[i], parameters[strings.TrimSuffix(name, "}")]):
			return false
		case !variable && !same(have[i], w):
			return false
		}
	}
	return len(have) == len(want)
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
