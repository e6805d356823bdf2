package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/secrets"
)

// A service that tells principals apart has another key than the header for each.
func TestARecordOfAPrincipalIsNamedByTheCustomersKey(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		c, err := idemhttp.New(b.Engine, idemhttp.AnyRoute(payment), idemhttp.SingleTenant, &idemhttp.Options{
			Principal: func(_ context.Context, r *idemhttp.Request) (string, error) { return r.Header["X-User"][0], nil },
		})
		require.NoError(t, err)
		for _, user := range []string{"ann@example.com", "bob/2"} {
			_, err := c.Serve(t.Context(), &idemhttp.Request{
				Method: "POST", Path: "/payments", Route: "/payments",
				Header: map[string][]string{"Idempotency-Key": {`"payment-0000000009"`}, "X-User": {user}},
			}, func(context.Context) (*idemhttp.Response, error) { return &idemhttp.Response{Status: 502}, nil })
			require.NoError(t, err)
		}
		named := func(principal ...string) (int, string) {
			code, out, errs := b.run(append([]string{"show", "--operation", "payment", "--no-tenant", "--value",
				"payment-0000000009"}, principal...)...)
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
		out, _ := b.want(exitDone, "explain", "--operation", "payment", "--no-tenant", "--value", "payment-0000000009")
		require.Contains(t, strings.Join(strings.Fields(out), " "), "the key is another one: its tenant, operation or "+
			"value may have another form. It is no proof that nothing was executed")
	})
}

// secretly is a record of an operation with a secret.
func secretly(t *testing.T, b *rig) idem.Key {
	op := idem.Operation{Name: "se cret", Repeat: idem.Repeatable, Values: secrets.New([]byte("\x00\n23456789abcdef"))}
	key := op.Key("acme", "4711")
	_, err := idem.Do(t.Context(), b.Engine, key, 1, func(context.Context, int) (string, error) { return "done", nil })
	require.NoError(t, err)
	return key
}

// The key of an operation with a secret is found with that alone.
func TestARecordOfAnOperationWithASecretIsNamedWithIt(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		key := secretly(t, b)
		const coded = "base64:AAoyMzQ1Njc4OWFiY2RlZg=="
		show := []string{"show", "--operation", "se cret", "--tenant", "acme", "--value", "4711"}
		for name, tc := range map[string]struct {
			text string
			code int
			says string
		}{
			"in base64":     {coded, exitDone, key.ID()},
			"with its line": {coded + "\r\n", exitDone, key.ID()},
			"as it is":      {"\x00\n23456789abcdef\n", exitDone, key.ID()},
			"another one":   {"0123456789 another secret", exitFailed, "principal and secret"},
			"too short":     {"0123456789", exitUsage, "has 10 bytes"},
			"empty":         {"", exitUsage, "has 0 bytes"},
			"no base64":     {"base64:?", exitUsage, "is no base64"},
		} {
			file := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
			code, out, errs := b.run(append(show, "--secret-file", file)...)
			require.Equal(t, tc.code, code, "%s: %s%s", name, out, errs)
			require.Contains(t, out+errs, tc.says, name)
			require.NotContains(t, out+errs, "0123456789", name)
		}
		b.says(exitUsage, "the operation's secret", append(show, "--secret-file", "none")...)
		b.says(exitFailed, "principal and secret", show...)
	})
}

// The check record of an operation with a secret is no key's: it is not listed, and not forgotten.
func TestACheckRecordIsNeitherListedNorForgotten(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		key := secretly(t, b)
		const check = "#se%20cret#"
		out, _ := b.want(exitDone, "list", "--all", "--yes")
		require.Contains(t, out, key.ID())
		require.NotContains(t, out, " "+check)
		_, errs := b.want(exitFailed, "forget", check, "--reason", "a test", "--yes")
		require.Contains(t, errs, check+" has the check value of its operation's secret, and must stay")
		rec, err := b.Store.Get(t.Context(), check)
		require.NoError(t, err)
		require.NotNil(t, rec)
		b.want(exitDone, "forget", key.ID(), "--reason", "a test", "--yes")
	})
}
