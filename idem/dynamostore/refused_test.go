package dynamostore

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// What cannot commit without transactions is refused before it does anything, and says why.
func TestUnitsAreRefusedWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	engine := f.engine()
	ctx := t.Context()
	refused := func(err error) {
		t.Helper()
		says(t, err, "WithoutTransactions", "idem.Reserved")
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	reserved := idem.Operation{Name: "reserved", Repeat: idem.NotRepeatable}
	unreached := func(context.Context, *Tx, string) (string, error) { panic("it runs") }

	t.Run("a handler that takes a Tx does not run, and the next call runs", func(t *testing.T) {
		key := reserved.Key(idem.SingleTenant, "1")
		_, err := idem.Do(ctx, engine, key, "", Transact(unreached))
		refused(err)
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
		refused(err)
		require.Empty(t, f.wire.calls())
	})
	t.Run("an outcome with a Tx is not written", func(t *testing.T) {
		f.claimed(t, "k", "o1")
		tx := new(Tx)
		tx.Put(types.Put{TableName: &f.table, Item: key("business")}, nil)
		w := completion("k", "o1", nil)
		w.Unit = tx
		refused(f.Finish(ctx, base, w))
		require.Equal(t, protocol.InProgress, f.get(t, "k").State)
	})
}

// A handler that takes a Tx does not run in shadow, where nothing could commit it, and nothing
// says that it has. One that asks for its Tx ends there.
func TestTransactionsInShadowAreRefusedBeforeTheyBegin(t *testing.T) {
	f := open(t, nil)
	engine := f.engine()
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
