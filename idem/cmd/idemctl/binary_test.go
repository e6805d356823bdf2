package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/kmstest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// tool is the compiled command before a table on DynamoDB Local.
type tool struct {
	t      testing.TB
	table  string
	client *dynamodb.Client
	engine *idem.Engine
}

func newTool(t testing.TB) *tool {
	client := dynamotest.Client(t)
	o := &tool{t: t, table: "idemctl-" + rand.Text(), client: client}
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, o.table))
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &o.table})
		require.NoError(t, err)
	})
	// DynamoDB Local may be slow on a machine that is busy.
	store, err := dynamostore.New(client, o.table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	o.engine, err = idem.New(store, &idem.Options{ClaimBudget: time.Minute})
	require.NoError(t, err)
	return o
}

// command is a run of the command with flags that name the table.
func (o *tool) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(o.t.Context(), testmain.Program(o.t, "."), args...)
	cmd.Env = append(os.Environ(), "IDEM_TABLE="+o.table, "IDEM_DYNAMODB_ENDPOINT="+dynamotest.Endpoint(o.t), "USER=alice",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=idemlocal", "AWS_SECRET_ACCESS_KEY=idemlocal")
	return cmd
}

// run runs the command, which ends with the exit code.
func (o *tool) run(code int, args ...string) (out, errs string) {
	o.t.Helper()
	cmd := o.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	out, errs = stdout.String(), strings.Join(strings.Fields(stderr.String()), " ")
	require.Equal(o.t, code, cmd.ProcessState.ExitCode(), "%v: %s%s", args, out, errs)
	return out, errs
}

func (o *tool) unknown(key idem.Key) {
	o.t.Helper()
	_, err := idem.Do(o.t.Context(), o.engine, key, 1, fails(errCut))
	require.Error(o.t, err)
}

// The compiled command works on a table of DynamoDB.
func TestTheCommandSettlesAQuestionInDynamoDB(t *testing.T) {
	o := newTool(t)
	o.unknown(r1)
	o.unknown(refund.Key("acme", "r-2"))
	_, err := idem.Do(t.Context(), o.engine, refund.Key("acme", "r-3"), 1, result)
	require.NoError(t, err)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"check", exitDone, "is as it must be"},
		{"check --table none", exitFailed, "does not exist"},
		{"list", exitDone, r1.ID()},
		{"list --all --yes --state completed", exitDone, "completed"},
		{"stats", exitDone, "refund"},
		{"explain --operation refund --tenant acme --value r-1", exitDone, "not before"},
		{"resolve --operation refund --tenant acme --value r-1 --to failed --message declined --reason console", exitFailed,
			"the input is no terminal"},
		{"resolve --operation refund --tenant acme --value r-1 --to failed --message declined --reason console --yes",
			exitDone, "Done."},
		{"resolve --operation refund --limit 5 --to completed --no-result --dry-run --reason console", exitDone, "--seen"},
		{"resolve --operation refund --tenant acme --value r-2 --to completed --no-result --yes --reason console",
			exitDone, "Done."},
		{"history --operation refund --tenant acme --value r-1", exitDone, "by alice, with idemctl"},
		{"changes", exitDone, "from unknown to completed"},
		{"export --all --yes", exitDone, r1.ID()},
		{"forget --operation refund --tenant acme --value r-1 --reason erasure --yes", exitDone, "Done."},
		{"show --operation refund --tenant acme --value r-1", exitFailed, "there is no record"},
		{"show", exitUsage, "name the record"},
		{"--help", exitDone, "Usage: idemctl"},
	} {
		out, errs := o.run(c.code, strings.Fields(c.args)...)
		require.Contains(t, out+errs, c.want, c.args)
		require.NotContains(t, out, "\x1b", "no terminal, no colour")
	}
}

// On a table whose results are encrypted every command works without the key, but for those that
// read a result or would write a plain one, and they say what to do. With the key they do both.
func TestATableWhoseResultsAreEncrypted(t *testing.T) {
	o, keys := newTool(t), kmstest.New(t)
	sealer, err := kmsseal.New(keys.Client(),
		kmsseal.Options{Key: "alias/results", Context: map[string]string{"app": "payments"}})
	require.NoError(t, err)
	store, err := dynamostore.New(o.client, o.table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: sealer})
	require.NoError(t, err)
	o.engine, err = idem.New(store, &idem.Options{ClaimBudget: time.Minute})
	require.NoError(t, err)
	done := refund.Key("acme", "r-7")
	_, err = idem.Do(t.Context(), o.engine, done, 1,
		func(context.Context, int) (string, error) { return "DE02120300000000202051", nil })
	require.NoError(t, err)
	o.unknown(r1)
	half := invoice.Key("acme", "i-1")
	_, err = idem.Do(t.Context(), o.engine, half, 1, func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, errCut },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
		return 1, err
	})
	require.Error(t, err)

	file := filepath.Join(t.TempDir(), "result")
	require.NoError(t, os.WriteFile(file, []byte(`"re_4711"`), 0o600))
	t.Setenv("AWS_ENDPOINT_URL_KMS", keys.URL)
	on := func(code int, args ...string) string { return o.from(t, 0, dynamotest.Endpoint(t), code, args...) }
	const key, bound = "--kms-key=alias/results", "--kms-context=app=payments"
	keys.Made()

	for _, args := range [][]string{
		{"list"}, {"show", done.ID()}, {"show", done.ID(), "--show-result"}, {"show", half.ID()}, {"explain", done.ID()},
		{"export", "--all", "--yes"}, {"history", done.ID()}, {"stats"},
		{"extend", done.ID(), "--for", "2400h", "--reason", "audit", "--yes"},
	} {
		said := on(exitDone, args...)
		require.NotContains(t, said, "DE02", args)
		if args[0] == "show" && args[1] == done.ID() {
			require.Contains(t, said, "24 bytes, encoded as JSON, encrypted: name the KMS key with --kms-key")
		}
	}
	for _, args := range [][]string{
		{"resolve", r1.ID(), "--to", "completed", "--result", file},
		{"resolve", r1.ID(), "--to", "completed", "--result", file, "--dry-run"},
		{"release", half.ID()}, // its step must be named
		{"resolve", half.ID(), "--to", "released", "--step", "ship=@" + file},
	} {
		said := on(exitFailed, append(args, "--reason", "case 1", "--yes")...)
		if args[0] == "resolve" {
			require.Contains(t, said, "refused, and nothing was changed: the record's results are encrypted")
			require.Contains(t, said, "--kms-key")
		}
		rec, err := store.Get(t.Context(), r1.ID())
		require.NoError(t, err)
		require.Equal(t, idem.Unknown, rec.State)
	}
	require.Empty(t, keys.Made(), "nothing asks KMS without a key")

	said := on(exitDone, "show", done.ID(), "--show-result", key, bound)
	require.Contains(t, said, "DE02120300000000202051")
	said = on(exitDone, "show", done.ID(), "--show-result", "-o", "json", "--kms-key=alias/new,alias/results", bound)
	var d record
	require.NoError(t, json.Unmarshal([]byte(said), &d))
	require.True(t, d.Sealed)
	for _, wrong := range [][]string{{"--kms-key=alias/other", bound}, {key}} {
		said = on(exitFailed, append([]string{"show", done.ID(), "--show-result"}, wrong...)...)
		require.Contains(t, said, "cannot be decrypted")
	}
	on(exitDone, "resolve", r1.ID(), "--to", "completed", "--result", file,
		"--reason", "case 1", "--yes", key, bound)
	said = on(exitDone, "show", r1.ID(), "--show-result", key, bound)
	require.Contains(t, said, "re_4711")
	rec, err := store.Get(t.Context(), r1.ID())
	require.NoError(t, err)
	require.NotContains(t, string(rec.Body.Data), "re_4711")
	said = on(exitUsage, "show", done.ID(), bound)
	require.Contains(t, said, "--kms-key")
}
