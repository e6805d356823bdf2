package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/secrets"
)

// secretly is a record of an operation with a secret.
func secretly(t *testing.T, b *bench) idem.Key {
	op := idem.Operation{Name: "se cret", Repeat: idem.Repeatable, Values: secrets.New([]byte("\x00\n23456789abcdef"))}
	key := op.Key("acme", "4711")
	_, err := idem.Do(t.Context(), b.Engine, key, 1, func(context.Context, int) (string, error) { return "done", nil })
	require.NoError(t, err)
	return key
}

// The key of an operation with a secret is found with that alone.
func TestARecordOfAnOperationWithASecretIsNamedWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
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
		code, _, errs := b.run(append(show, "--secret-file", "none")...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "the operation's secret")
		code, _, errs = b.run(show...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "principal and secret")
	})
}

// The check record of an operation with a secret is no key's: it is not listed, and not forgotten.
func TestACheckRecordIsNeitherListedNorForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		key := secretly(t, b)
		const check = "#se%20cret#"
		code, out, _ := b.run("list", "--all", "--yes")
		require.Equal(t, exitDone, code)
		require.Contains(t, out, key.ID())
		require.NotContains(t, out, " "+check)
		code, out, errs := b.run("forget", check, "--reason", "a test", "--yes")
		require.Equal(t, exitFailed, code, out)
		require.Contains(t, errs, check+" has the check value of its operation's secret, and must stay")
		rec, err := b.Store.Get(t.Context(), check)
		require.NoError(t, err)
		require.NotNil(t, rec)
		code, _, _ = b.run("forget", key.ID(), "--reason", "a test", "--yes")
		require.Equal(t, exitDone, code)
	})
}
