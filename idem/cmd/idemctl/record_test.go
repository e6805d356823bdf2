package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// A service that tells principals apart has another key than the header for each.
func TestARecordOfAPrincipalIsNamedByTheCustomersKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c, err := idemhttp.New(b.Engine, idemhttp.AnyRoute(payment), idemhttp.SingleTenant, &idemhttp.Options{
			Principal: func(_ context.Context, r *idemhttp.Request) (string, error) { return r.Header["X-User"][0], nil },
		})
		require.NoError(t, err)
		for _, user := range []string{"ann@example.com", "bob/2"} {
			_, err := c.Serve(t.Context(), &idemhttp.Request{
				Method: "POST", Path: "/payments", Route: "/payments", Header: map[string][]string{"Idempotency-Key": {`"payment-0000000009"`}, "X-User": {user}},
			}, func(context.Context) (*idemhttp.Response, error) { return &idemhttp.Response{Status: 502}, nil })
			require.NoError(t, err)
		}
		named := func(principal ...string) (int, string) {
			code, out, errs := b.run(append([]string{"show", "--operation", "payment", "--no-tenant", "--value", "payment-0000000009"}, principal...)...)
			return code, out + errs
		}
		seen := map[string]bool{}
		for _, user := range []string{"ann@example.com", "bob/2"} {
			code, said := named("--principal", user)
			require.Equal(t, exitDone, code, said)
			require.Contains(t, said, "unknown, attempt 1")
			seen[said] = true
		}
		require.Len(t, seen, 2, "each has a record")
		code, said := named()
		require.Equal(t, exitFailed, code)
		require.Contains(t, said, "value, principal and secret")
		code, out, _ := b.run("explain", "--operation", "payment", "--no-tenant", "--value", "payment-0000000009")
		require.Equal(t, exitDone, code)
		require.Contains(t, strings.Join(strings.Fields(out), " "), "the key is another one: its tenant, operation or value may have another form. It is no proof that nothing was executed")
		for args, want := range map[string][]string{
			"give the record's id":          {"show", r1.ID(), "--principal", "bob"},
			"a key needs --operation":       {"show", "--operation", "payment", "--no-tenant", "--principal", "bob"},
			"leave out the id, --value and": {"release", "--operation", "payment", "--limit", "3", "--principal", "bob", "--reason", "x"},
		} {
			code, _, errs := b.run(want...)
			require.Equal(t, exitUsage, code)
			require.Contains(t, errs, args)
		}
	})
}
