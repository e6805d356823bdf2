package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A message belongs to one life of its key: the next life neither replaces it nor
// has its id, however the first one came to its end.
func TestTheNextLifeLeavesMessagesAlone(t *testing.T) {
	for mode, op := range modes {
		for _, deleted := range []bool{false, true} {
			t.Run(mode+map[bool]string{false: ", expired", true: ", deleted"}[deleted], func(t *testing.T) {
				b := openBank(t)
				o := must(NewOutbox(b.admin, b.table, nil))
				op := op
				op.Retention = time.Hour
				k := op.Key("t", "order-1")
				place := func(body, destination string) {
					_, err := idem.Do(t.Context(), b.engine, k, body,
						Transact(func(_ context.Context, tx *Tx, in string) (string, error) {
							tx.Publish("moved", outbox.Message{Destination: destination, Body: []byte(in)})
							return in, nil
						}))
					require.NoError(t, err)
				}
				place("first order", "invoices")
				first := b.messages(t, k.ID())
				require.Len(t, first, 1)
				require.Equal(t, outbox.MessageID(k.ID(), b.get(t, k.ID()).CreatedAt, "moved"), first[0].ID)
				isTrue(t)(o.DeadLetter(t.Context(), b.now, first[0], 10, "poisoned"))
				if deleted {
					b.remove(t, k.ID())
				}
				b.now = b.now.Add(2 * time.Hour)
				place("second order", "shipments")
				bodies := map[string]outbox.State{}
				for _, e := range b.messages(t, k.ID()) {
					require.NoError(t, e.Unreadable)
					bodies[string(e.Body)+" to "+e.Destination] = e.State
				}
				require.Equal(t, map[string]outbox.State{
					"first order to invoices": outbox.Dead, "second order to shipments": outbox.New,
				}, bodies)
			})
		}
	}
}

// A message's id is made of its name and of when the record was created, whichever attempt commits and whatever the
// order of the calls. What is in order with it is what was published before it for the same destination and key.
func TestMessagesAreNamed(t *testing.T) {
	b := openBank(t)
	down, created := errors.New("down"), b.now
	for n, order := range [][]string{{"shipped", "audited", "placed"}, {"placed", "audited", "shipped"}} {
		k := transfer.Key("t", "k")
		end := []error{down, nil}[n]
		_, err := idem.Do(t.Context(), b.engine, k, 1, Transact(func(_ context.Context, tx *Tx, _ int) (int, error) {
			for _, name := range order {
				m := outbox.Message{Destination: "orders", OrderingKey: "o-1", Body: []byte(name)}
				if name == "audited" {
					m.OrderingKey = ""
				}
				tx.Publish(name, m)
			}
			return 1, end
		}))
		require.ErrorIs(t, err, end)
		b.now = b.now.Add(time.Minute)
	}
	rec := b.get(t, transfer.Key("t", "k").ID())
	id := func(name string) string { return outbox.MessageID(rec.ID, created, name) }
	got := map[string]*outbox.Entry{}
	for _, e := range b.messages(t, rec.ID) {
		require.NoError(t, e.Unreadable)
		require.Equal(t, id(string(e.Body)), e.ID)
		got[string(e.Body)] = e
	}
	require.Len(t, got, 3)
	require.Equal(t, []string{id("placed")}, got["shipped"].After)
	require.Empty(t, got["placed"].After)
	require.Empty(t, got["audited"].After)
	require.Equal(t, []int{0, 1, 2}, []int{got["placed"].Number, got["audited"].Number, got["shipped"].Number})
}

// requeued is the n-th entry of a test, of a dead letter that is sent again.
func requeued(e *outbox.Entry, n int) protocol.Audit {
	return protocol.Audit{
		ID: e.Record, Entry: "entry-" + string(rune('0'+n)), At: base.Add(time.Duration(n) * time.Hour), Who: "alice",
		Why:    "the queue is there again",
		Change: protocol.ChangeRequeued, What: "message " + e.ID, ExpiresAt: base.Add(1000 * time.Hour),
	}
}

// die makes the message a dead letter, and reads it.
func (b *box) die(t *testing.T, ref outbox.Ref, reason string) *outbox.Entry {
	t.Helper()
	isTrue(t)(b.DeadLetter(t.Context(), base, b.entry(t, ref), 10, reason))
	return b.entry(t, ref)
}

// A caller that loses the reply learns what was done, and one entry has it: although the relay may have
// taken the message up before the caller asks again.
func TestARequeueWhoseReplyIsLostIsKnownAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		for name, takesUp := range map[string]bool{"left": false, "taken up": true} {
			b := f.box()
			ref := b.publish(t, "acme#charge#"+name, 0, order(""), base)
			e := b.die(t, ref, "down")
			lost := false
			b.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if lost || op != "UpdateItem" && op != "TransactWriteItems" {
					return nil, nil
				}
				lost = true
				res, err := b.wire.loseReply(req)
				b.wire.set(nil)
				if takesUp {
					isTrue(t)(b.Begin(t.Context(), b.entry(t, ref), 1, base))
				}
				return res, err
			})
			require.NoError(t, q.Requeue(t.Context(), e, requeued(e, 1)))
			require.True(t, lost)
			require.NotEqual(t, outbox.Dead, b.entry(t, ref).State)
			require.Equal(t, []protocol.Audit{requeued(e, 1)}, changes(t, q, ref.Record), "and confirmed")

			isTrue(t)(b.Dispatch(t.Context(), base, b.entry(t, ref), "sqs-1", base.Add(time.Hour)))
			e = b.entry(t, ref)
			b.wire.loseFirst(1)
			require.NoError(t, q.Requeue(t.Context(), e, requeued(e, 2)))
			require.Equal(t, outbox.New, b.entry(t, ref).State)
			require.Len(t, changes(t, q, ref.Record), 2)
		}
	})
}
