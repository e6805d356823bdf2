package dynamostore

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// requeued is the n-th entry of a test, of a dead letter that is sent again.
func requeued(e *outbox.Entry, n int) protocol.Audit {
	return protocol.Audit{
		ID: e.Record, Entry: "entry-" + string(rune('0'+n)), At: base.Add(time.Duration(n) * time.Hour), Who: "alice", Why: "the queue is there again",
		Change: protocol.ChangeRequeued, What: "message " + e.ID, ExpiresAt: base.Add(1000 * time.Hour),
	}
}

// eachKind runs a test on a table with and on one without transactions.
func eachKind(t *testing.T, test func(t *testing.T, b *box, q *AdminStore)) {
	for name, o := range map[string]*Options{"transactions": nil, "without transactions": &noTransactions} {
		t.Run(name, func(t *testing.T) {
			b := openBoxWith(t, o)
			test(t, b, b.fixture.adminStore(t))
		})
	}
}

// die makes the message a dead letter, and reads it.
func (b *box) die(t *testing.T, ref outbox.Ref, reason string) *outbox.Entry {
	t.Helper()
	ok, err := b.DeadLetter(t.Context(), base, b.entry(t, ref), 10, reason)
	require.NoError(t, err)
	require.True(t, ok)
	return b.entry(t, ref)
}

func TestADeadLetterIsSentAgainTogetherWithWhoHasItSent(t *testing.T) {
	eachKind(t, func(t *testing.T, b *box, q *AdminStore) {
		ref := b.publish(t, "acme#charge#abc", 0, order("k"), base)
		e := b.die(t, ref, "down")
		first := requeued(e, 1)
		require.NoError(t, q.Requeue(t.Context(), e, first))
		require.Equal(t, outbox.New, b.entry(t, ref).State)
		require.Empty(t, b.listed(t, b.Dead))

		require.ErrorIs(t, q.Requeue(t.Context(), e, requeued(e, 2)), protocol.ErrNotFound, "it is sent already")
		b.die(t, ref, "still down")
		require.ErrorIs(t, q.Requeue(t.Context(), e, requeued(e, 3)), protocol.ErrNotFound, "it has died once more, of another reason than was shown")
		require.Equal(t, outbox.Dead, b.entry(t, ref).State)
		unread := *e
		unread.Unreadable = protocol.ErrRecordUnreadable
		require.ErrorIs(t, q.Requeue(t.Context(), &unread, requeued(e, 4)), protocol.ErrRecordUnreadable)

		entries := changes(t, q, ref.Record)
		require.Equal(t, []protocol.Audit{first}, entries, "of what was refused there is no entry")
	})
}

// The relay may have taken the message up before a caller that has lost the reply asks again.
func TestARequeueThatTheRelayHasTakenUpIsKnownAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, b *box, q *AdminStore) {
		ref := b.publish(t, "acme#charge#abc", 0, order(""), base)
		e := b.die(t, ref, "down")
		lost := false
		b.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
			if lost || op != "UpdateItem" && op != "TransactWriteItems" {
				return nil, nil
			}
			lost = true
			res, err := b.wire.loseReply(req)
			b.wire.set(nil)
			begun, berr := b.Begin(t.Context(), b.entry(t, ref), 1, base)
			require.NoError(t, berr)
			require.True(t, begun)
			return res, err
		})
		require.NoError(t, q.Requeue(t.Context(), e, requeued(e, 1)))
		require.True(t, lost)
		entries := changes(t, q, ref.Record)
		require.Equal(t, []protocol.Audit{requeued(e, 1)}, entries, "and confirmed")
	})
}

// A caller that loses the reply is told what was done, and one entry tells of it.
func TestARequeueWhoseReplyIsLostIsKnownAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, b *box, q *AdminStore) {
		ref := b.publish(t, "acme#charge#abc", 0, order(""), base)
		e := b.die(t, ref, "down")
		lost := map[string]bool{}
		b.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
			if lost[op] {
				return nil, nil
			}
			lost[op] = true
			return b.wire.loseReply(req)
		})
		require.NoError(t, q.Requeue(t.Context(), e, requeued(e, 1)))
		b.wire.set(nil)
		require.Equal(t, outbox.New, b.entry(t, ref).State)
		entries := changes(t, q, ref.Record)
		require.Len(t, entries, 1)
		require.Equal(t, "message "+e.ID, entries[0].What)
	})
}
