package dynamostore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// A counter is an item of its own that TTL deletes. It is no record, whatever its name.
func TestACounterIsAnItemThatExpires(t *testing.T) {
	t.Parallel()
	f := open(t, &patient)
	a := claim("t#op#k", "o")
	require.NoError(t, f.Acquire(t.Context(), base, a))
	for n, want := range []bool{true, true, false, false} {
		counted, err := f.CountKey(t.Context(), a.Record.ID, 2, base.Add(time.Minute))
		require.NoError(t, err)
		require.Equal(t, want, counted, n)
	}
	counted, err := f.CountKey(t.Context(), a.Record.ID, 3, base.Add(time.Minute))
	require.NoError(t, err)
	require.True(t, counted, "the bound is higher now")
	counted, err = f.CountKey(t.Context(), "another", 1, base)
	require.NoError(t, err)
	require.True(t, counted)

	rec, err := f.Get(t.Context(), a.Record.ID)
	require.NoError(t, err)
	require.Equal(t, protocol.InProgress, rec.State)
	p, err := f.scanner(t).Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Len(t, p.Records, 1)
	require.Empty(t, p.Unreadable)
	k := f.retry.begin(t.Context(), "Get")
	defer k.end()
	it, err := f.Store.get(k, itemKey(a.Record.ID, schema.LimitSK))
	require.NoError(t, err)
	require.Equal(t, item{
		schema.PK: str(a.Record.ID), schema.SK: str("limit"), schema.NewKeys: num("3"),
		"expires_at": num(strconv.FormatInt(base.Add(time.Minute).Unix(), 10)),
	}, it)
}
