// Package outboxtest is the conformance suite for implementations of [outbox.Store].
package outboxtest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Harness is a store under test, without any message, and what can be done to it from outside.
type Harness struct {
	Store outbox.Store
	// Put stores a message, or replaces it: a new one as a transaction does, and one in state Retrying as Retry leaves
	// it. Remove removes one.
	Put    func(t testing.TB, e *outbox.Entry)
	Remove func(t testing.TB, ref outbox.Ref)
	// Lane returns the n-th of the ordering keys whose messages to "orders" are in one shard. Nil if all are.
	Lane func(n int) string
	// Operators is what operators use. Nil leaves out the cases that need it.
	Operators Operators
}

// Operators is a store as an operator uses it for messages.
type Operators interface {
	Messages(ctx context.Context, record, page string) ([]*outbox.Entry, string, error)
	Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error
	AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error)
}

// box is a harness in a case.
type box struct {
	outbox.Store
	Harness
	t *testing.T
}

// Run runs all cases, each on a harness of its own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	run(t, open, map[string]func(b *box){
		"life": life, "held": held, "held after": heldAfter, "notes": notes, "begun once": begunOnce, "texts": texts,
		"many": many, "sizes": sizes, "long lanes": longLanes, "strays": strays, "no such list": noSuchList,
		"sweeps side by side": sideBySide, "sweeps look behind": lookBehind, "sweeps when down": whenDown,
	})
	RunOperators(t, open)
}

// RunOperators runs the cases of Run that are about what operators do.
func RunOperators(t *testing.T, open func(t *testing.T) Harness) {
	run(t, open, map[string]func(b *box){
		"requeued dead": requeuedDead, "requeued sent": requeuedSent, "late notes": lateNotes, "of a record": ofARecord,
	})
}

func run(t *testing.T, open func(t *testing.T) Harness, cases map[string]func(b *box)) {
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			h := open(t)
			if h.Lane == nil {
				h.Lane = func(n int) string { return fmt.Sprint("k-", n) }
			}
			test(&box{h.Store, h, t})
		})
	}
}

// base is when all records were created, and most messages: a database with a clock of its own removes none of them.
var base = time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)

// Order is a message to "orders" with a key.
func Order(key string) outbox.Message {
	return outbox.Message{
		Destination: "orders", OrderingKey: key, Type: "order.placed", ContentType: "text/plain",
		Body: []byte("hello"), Attributes: map[string]string{"region": "eu"},
	}
}

// publish stores the n-th message of a record.
func (b *box) publish(record string, n int, m outbox.Message, at time.Time) outbox.Ref {
	return b.put(record, n, m, at, outbox.New)
}

func (b *box) put(record string, n int, m outbox.Message, at time.Time, in outbox.State) outbox.Ref {
	m.ID = outbox.MessageID(record, base, fmt.Sprint(n))
	e := &outbox.Entry{Record: record, Message: m, State: in, Number: n, Created: at}
	b.Put(b.t, e)
	return e.Ref()
}

// left stores messages, a millisecond after each other, that were left to the sweep.
func (b *box) left(m outbox.Message, count int, at time.Time) (refs []outbox.Ref) {
	for n := range count {
		record := fmt.Sprintf("%s/%s/%03d", m.Destination, m.OrderingKey, n)
		refs = append(refs, b.put(record, 0, m, at.Add(time.Duration(n)*time.Millisecond), outbox.Retrying))
	}
	return refs
}

func (b *box) entry(ref outbox.Ref) *outbox.Entry {
	b.t.Helper()
	found, read, err := b.Load(b.t.Context(), []outbox.Ref{ref}, math.MaxInt)
	require.NoError(b.t, err)
	require.Equal(b.t, 1, read)
	require.Contains(b.t, found, ref)
	return found[ref]
}

// pages lists all pages of all shards.
func (b *box) pages(list func(shard int, cursor string) ([]outbox.Ref, string, error)) (all []outbox.Ref) {
	b.t.Helper()
	for shard := range outbox.Shards {
		for cursor := ""; ; {
			refs, next, err := list(shard, cursor)
			require.NoError(b.t, err)
			all = append(all, refs...)
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return all
}

func (b *box) waiting(destination string, before time.Time) []outbox.Ref {
	b.t.Helper()
	return b.pages(func(shard int, cursor string) ([]outbox.Ref, string, error) {
		return b.Waiting(b.t.Context(), shard, destination, before, cursor)
	})
}

func (b *box) strays(known []string, before time.Time) []outbox.Ref {
	b.t.Helper()
	return b.pages(func(shard int, cursor string) ([]outbox.Ref, string, error) {
		return b.Strays(b.t.Context(), shard, known, before, cursor)
	})
}

// yes requires that a note was made, no that it was not.
func (b *box) yes(ok bool, err error) {
	b.t.Helper()
	require.NoError(b.t, err)
	require.True(b.t, ok)
}

func (b *box) no(ok bool, err error) {
	b.t.Helper()
	require.NoError(b.t, err)
	require.False(b.t, ok)
}

// refuses checks that no note about a message as it was read is made.
func (b *box) refuses(e *outbox.Entry, names ...string) {
	b.t.Helper()
	ctx, later := b.t.Context(), base.Add(24*time.Hour)
	calls := map[string]func() (bool, error){
		"begin":       func() (bool, error) { return b.Begin(ctx, e, 9, later) },
		"retry":       func() (bool, error) { return b.Retry(ctx, e, 9, later, "x") },
		"dead letter": func() (bool, error) { return b.DeadLetter(ctx, base, e, 9, "x") },
		"dispatch":    func() (bool, error) { return b.Dispatch(ctx, base, e, "other", later) },
	}
	for name, call := range calls {
		if len(names) == 0 || slices.Contains(names, name) {
			ok, err := call()
			require.NoError(b.t, err, name)
			require.False(b.t, ok, name)
		}
	}
}

// set are the distinct ones of refs, each listed once.
func (b *box) set(refs []outbox.Ref) map[outbox.Ref]bool {
	b.t.Helper()
	all := map[outbox.Ref]bool{}
	for _, ref := range refs {
		require.False(b.t, all[ref], "%v is listed twice", ref)
		all[ref] = true
	}
	return all
}

func union(sets ...map[outbox.Ref]bool) map[outbox.Ref]bool {
	all := map[outbox.Ref]bool{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}
