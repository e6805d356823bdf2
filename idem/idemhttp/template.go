package idemhttp

import (
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// byTemplate finds the operation of the declared template that the path fits, for
// fronts that match no templates themselves. Of several the one wins that is
// literal for longest, as in API Gateway.
func (c *Contract) byTemplate(method, path string) (idem.Operation, bool) {
	var found route
	var best string
	for at := range c.routes {
		if at.method != method || !strings.Contains(at.location, "{") {
			continue
		}
		rank, ok := fit(path, at.location)
		if rank += at.location; ok && (best == "" || rank < best) {
			best, found = rank, at
		}
	}
	op, ok := c.routes[found]
	return op, ok && best != ""
}

// fit reports whether the path fits the template, and ranks the fit by segment:
// literals sort before parameters, and those before the rest of the path.
func fit(path, template string) (rank string, ok bool) {
	have, want := strings.Split(path, "/"), strings.Split(template, "/")
	var b strings.Builder
	for i, w := range want {
		if i >= len(have) {
			return "", false
		}
		switch {
		case w == "{$}":
			return b.String() + "0", i == len(have)-1 && have[i] == ""
		case strings.HasPrefix(w, "{") && (strings.HasSuffix(w, "+}") || strings.HasSuffix(w, "...}")):
			return b.String() + "2", have[i] != ""
		case strings.HasPrefix(w, "{") && strings.HasSuffix(w, "}"):
			if have[i] == "" {
				return "", false
			}
			b.WriteByte('1')
		case w != have[i]:
			return "", false
		default:
			b.WriteByte('0')
		}
	}
	return b.String(), len(have) == len(want)
}
