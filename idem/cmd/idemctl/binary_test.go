package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/testmain"
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
	store, err := dynamostore.New(client, o.table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
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

func (o *tool) run(args ...string) (code int, out, errs string) {
	o.t.Helper()
	cmd := o.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String(), strings.Join(strings.Fields(stderr.String()), " ")
}

// seen is what a dry run of the command prints for --seen.
func (o *tool) seen(args ...string) string {
	o.t.Helper()
	code, out, errs := o.run(append(args, "--dry-run", "--reason", "a look")...)
	require.Equal(o.t, exitDone, code, errs)
	return seenIn(o.t, out)
}

func (o *tool) unknown(key idem.Key) {
	o.t.Helper()
	_, err := idem.Do(o.t.Context(), o.engine, key, 1, fails(errCut))
	require.Error(o.t, err)
}

// deadLetter leaves a message that the relay has given up on, and returns its id.
func (o *tool) deadLetter() string {
	o.t.Helper()
	_, err := idem.Do(o.t.Context(), o.engine, refund.Key("acme", "r-8"), 1, dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, n int) (int, error) {
		tx.Publish("made", outbox.Message{Destination: "orders", Body: []byte("1")})
		return n, nil
	}))
	require.NoError(o.t, err)
	box, err := dynamostore.NewOutbox(o.client, o.table, nil)
	require.NoError(o.t, err)
	for shard := range outbox.Shards {
		for cursor := ""; ; {
			waiting, next, err := box.Waiting(o.t.Context(), shard, time.Now().Add(time.Hour), cursor)
			require.NoError(o.t, err)
			for _, e := range waiting {
				ok, err := box.DeadLetter(o.t.Context(), time.Now(), e, 10, "the queue is gone")
				require.NoError(o.t, err)
				require.True(o.t, ok)
				return e.ID
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	require.Fail(o.t, "the message is not there")
	return ""
}

func TestTheCommandRequeuesDeadLettersInDynamoDB(t *testing.T) {
	o := newTool(t)
	id := o.deadLetter()
	code, out, errs := o.run("dead", "list")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, id)
	code, _, errs = o.run("dead", "requeue", "--reason", "the queue is back", id)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "--seen with what --dry-run prints")
	shown := o.seen("dead", "requeue", id)
	code, _, errs = o.run("dead", "requeue", "--reason", "the queue is back", id, "--seen", shown)
	require.Equal(t, exitDone, code, errs)
	code, out, _ = o.run("dead", "list")
	require.Equal(t, exitDone, code)
	require.Equal(t, "No such dead letters.\n", out)
	_, out, _ = o.run("history", refund.Key("acme", "r-8").ID())
	require.Regexp(t, `Requeued: message `+id+` to\s+orders is sent again.\n`+
		`  - by alice, with idemctl\n  - why: the queue is back`, out)
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
		{"resolve --operation refund --tenant acme --value r-1 --to failed --message declined --reason console", exitFailed, "the input is no terminal"},
		{"resolve --operation refund --tenant acme --value r-1 --to failed --message declined --reason console --yes", exitDone, "Done."},
		{"resolve --operation refund --limit 5 --to completed --no-result --dry-run --reason console", exitDone, "--seen"},
		{"resolve --operation refund --tenant acme --value r-2 --to completed --no-result --yes --reason console", exitDone, "Done."},
		{"history --operation refund --tenant acme --value r-1", exitDone, "by alice, with idemctl"},
		{"changes", exitDone, "from unknown to completed"},
		{"export --all --yes", exitDone, r1.ID()},
		{"forget --operation refund --tenant acme --value r-1 --reason erasure --yes", exitDone, "Done."},
		{"show --operation refund --tenant acme --value r-1", exitFailed, "there is no record"},
		{"show", exitUsage, "name the record"},
		{"--help", exitDone, "Usage: idemctl"},
	} {
		code, out, errs := o.run(strings.Fields(c.args)...)
		require.Equal(t, c.code, code, "%s: %s%s", c.args, out, errs)
		require.Contains(t, out+errs, c.want, c.args)
		require.NotContains(t, out, "\x1b", "no terminal, no colour")
	}
}
