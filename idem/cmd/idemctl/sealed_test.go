package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/kmstest"
)

// On a table whose results are encrypted every command works without the key, but for those that
// read a result or would write a plain one, and they say what to do. With the key they do both.
func TestATableWhoseResultsAreEncrypted(t *testing.T) {
	o, keys := newTool(t), kmstest.New(t)
	sealer, err := kmsseal.New(keys.Client(), kmsseal.Options{Key: "alias/results", Context: map[string]string{"app": "payments"}})
	require.NoError(t, err)
	store, err := dynamostore.New(o.client, o.table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: sealer})
	require.NoError(t, err)
	o.engine, err = idem.New(store, &idem.Options{ClaimBudget: time.Minute})
	require.NoError(t, err)
	done := refund.Key("acme", "r-7")
	_, err = idem.Do(t.Context(), o.engine, done, 1, func(context.Context, int) (string, error) { return "DE02120300000000202051", nil })
	require.NoError(t, err)
	o.unknown(r1)
	half := invoice.Key("acme", "i-1")
	_, err = idem.Do(t.Context(), o.engine, half, 1, func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, errCut }, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
		return 1, err
	})
	require.Error(t, err)

	file := filepath.Join(t.TempDir(), "result")
	require.NoError(t, os.WriteFile(file, []byte(`"re_4711"`), 0o600))
	t.Setenv("AWS_ENDPOINT_URL_KMS", keys.URL)
	on := func(args ...string) (int, string) { return o.from(t, 0, dynamotest.Endpoint(t), args...) }
	const key, bound = "--kms-key=alias/results", "--kms-context=app=payments"
	keys.Made()

	for _, args := range [][]string{
		{"list"}, {"show", done.ID()}, {"show", done.ID(), "--show-result"}, {"show", half.ID()}, {"explain", done.ID()}, {"export", "--all", "--yes"}, {"history", done.ID()}, {"stats"},
		{"extend", done.ID(), "--for", "2400h", "--reason", "audit", "--yes"},
	} {
		code, said := on(args...)
		require.Equal(t, exitDone, code, "%v: %s", args, said)
		require.NotContains(t, said, "DE02", args)
		if args[0] == "show" && args[1] == done.ID() {
			require.Contains(t, said, "24 bytes, encoded as JSON, encrypted: name the KMS key with --kms-key")
		}
	}
	for _, args := range [][]string{
		{"resolve", r1.ID(), "--to", "completed", "--result", file}, {"resolve", r1.ID(), "--to", "completed", "--result", file, "--dry-run"},
		{"release", half.ID()}, // its step must be named
		{"resolve", half.ID(), "--to", "released", "--step", "ship=@" + file},
	} {
		code, said := on(append(args, "--reason", "case 1", "--yes")...)
		require.Equal(t, exitFailed, code, said)
		if args[0] == "resolve" {
			require.Contains(t, said, "refused, and nothing was changed: the record's results are encrypted")
			require.Contains(t, said, "--kms-key")
		}
		rec, err := store.Get(t.Context(), r1.ID())
		require.NoError(t, err)
		require.Equal(t, idem.Unknown, rec.State)
	}
	require.Empty(t, keys.Made(), "nothing asks KMS without a key")

	code, said := on("show", done.ID(), "--show-result", key, bound)
	require.Equal(t, exitDone, code, said)
	require.Contains(t, said, "DE02120300000000202051")
	code, said = on("show", done.ID(), "--show-result", "-o", "json", "--kms-key=alias/new,alias/results", bound)
	require.Equal(t, exitDone, code, said)
	var d record
	require.NoError(t, json.Unmarshal([]byte(said), &d))
	require.True(t, d.Sealed)
	for _, wrong := range [][]string{{"--kms-key=alias/other", bound}, {key}} {
		code, said = on(append([]string{"show", done.ID(), "--show-result"}, wrong...)...)
		require.Equal(t, exitFailed, code, said)
		require.Contains(t, said, "cannot be decrypted")
	}
	code, said = on("resolve", r1.ID(), "--to", "completed", "--result", file, "--reason", "case 1", "--yes", key, bound)
	require.Equal(t, exitDone, code, said)
	code, said = on("show", r1.ID(), "--show-result", key, bound)
	require.Equal(t, exitDone, code, said)
	require.Contains(t, said, "re_4711")
	rec, err := store.Get(t.Context(), r1.ID())
	require.NoError(t, err)
	require.NotContains(t, string(rec.Body.Data), "re_4711")
	code, said = on("show", done.ID(), bound)
	require.Equal(t, exitUsage, code, said)
	require.Contains(t, said, "--kms-key")
}
