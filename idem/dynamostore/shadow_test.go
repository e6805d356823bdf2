package dynamostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

// On DynamoDB too shadow tells what the live mode answers to the same calls, and leaves nothing
// in the index, under a key's own id or without an expiry.
func TestShadowOnDynamoDB(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	var told []string
	engine, err := idem.New(q, &idem.Options{ClaimBudget: time.Minute, Observer: func(_ context.Context, n notice.Notice) {
		told = append(told, fmt.Sprint(n.Kind, " ", n.State))
	}})
	require.NoError(t, err)
	broken := fmt.Errorf("the connection broke")
	for _, op := range []idem.Operation{{Name: "refund", Shadow: true}, {Name: "webhook", Repeat: idem.Repeatable, Shadow: true}} {
		key := func(value string) idem.Key { return op.Key("t", value) }
		call := func(value string, in int, end error, between func()) string {
			before := len(told)
			got, err := idem.Do(t.Context(), engine, key(value), in, func(context.Context, int) (int, error) {
				if between != nil {
					between()
				}
				return 7, end
			})
			require.Equal(t, 7, got, "what stands beside an error too")
			require.Equal(t, idem.Unmark(end), err)
			require.NotEmpty(t, told[before:])
			return told[len(told)-1]
		}
		uncertain := map[idem.Repeat][]string{
			idem.NotRepeatable: {"shadow_executed unknown", "shadow_duplicate unknown"},
			idem.Repeatable:    {"shadow_executed released", "shadow_executed completed"},
		}[op.Repeat]
		inFlight := ""
		require.Equal(t, "shadow_executed completed", call("k", 1, nil, func() { inFlight = call("k", 1, nil, nil) }))
		require.Equal(t, "shadow_duplicate in_progress", inFlight)
		require.Equal(t, "shadow_duplicate completed", call("k", 1, nil, nil))
		require.Equal(t, "shadow_key_reused ", call("k", 2, nil, nil))
		require.Equal(t, uncertain[0], call("u", 1, broken, nil))
		require.Equal(t, uncertain[1], call("u", 1, nil, nil))
		require.Equal(t, "shadow_executed failed", call("f", 1, idem.Permanent(broken), nil))
		require.Equal(t, "shadow_duplicate failed", call("f", 1, nil, nil))
		require.Equal(t, "shadow_executed released", call("n", 1, idem.NotExecuted(broken), nil))
		require.Equal(t, "shadow_executed completed", call("n", 2, nil, nil))
		for _, value := range []string{"k", "u", "f", "n"} {
			require.Nil(t, f.raw(t, key(value).ID()))
			it := f.raw(t, key(value).ID()+"#shadow")
			require.Contains(t, it, schema.ExpiresAt)
			require.NotContains(t, it, schema.OpenShard)
			if body, ok := it[schema.Body].(*types.AttributeValueMemberB); ok {
				require.Empty(t, body.Value)
			}
		}
		require.Empty(t, dueOf(t, q))
	}
}

// A handler that takes a Tx does not run in shadow, where nothing could commit it, and nothing
// says that it has. One that asks for its Tx ends there.
func TestTransactionsInShadowAreRefusedBeforeTheyBegin(t *testing.T) {
	f := open(t, nil)
	engine, err := idem.New(f.Store, &idem.Options{Observer: func(context.Context, notice.Notice) {}})
	require.NoError(t, err)
	op := idem.Operation{Name: "refund", Shadow: true}
	out, err := idem.Do(t.Context(), engine, op.Key("t", "1"), 1, Transact(func(context.Context, *Tx, int) (int, error) { panic("it runs") }))
	require.Zero(t, out)
	require.ErrorAs(t, err, new(*idem.ConfigError))
	require.ErrorContains(t, err, "set Shadow to false")
	require.Panics(t, func() {
		_, _ = idem.Do(t.Context(), engine, op.Key("t", "2"), 1, func(ctx context.Context, _ int) (int, error) {
			TxOf(ctx)
			return 1, nil
		})
	})
	for _, value := range []string{"1", "2"} {
		require.Nil(t, f.raw(t, op.Key("t", value).ID()))
	}
	require.NotContains(t, f.wire.calls(), "TransactWriteItems")
}
