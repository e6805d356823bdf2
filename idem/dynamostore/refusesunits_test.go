package dynamostore

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
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
			_, _ = idem.Do(ctx, engine, reserved.Key(idem.SingleTenant, "2"), "", func(ctx context.Context, _ string) (string, error) {
				TxOf(ctx)
				return "", errors.New("it goes on")
			})
		})
	})
	t.Run("atomic mode claims and asks nothing", func(t *testing.T) {
		atomic := idem.Operation{Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic}
		f.wire.set(nil)
		_, err := idem.Do(ctx, engine, atomic.Key(idem.SingleTenant, "1"), "", func(context.Context, string) (string, error) { panic("it runs") })
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
