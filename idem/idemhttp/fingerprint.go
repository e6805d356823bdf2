package idemhttp

import (
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// fingerprint is taken over method, route with its parameters, query and body:
// JSON by what it says, anything else by its bytes. An empty body is bytes
// whatever its type. Headers do not count: a retry may differ in them.
func (c *Contract) fingerprint(r *Request) (idem.Fingerprint, error) {
	var b idem.FingerprintBuilder
	b.Text("method", strings.ToUpper(r.Method))
	b.Text("route", r.location())
	b.Map("path", r.PathParameters)
	b.Values("query", r.Query)
	if len(r.Body) > 0 && r.isJSON() {
		b.JSON("body", r.Body, c.opts.Select)
	} else {
		b.Bytes("body", r.Body)
	}
	return b.Sum()
}
