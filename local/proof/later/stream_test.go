package later

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// workerFilter is the one that the documentation of StreamWorker gives.
const workerFilter = `{"dynamodb": {"NewImage": {"ticket": {"S": [{"exists": true}]}, "in_state": {"S": ` +
	`["pending", "released"]}}}}`

// Without a queue the table's stream brings the worker: for what was accepted, and again for what
// an attempt has released. Nothing else invokes it.
func TestTheStreamBringsTheWorker(t *testing.T) {
	table := rig.StreamTable(t)
	store := rig.Store(t, dynamotest.Client(t), table)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
	require.NoError(t, err)
	op := idem.Operation{Name: "statement"}
	const works = 20
	var runs atomic.Int64
	handle := idemlambda.StreamWorker(engine, op, nil, func(_ context.Context, month int) (string, error) {
		if runs.Add(1) == 1 {
			return "", idem.NotExecuted(fmt.Errorf("busy"))
		}
		return fmt.Sprint("month ", month), nil
	})
	client, arn := rig.Streams(t, table)
	p, err := streampoller.Start(t.Context(), client, arn, func(ctx context.Context, event []byte) ([]byte, error) {
		return handle.Invoke(ctx, event)
	}, &streampoller.Options{Filter: workerFilter, PollInterval: 10 * time.Millisecond, Logf: t.Logf})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	_, err = idem.Do(t.Context(), engine, op.Key("acme", "now"),
		1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
	ids := map[int]string{}
	for month := range works {
		got, err := later.Accept[string](t.Context(), engine, op.Key("acme", fmt.Sprint("month ", month)), month, nil)
		require.NoError(t, err)
		ids[month] = got.Outcome.StatusID
	}
	for month, id := range ids {
		var out idem.Outcome
		require.Eventually(t, func() bool {
			out, err = later.StatusOf(t.Context(), engine, op, "acme", id)
			require.NoError(t, err)
			return out.RecordState == idem.Completed
		}, 2*time.Minute, 5*time.Millisecond)
		var text string
		require.NoError(t, json.Unmarshal(out.Body, &text))
		require.Equal(t, fmt.Sprint("month ", month), text)
	}
	require.EqualValues(t, works+1, runs.Load())
}
