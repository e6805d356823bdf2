package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/secrets"
)

var (
	former = []byte("0123456789abcdef")
	newer  = []byte("\x00\n23456789abcdef newer")
)

// secretFile is a file with these lines.
func secretFile(t *testing.T, lines ...string) string {
	name := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o600))
	return name
}

// secretly is an operation with these secrets, under which 4711 is charged.
func (b *bench) secretly(value string, current []byte, others ...[]byte) idem.Key {
	b.t.Helper()
	op := idem.Operation{Name: "se cret", Repeat: idem.Repeatable, Secrets: secrets.New(current, others...)}
	key := op.Key("acme", value)
	_, err := idem.Do(b.t.Context(), b.Engine, key, 1, func(context.Context, int) (string, error) { return "done", nil })
	require.NoError(b.t, err)
	return key
}

// The key of an operation with secrets is found with them alone.
func TestARecordOfAnOperationWithSecretsIsNamedWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.secretly("4711", former)
		moved := b.secretly("4712", newer, former)
		const coded = "base64:AAoyMzQ1Njc4OWFiY2RlZiBuZXdlcg=="
		for name, tc := range map[string]struct {
			value, file string
			code        int
			says        string
		}{
			"under the former one":          {"4711", secretFile(t, coded, string(former), ""), exitDone, "completed"},
			"under the current one":         {"4712", secretFile(t, coded+"\r", string(former)), exitDone, moved.ID()},
			"in the wrong order":            {"4712", secretFile(t, string(former), coded), exitDone, moved.ID()},
			"one alone":                     {"4711", secretFile(t, coded), exitFailed, "which this process does not have"},
			"another one":                   {"4711", secretFile(t, "another secret of 30 characters"), exitFailed, "which this process does not have"},
			"none":                          {"4711", "", exitFailed, "principal and secrets"},
			"too short":                     {"4711", secretFile(t, "0123456789"), exitUsage, "has 10 bytes"},
			"an empty line":                 {"4711", secretFile(t, coded, "", string(former)), exitUsage, "secret 2 of 3 has 0 bytes"},
			"the same twice":                {"4711", secretFile(t, coded, coded), exitUsage, "is there twice"},
			"empty":                         {"4711", secretFile(t), exitUsage, "is empty"},
			"no base64":                     {"4711", secretFile(t, coded, "base64:?"), exitUsage, "line 2"},
			"no file":                       {"4711", "none", exitUsage, "the operation's secrets"},
			"of an operation without a use": {"x", secretFile(t, coded, string(former)), exitFailed, "there is no record"},
		} {
			args := []string{"show", "--operation", "se cret", "--tenant", "acme", "--value", tc.value}
			if tc.file != "" {
				args = append(args, "--secret-file", tc.file)
			}
			code, out, errs := b.run(args...)
			require.Equal(t, tc.code, code, "%s: %s%s", name, out, errs)
			require.Contains(t, out+errs, tc.says, name)
			require.NotContains(t, out+errs, "0123456789", name)
		}
		// The id of before leads to where the record is now.
		op := idem.Operation{Name: "se cret", Secrets: secrets.New(former)}
		code, out, _ := b.run("show", op.Key("acme", "4712").ID())
		require.Equal(t, exitDone, code)
		require.Contains(t, out, moved.ID())
	})
}

func TestSecretsAreRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		retire := func(answers ...string) (int, string) {
			b.answers = slices.Clone(answers)
			code, out, errs := b.run("secrets", "retire", "--operation", "se cret")
			return code, out + errs
		}
		code, said := retire("yes")
		require.Equal(t, exitFailed, code)
		require.Contains(t, said, "there is no register")
		_, out, _ := b.run("secrets", "show", "--operation", "se cret")
		require.Contains(t, out, "No process has used")
		b.secretly("4711", former)
		_, said = retire("yes")
		require.Contains(t, said, "is the only one in use")
		b.secretly("4712", newer, former)
		_, said = retire("yes")
		require.Contains(t, said, "it can be retired from 2026-03-10")
		b.Clock.Advance(9 * 24 * time.Hour)
		code, _ = retire("no")
		require.Equal(t, exitFailed, code)
		_, out, _ = b.run("secrets", "show", "--operation", "se cret")
		require.NotContains(t, out, "retired")
		code, said = retire("yes")
		require.Equal(t, exitDone, code)
		require.Contains(t, said, "is retired. Leave the secret out")
		_, out, _ = b.run("secrets", "show", "--operation", "se cret")
		require.Regexp(t, `^\S{16}  in use since 2026-03-02 09:00:\d\dZ, retired\n\S{16}  in use since 2026-03-02 09:00:\d\dZ\n$`, out)
		_, out, _ = b.run("secrets", "show", "--operation", "se cret", "-o", "json")
		require.Contains(t, out, `"retired": true`)
		b.secretly("4713", newer)
		code, said = retire()
		require.Equal(t, exitFailed, code)
		require.Contains(t, said, "is the only one in use")
		code, _, _ = b.run("secrets", "show", "--operation", "")
		require.Equal(t, exitUsage, code)
	})
}
