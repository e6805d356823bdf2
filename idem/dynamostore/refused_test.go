package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// What cannot commit without transactions is refused before it does anything, and says why.
func TestUnitsAreRefusedWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	engine := f.engine(t)
	ctx := t.Context()
	says := func(err error) {
		t.Helper()
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "WithoutTransactions")
		require.ErrorContains(t, err, "idem.Reserved")
	}
	reserved := idem.Operation{Name: "reserved", Repeat: idem.NotRepeatable}
	unreached := func(context.Context, *Tx, string) (string, error) { panic("it runs") }

	t.Run("a handler that takes a Tx does not run, and the next call runs", func(t *testing.T) {
		key := reserved.Key(idem.SingleTenant, "1")
		_, err := idem.Do(ctx, engine, key, "", Transact(unreached))
		says(err)
		require.Equal(t, protocol.Released, f.get(t, key.ID()).State)
		got, err := idem.Do(ctx, engine, key, "", func(context.Context, string) (string, error) { return "done", nil })
		require.NoError(t, err)
		require.Equal(t, "done", got)
	})
	t.Run("a handler that asks for its Tx gets no further", func(t *testing.T) {
		require.PanicsWithValue(t, "dynamostore.TxOf: "+f.Traits().NoUnits.Error(), func() {
			_, _ = idem.Do(ctx, engine, reserved.Key(idem.SingleTenant, "2"),
				"", func(ctx context.Context, _ string) (string, error) {
					TxOf(ctx)
					return "", errors.New("it goes on")
				})
		})
	})
	t.Run("atomic mode claims and asks nothing", func(t *testing.T) {
		atomic := idem.Operation{Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic}
		f.wire.set(nil)
		_, err := idem.Do(ctx, engine, atomic.Key(idem.SingleTenant, "1"),
			"", func(context.Context, string) (string, error) { panic("it runs") })
		says(err)
		require.Empty(t, f.wire.calls())
	})
	t.Run("an outcome with a Tx is not written", func(t *testing.T) {
		f.claimed(t, "k", "o1")
		tx := new(Tx)
		tx.Put(types.Put{TableName: &f.table, Item: key("business")}, nil)
		w := completion("k", "o1", nil)
		w.Unit = tx
		says(f.Finish(ctx, base, w))
		require.Equal(t, protocol.InProgress, f.get(t, "k").State)
	})
}

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
	for _, op := range []idem.Operation{{Name: "refund", Shadow: true},
		{Name: "webhook", Repeat: idem.Repeatable, Shadow: true}} {
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
	out, err := idem.Do(t.Context(), engine, op.Key("t", "1"),
		1, Transact(func(context.Context, *Tx, int) (int, error) { panic("it runs") }))
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
