package outboxtest

import (
	"math"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A message from its commit to its end.
func life(b *box) {
	t, ctx := b.t, b.t.Context()
	ref := b.publish("acme#charge#abc", 1, Order("k"), base)
	want := outbox.Entry{Record: ref.Record, Message: Order("k"), State: outbox.New, Number: 1, Created: base}
	want.ID, want.TenantGroup = ref.ID, protocol.TenantGroup(ref.Record)
	if b.Operators == nil {
		want.TenantGroup = ""
	}
	e := b.entry(ref)
	require.Equal(t, &want, e)
	require.Equal(t, []outbox.Ref{ref}, b.waiting("orders", base))
	require.Empty(t, b.waiting("orders", base.Add(-time.Second)))
	require.Empty(t, b.waiting("prices", base))

	b.yes(b.Begin(ctx, e, 1, base.Add(time.Minute)))
	b.yes(b.Retry(ctx, e, 1, base.Add(2*time.Minute), "down"))
	e = b.entry(ref)
	want.State, want.Tries, want.NextTry, want.Reason = outbox.Retrying, 1, base.Add(2*time.Minute), "down"
	require.Equal(t, &want, e)

	b.yes(b.DeadLetter(ctx, base.Add(time.Hour), e, 2, "given up"))
	require.Empty(t, b.waiting("orders", base.Add(24*time.Hour)))
	e = b.entry(ref)
	require.Equal(t, []any{outbox.Dead, 2, "given up", time.Time{}}, []any{e.State, e.Tries, e.Reason, e.SentAt})
	b.refuses(e, "begin", "retry", "dead letter")

	b.yes(b.Dispatch(ctx, base.Add(time.Hour), e, "sqs-1", base.Add(25*time.Hour)))
	b.refuses(e)
	e = b.entry(ref)
	require.Equal(t, []any{outbox.Dispatched, "sqs-1", base.Add(time.Hour)}, []any{e.State, e.SentID, e.SentAt})
	require.Empty(t, b.waiting("orders", base.Add(24*time.Hour)))
}

// A try is begun once, and the relay that began it can take it back.
func begunOnce(b *box) {
	for _, key := range []string{"", "k"} {
		ref := b.publish("r"+key, 0, Order(key), base)
		e := b.entry(ref)
		b.yes(b.Begin(b.t.Context(), e, 1, base.Add(time.Minute)))
		b.no(b.Begin(b.t.Context(), e, 1, base.Add(time.Minute)))
		b.no(b.Retry(b.t.Context(), e, 0, base, "late"))
		e.Tries = 1
		b.yes(b.Retry(b.t.Context(), e, 0, base, "it was not sent"))
		now := b.entry(ref)
		require.Equal(b.t, []any{0, "it was not sent", base}, []any{now.Tries, now.Reason, now.NextTry})
		b.yes(b.Begin(b.t.Context(), now, 1, base.Add(time.Minute)))
	}
}

// What a service says, and what it calls a message, may be any text.
func texts(b *box) {
	const text = "a \x00 'quoted' \\ \xff \u2028 text"
	ref := b.publish("r", 0, Order(""), base)
	b.yes(b.Retry(b.t.Context(), b.entry(ref), 1, base, text))
	require.Contains(b.t, b.entry(ref).Reason, "'quoted' \\")
	b.yes(b.DeadLetter(b.t.Context(), base, b.entry(ref), 2, text))
	e := b.entry(ref)
	require.Contains(b.t, e.Reason, "'quoted' \\")
	if b.Operators != nil {
		require.NoError(b.t, b.Operators.Requeue(b.t.Context(), e, requeue(e, 1)), "by what it has read")
		e = b.entry(ref)
	}
	b.yes(b.Dispatch(b.t.Context(), base, e, strings.ToValidUTF8(text, "?"), base.Add(time.Hour)))
	require.Contains(b.t, b.entry(ref).SentID, "'quoted' \\")
}

// Notes about a message do nothing to another one in its stead, and make none where there is none any more.
func notes(b *box) {
	ref := b.publish("r", 0, Order("k"), base)
	old := b.entry(ref)
	b.publish("r", 0, Order("k"), base.Add(time.Hour))
	now := b.entry(ref)
	b.refuses(old)
	require.Equal(b.t, now, b.entry(ref))
	b.Remove(b.t, ref)
	b.refuses(old)
	found, read, err := b.Load(b.t.Context(), []outbox.Ref{ref}, math.MaxInt)
	require.NoError(b.t, err)
	require.Empty(b.t, found)
	require.Equal(b.t, 1, read)
}
