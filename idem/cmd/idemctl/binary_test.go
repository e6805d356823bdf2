package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
func (o *tool) run(code int, args ...string) (said string) {
	o.t.Helper()
	cmd := o.command(args...)
	out, _ := cmd.CombinedOutput()
	said = strings.Join(strings.Fields(string(out)), " ")
	require.Equal(o.t, code, cmd.ProcessState.ExitCode(), "%v: %s", args, said)
	return said
}

func (o *tool) unknown(key idem.Key) {
	o.t.Helper()
	_, err := idem.Do(o.t.Context(), o.engine, key, 1, fails(errCut))
	require.Error(o.t, err)
}

// The compiled command works on a table of DynamoDB.
func TestTheCommandSettlesQuestionsInDynamoDB(t *testing.T) {
	o := newTool(t)
	o.unknown(refund.Key("acme", "r-4"))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"check --table none", exitFailed, "does not exist"},
		{"resolve --operation refund --tenant acme --value r-4 --to failed --message declined --reason console", exitFailed,
			"the input is no terminal"},
		{"resolve --operation refund --limit 5 --to completed --no-result --dry-run --reason console", exitDone, "--seen"},
		{"ledger testdata/refunds.csv --operation refund --ref-column id --time-column created --yes", exitFailed,
			"no row of the export is of"},
		{"show", exitUsage, "name the record"},
		{"--help", exitDone, "Usage: idemctl"},
	} {
		require.Contains(t, o.run(c.code, strings.Fields(c.args)...), c.want, c.args)
	}
	settles(t, o.run, o.engine)
}

// On a table whose results are encrypted every command works without the key, but for those that
// read a result or would write a plain one, and they say what to do. With the key they do both.
func TestATableWhoseResultsAreEncrypted(t *testing.T) {
	const iban = "DE02120300000000202051"
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
	_, err = idem.Do(t.Context(), o.engine, done, 1, func(context.Context, int) (string, error) { return iban, nil })
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
	type row struct {
		args string // after it comes the reason of a change
		code int
		says string
	}
	check := func(rows []row) {
		t.Helper()
		for _, c := range rows {
			args := strings.Fields(c.args)
			if slices.Contains([]string{"resolve", "release", "extend"}, args[0]) {
				args = append(args, "--reason", "case 1", "--yes")
			}
			said := o.from(t, 0, dynamotest.Endpoint(t), c.code, args...)
			require.Contains(t, said, c.says, c.args)
			require.Equal(t, c.says == iban, strings.Contains(said, iban), c.args)
		}
	}
	keys.Made()
	const omitted = "24 bytes, encoded as JSON, encrypted: name the KMS key with --kms-key"
	const refused = "refused, and nothing was changed: the record's results are encrypted"
	check([]row{
		{"list", exitDone, ""}, {"show " + done.ID(), exitDone, omitted},
		{"show --show-result " + done.ID(), exitDone, omitted}, {"show " + half.ID(), exitDone, ""},
		{"explain " + done.ID(), exitDone, ""}, {"export --all --yes", exitDone, ""}, {"history " + done.ID(), exitDone, ""},
		{"stats", exitDone, ""}, {"extend --for 2400h " + done.ID(), exitDone, ""},
		{"resolve --to completed --result " + file + " " + r1.ID(), exitFailed, refused},
		{"resolve --to completed --dry-run --result " + file + " " + r1.ID(), exitFailed, refused},
		{"resolve --to released --step ship=@" + file + " " + half.ID(), exitFailed, refused},
		{"release " + half.ID(), exitFailed, "ship"}, // its step must be named
	})
	rec, err := store.Get(t.Context(), r1.ID())
	require.NoError(t, err)
	require.Equal(t, idem.Unknown, rec.State)
	require.Empty(t, keys.Made(), "nothing asks KMS without a key")

	const key, bound = " --kms-key=alias/results", " --kms-context=app=payments"
	show := "show --show-result " + done.ID()
	check([]row{
		{show + key + bound, exitDone, iban},
		{show + " --kms-key=alias/new,alias/results" + bound, exitDone, iban},
		{"show -o json " + done.ID() + key + bound, exitDone, `"results_encrypted": true`},
		{show + " --kms-key=alias/other" + bound, exitFailed, "cannot be decrypted"},
		{show + key, exitFailed, "cannot be decrypted"},
		{show + bound, exitUsage, "--kms-key"},
		{"resolve --to completed --result " + file + " " + r1.ID() + key + bound, exitDone, ""},
		{"show --show-result " + r1.ID() + key + bound, exitDone, "re_4711"},
	})
	rec, err = store.Get(t.Context(), r1.ID())
	require.NoError(t, err)
	require.NotContains(t, string(rec.Body.Data), "re_4711")
}
