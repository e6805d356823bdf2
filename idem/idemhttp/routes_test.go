package idemhttp

import (
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// The template that is literal for longest wins, whatever the order of the map.
func TestPathFitsTemplates(t *testing.T) {
	routes := Routes{}
	for _, name := range []string{
		"POST /a/{x}", "POST /a/{x}/c", "POST /a/b/{y}", "POST /a/{rest+}", "POST /{any...}", "POST /exact/{$}",
		"PATCH /a/{x}", "POST /a/b/c",
	} {
		routes[name] = idem.Operation{Name: name}
	}
	c, err := New(newEngine(t, memory()), routes, SingleTenant, nil)
	require.NoError(t, err)
	for range 20 {
		for _, r := range []struct{ method, path, want string }{
			{"POST", "/a/1", "POST /a/{x}"},
			{"PATCH", "/a/1", "PATCH /a/{x}"},
			{"PATCH", "/a/1/c", ""},
			{"POST", "/a/1/c", "POST /a/{x}/c"},
			{"POST", "/a/b/c", "POST /a/b/c"},
			{"POST", "/a/b/d", "POST /a/b/{y}"},
			{"POST", "/a/b/d/e", "POST /a/{rest+}"},
			{"POST", "/a/1/d", "POST /a/{rest+}"},
			{"POST", "/b/1/2", "POST /{any...}"},
			{"POST", "/exact/", "POST /exact/{$}"},
			{"POST", "/exact/1", "POST /{any...}"},
			{"POST", "/a/", "POST /{any...}"},
			{"POST", "/a/%2F", "POST /a/{x}"},
			{"POST", "/", ""},
			{"POST", "", ""},
		} {
			op, ok := c.operation(&Request{Method: r.method, Path: r.path})
			require.Equal(t, r.want, op.Name, "%+v", r)
			require.Equal(t, r.want != "", ok)
		}
	}
}

// What no template's parameters tell is part of the request all the same.
func TestPathOfATemplateCounts(t *testing.T) {
	c, n := newContract(t, memory()), 0
	send := func(path string) *Response {
		return serve(t, c, payment(func(r *Request) { r.Route, r.Path = "", path }), counting(&n, created()))
	}
	require.Equal(t, 201, send("/transfers/7").Status)
	require.Equal(t, "true", send("/transfers/7").Headers[HeaderReplayed])
	require.Equal(t, 422, send("/transfers/8").Status)
	require.Equal(t, 1, n)
}
