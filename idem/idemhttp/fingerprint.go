package idemhttp

import (
	"maps"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// fingerprint is the fingerprint of method, stage, route with its parameters and Prefix,
// query and body: JSON by its content, anything else by its bytes. An empty body counts as
// bytes, whatever its type. Only the headers about the body's form count: a retry may differ
// in all others.
func (c *Contract) fingerprint(r *Request) (idem.Fingerprint, error) {
	var b fingerprint.Builder
	b.Text("method", strings.ToUpper(r.Method))
	b.Text("stage", r.Stage)
	b.Text("prefix", r.Prefix)
	b.Text("route", r.location())
	b.Map("path", r.parameters())
	b.Values("query", r.Query)
	b.Text("raw query", r.RawQuery)
	if len(r.Body) > 0 && r.isJSON() {
		b.JSON("body", r.Body, c.opts.Select)
	} else {
		b.Bytes("body", r.Body)
	}
	return b.Sum()
}

// parameters are the values of the template's parameters. If the gateway does not pass all
// of them, the path counts too: two resources under one template are two requests.
func (r *Request) parameters() map[string]string {
	for rest := r.Route; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return r.PathParameters
		}
		name, after, _ := strings.Cut(after, "}")
		rest = after
		name = strings.TrimSuffix(strings.TrimSuffix(name, "+"), "...")
		if name == "$" || r.PathParameters[name] != "" {
			continue
		}
		all := map[string]string{wholePath: r.Path}
		maps.Copy(all, r.PathParameters)
		return all
	}
}
