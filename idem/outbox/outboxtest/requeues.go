package outboxtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// requeue is the n-th entry of a case, of a message that is sent again.
func requeue(e *outbox.Entry, n int) protocol.Audit {
	return protocol.Audit{
		ID: e.Record, Entry: fmt.Sprint("entry-", n), At: base.Add(time.Duration(n) * time.Hour), Who: "alice",
		Why: "the queue is there again", Change: protocol.ChangeRequeued, What: "message " + e.ID,
		ExpiresAt: base.Add(1000 * time.Hour),
	}
}

// needOperators ends a case that needs them.
func (b *box) needOperators() {
	if b.Operators == nil {
		b.t.Skip("the harness has no Operators")
	}
}

// die makes the message a dead letter, and reads it.
func (b *box) die(ref outbox.Ref, reason string) *outbox.Entry {
	b.t.Helper()
	b.yes(b.DeadLetter(b.t.Context(), base, b.entry(ref), 10, reason))
	return b.entry(ref)
}

func (b *box) changes(record string) []protocol.Audit {
	b.t.Helper()
	p, err := b.Operators.AuditOf(b.t.Context(), record, "")
	require.NoError(b.t, err)
	return p.Entries
}

// A dead letter is sent again if it is as it was read, and who had it sent is kept with that.
func requeuedDead(b *box) {
	b.needOperators()
	t, ctx := b.t, b.t.Context()
	ref := b.publish("acme#charge#abc", 0, Order("k"), base)
	e := b.die(ref, "down")
	first := requeue(e, 1)
	require.NoError(t, b.Operators.Requeue(ctx, e, first))
	now := b.entry(ref)
	require.Equal(t, []any{outbox.New, 0, "", time.Time{}, 1},
		[]any{now.State, now.Tries, now.Reason, now.NextTry, now.Resent})
	require.Equal(t, []outbox.Ref{ref}, b.waiting("orders", base))

	require.ErrorIs(t, b.Operators.Requeue(ctx, e, requeue(e, 2)), protocol.ErrNotFound, "it is sent already")
	b.die(ref, "still down")
	require.ErrorIs(t, b.Operators.Requeue(ctx, e, requeue(e, 3)), protocol.ErrNotFound,
		"it has died once more, of another reason than was shown")
	require.Equal(t, outbox.Dead, b.entry(ref).State)
	unread := *e
	unread.Unreadable = protocol.ErrRecordUnreadable
	require.ErrorIs(t, b.Operators.Requeue(ctx, &unread, requeue(e, 4)), protocol.ErrRecordUnreadable)
	require.Equal(t, []protocol.Audit{first}, b.changes(ref.Record), "of what was refused there is no entry")
}

// A message that was sent is sent again, if it is as it was read. Until the new send is noted it keeps the id of the
// one before.
func requeuedSent(b *box) {
	b.needOperators()
	t, ctx := b.t, b.t.Context()
	ref := b.publish("acme#charge#abc", 0, Order("k"), base)
	send := func(id string, at time.Duration) *outbox.Entry {
		b.yes(b.Dispatch(ctx, base.Add(at), b.entry(ref), id, base.Add(at+24*time.Hour)))
		return b.entry(ref)
	}
	require.ErrorIs(t, b.Operators.Requeue(ctx, b.entry(ref), requeue(b.entry(ref), 1)), protocol.ErrNotFound, "it waits")
	e := send("sqs-1", time.Hour)
	first := requeue(e, 2)
	require.NoError(t, b.Operators.Requeue(ctx, e, first))
	require.Equal(t, []outbox.Ref{ref}, b.waiting("orders", base.Add(time.Second)), "the sweep finds it")
	now := b.entry(ref)
	require.Equal(t, []any{outbox.New, "sqs-1", time.Time{}}, []any{now.State, now.SentID, now.SentAt})
	require.ErrorIs(t, b.Operators.Requeue(ctx, e, requeue(e, 3)), protocol.ErrNotFound, "it is no longer sent")

	send("sqs-2", 2*time.Hour)
	require.ErrorIs(t, b.Operators.Requeue(ctx, e, requeue(e, 4)), protocol.ErrNotFound, "it was sent once more")
	require.Equal(t, []protocol.Audit{first}, b.changes(ref.Record), "of what was refused there is no entry")

	second := requeue(e, 5)
	require.NoError(t, b.Operators.Requeue(ctx, b.entry(ref), second))
	dead := b.die(ref, "down")
	require.Equal(t, "sqs-2", dead.SentID, "a dead letter that was sent before says so")
	third := requeue(e, 6)
	require.NoError(t, b.Operators.Requeue(ctx, dead, third))
	require.Empty(t, send("", 3*time.Hour).SentID, "a sender without ids leaves no other one's")
	require.Equal(t, []protocol.Audit{first, second, third}, b.changes(ref.Record))
}

// A relay that sent the message before the operator had it sent again, and notes that late, or that it failed, does not
// keep it from being sent again.
func lateNotes(b *box) {
	b.needOperators()
	later := base.Add(24 * time.Hour)
	ref := b.publish("acme#charge#abc", 0, Order("k"), base)
	late := b.entry(ref)
	for n := range 2 {
		b.yes(b.Dispatch(b.t.Context(), base.Add(time.Minute), b.entry(ref), "sqs-B", later))
		e := b.entry(ref)
		require.NoError(b.t, b.Operators.Requeue(b.t.Context(), e, requeue(e, n)))
		now := b.entry(ref)
		require.Equal(b.t, n+1, now.Resent)
		b.refuses(late)
		require.Equal(b.t, now, b.entry(ref))
		late = now
	}
	b.yes(b.Dispatch(b.t.Context(), base.Add(time.Hour), late, "sqs-C", later))
}

// All messages of a record are listed, in all states and of all lives of its key.
func ofARecord(b *box) {
	b.needOperators()
	t, ctx := b.t, b.t.Context()
	const record = "acme#charge#abc"
	sent, dead := b.publish(record, 0, Order("k"), base), b.publish(record, 1, Order(""), base)
	b.publish("acme#charge#other", 0, Order(""), base)
	b.yes(b.Dispatch(ctx, base, b.entry(sent), "sqs-1", base.Add(time.Hour)))
	b.die(dead, "down")
	require.NoError(t, b.Operators.Requeue(ctx, b.entry(dead), requeue(b.entry(dead), 1)))
	for n := range 150 {
		b.publish(record, 2+n, Order(""), base)
	}
	found := map[outbox.Ref]*outbox.Entry{}
	pages := 1
	for page := ""; ; pages++ {
		entries, next, err := b.Operators.Messages(ctx, record, page)
		require.NoError(t, err)
		for _, e := range entries {
			require.NotContains(t, found, e.Ref())
			found[e.Ref()] = e
		}
		if page = next; page == "" {
			break
		}
	}
	require.Len(t, found, 152)
	require.Equal(t, 2, pages)
	for _, ref := range []outbox.Ref{sent, dead} {
		want := b.entry(ref)
		want.Body, want.Attributes = nil, nil
		require.Equal(t, want, found[ref])
	}
	_, _, err := b.Operators.Messages(ctx, record, "nonsense")
	require.Error(t, err)
}
