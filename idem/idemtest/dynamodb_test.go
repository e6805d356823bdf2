package idemtest_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// A crash over DynamoDB itself. A copy of this test binary is the process that dies, in its
// handler; the test is the processes after it. It is here to be copied.
func TestAProcessDiesOverDynamoDB(t *testing.T) {
	const died = 3 // the exit code of a process that got as far as its handler
	op := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	key := op.Key("acme", "payment-1")
	engine := func(endpoint, table string, now func() time.Time) (*dynamostore.Store, *idem.Engine) {
		client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
		require.NoError(t, err)
		store, err := dynamostore.New(client, table, nil)
		require.NoError(t, err)
		e, err := idem.New(store, &idem.Options{Now: now, ClaimBudget: time.Minute, FinishBudget: time.Minute,
			Observer: func(context.Context, notice.Notice) {}})
		require.NoError(t, err)
		return store, e
	}
	if table := os.Getenv("DIES_OVER"); table != "" {
		_, e := engine(os.Getenv("DIES_AT"), table, nil)
		_, err := idem.Do(t.Context(), e, key, 4200, func(context.Context, int) (string, error) {
			os.Exit(died) // after its effect
			return "", nil
		})
		t.Fatal("the handler did not run: ", err)
	}

	endpoint, table := dynamotest.Endpoint(t), "crash-"+rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.Client(t), table))
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	process.Env = append(os.Environ(), "DIES_AT="+endpoint, "DIES_OVER="+table)
	out, err := process.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, died, exit.ExitCode(), "%s", out)

	ran := 0
	again := func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, key, 4200, func(context.Context, int) (string, error) {
			ran++ // with the token of the first time
			return "charged", nil
		})
	}
	store, e := engine(endpoint, table, nil)
	_, err = again(t.Context(), e)
	require.ErrorIs(t, err, idem.ErrInFlight, "its lease runs")
	require.Zero(t, ran)

	_, e = engine(endpoint, table, func() time.Time { return time.Now().Add(time.Minute) }) // the lease is over
	got, err := again(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "charged", got)
	rec, err := store.Get(t.Context(), key.ID())
	require.NoError(t, err)
	require.Equal(t, idem.Completed, rec.State)
	require.Equal(t, 2, rec.Attempt)
	require.Equal(t, 1, ran)
}
