package idemhttp

import (
	"context"
	"slices"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/stretchr/testify/require"
)

// Each request that begins without a key is reported once, with its tenant and operation, and no other is.
func TestRequestsWithoutAKeyAreReported(t *testing.T) {
	bare := func(r *Request) { delete(r.Header, "idempotency-key") }
	none := KeyFrom(func(context.Context, *Request) (string, error) { return "", ErrNoKey })
	for name, row := range map[string]struct {
		change func(*Request)
		option func(*Options)
		status int
		want   int // of two requests
	}{
		"no key": {change: bare, status: 201, want: 2},
		"no key in body": {change: func(*Request) {}, option: func(o *Options) { o.Key = KeyPointer("/id") },
			status: 201, want: 2},
		"none of its own":     {change: func(*Request) {}, option: func(o *Options) { o.Key = none }, status: 201, want: 2},
		"key":                 {change: func(*Request) {}, status: 201},
		"bad key":             {change: func(r *Request) { r.Header["idempotency-key"] = []string{"x"} }, status: 400},
		"no tenant":           {change: func(r *Request) { bare(r); r.Identity = Identity{} }, status: 403},
		"ambiguous body":      {change: func(r *Request) { bare(r); r.Body = []byte(`{"a":1,"a":2}`) }, status: 201, want: 2},
		"ambiguous body, key": {change: func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) }, status: 400},
		"undeclared":          {change: func(r *Request) { bare(r); r.Route, r.Path = "/a", "/a" }, status: 500},
		"one route": {change: bare, option: func(o *Options) {
			o.KeyOptional, o.ByRoute = false, map[string]RouteOptions{"POST /payments": {KeyOptional: true}}
		}, status: 201, want: 2},
		"another route": {change: bare, option: func(o *Options) {
			o.KeyOptional, o.ByRoute = false, map[string]RouteOptions{"POST /transfers/{id}": {KeyOptional: true}}
		}, status: 400},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				op, n, seen := charge, 0, new(told)
				op.Shadow = shadow
				e, err := idem.New(memory(), &idem.Options{Observer: seen.observe})
				require.NoError(t, err)
				routes := Routes{"POST /payments": op, "POST /transfers/{id}": transfer}
				c := contractFor(t, e, routes, Claim("tenant"), func(o *Options) {
					if o.KeyOptional = true; row.option != nil {
						row.option(o)
					}
				})
				for range 2 {
					if res := serve(t, c, payment(row.change), counting(&n, created())); !shadow {
						require.Equal(t, row.status, res.Status)
					}
				}
				seen.all = slices.DeleteFunc(seen.all, func(n notice.Notice) bool { return n.Kind != notice.Keyless })
				require.Len(t, seen.all, row.want)
				for _, n := range seen.all {
					require.Equal(t, "blue", n.Tenant)
					require.Equal(t, "charge", n.Operation)
				}
				if row.want > 0 {
					require.NotEqual(t, seen.all[0].ID, seen.all[1].ID)
					require.Equal(t, 2, n)
				}
			})
		}
	}
}

// A request without a key can be accepted for later, too: its 202 alone leads to its outcome.
func TestARequestWithoutAKeyIsAcceptedForLater(t *testing.T) {
	b := newLaterService(t, memory(), func(_ *Later, o *Options) { o.KeyOptional = true })
	seen := map[string]bool{}
	for range 2 {
		r := asked(june)
		delete(r.Header, "idempotency-key")
		res := serve(t, b.contract, r, nil)
		require.Equal(t, 202, res.Status)
		seen[res.Headers["Location"]] = true
	}
	require.Len(t, seen, 2)
	require.Len(t, b.handed, 2)
}
