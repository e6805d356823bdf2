package dynamostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
)

// A message belongs to one life of its key: the next life neither replaces it nor
// has its id, however the first one came to its end.
func TestTheNextLifeLeavesMessagesAlone(t *testing.T) {
	for mode, op := range modes {
		for _, deleted := range []bool{false, true} {
			t.Run(mode+map[bool]string{false: ", expired", true: ", deleted"}[deleted], func(t *testing.T) {
				b := openBank(t)
				o, err := NewOutbox(b.admin, b.table, nil)
				require.NoError(t, err)
				op := op
				op.Retention = time.Hour
				k := op.Key("t", "order-1")
				place := func(body, destination string) {
					_, err := idem.Do(t.Context(), b.engine, k, body, Transact(func(_ context.Context, tx *Tx, in string) (string, error) {
						tx.Publish("moved", outbox.Message{Destination: destination, Body: []byte(in)})
						return in, nil
					}))
					require.NoError(t, err)
				}
				place("first order", "invoices")
				first := b.messages(t, k.ID())
				require.Len(t, first, 1)
				rec, err := b.Get(t.Context(), k.ID())
				require.NoError(t, err)
				require.Equal(t, outbox.MessageID(k.ID(), rec.CreatedAt, "moved"), first[0].ID)
				ok, err := o.DeadLetter(t.Context(), b.now, first[0], 10, "poisoned")
				require.NoError(t, err)
				require.True(t, ok)
				if deleted {
					_, err := b.admin.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &b.table, Key: key(k.ID())})
					require.NoError(t, err)
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

// All attempts of a life give a message the same id, derived from
// the record's creation, and not from the attempt that commits.
func TestALifeHasOneID(t *testing.T) {
	b := openBank(t)
	k := transfer.Key("t", "k")
	created := b.now
	down := errors.New("down")
	for n, end := range []error{down, down, nil} {
		_, err := idem.Do(t.Context(), b.engine, k, 1, Transact(func(_ context.Context, tx *Tx, _ int) (int, error) {
			tx.Publish("moved", outbox.Message{Destination: "d", Body: []byte("x")})
			return n, end
		}))
		require.ErrorIs(t, err, end)
		b.now = b.now.Add(time.Minute)
	}
	got := b.messages(t, k.ID())
	require.Len(t, got, 1)
	require.Equal(t, outbox.MessageID(k.ID(), created, "moved"), got[0].ID)
}

// A message's id goes by its name, whatever the order of the calls, and what is in
// order with it is what was published before it for the same destination and key.
func TestMessagesAreNamed(t *testing.T) {
	b := openBank(t)
	down := errors.New("down")
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
	}
	rec := b.get(t, transfer.Key("t", "k").ID())
	id := func(name string) string { return outbox.MessageID(rec.ID, rec.CreatedAt, name) }
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
