package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A key whose claim has met a record, or was throttled, is read before its next claim. What is answered is what is in
// the store then.
func TestHotKeysAreRead(t *testing.T) {
	const claim, read = idemtest.Acquire, idemtest.Get
	throttled := func(context.Context, *idemtest.Call) error {
		return &protocol.StoreError{Op: "Acquire", Down: true, Throttled: true}
	}
	mem, now := memstore.New(), time.Now()
	faults := idemtest.NewFaults(mem)
	s := guard.Hot(faults)
	met := new(*protocol.ConflictError)
	for _, step := range []struct {
		name, owner string
		before      func()
		fails       any // the error's type
		calls       []idemtest.Method
	}{
		{"the first claim", "a", nil, nil, []idemtest.Method{claim}},
		{"the first duplicate", "b", nil, met, []idemtest.Method{claim}},
		{"the next one", "c", nil, met, []idemtest.Method{read}},
		{"the claim that has landed", "a", nil, nil, []idemtest.Method{read, claim}},
		{"the record is forgotten", "e", func() { mem.Delete("t#op#k") }, nil, []idemtest.Method{read, claim}},
		{"its duplicate", "f", nil, met, []idemtest.Method{claim}},
		{"the reply to the read is lost", "g", func() { faults.Next(read, idemtest.LoseReply) },
			new(*protocol.StoreError), []idemtest.Method{read}},
		{"it is hot still", "h", nil, met, []idemtest.Method{read}},
		{"a throttled key", "i", func() {
			s = guard.Hot(faults)
			faults.Next(claim, throttled)
		}, new(*protocol.StoreError), []idemtest.Method{claim}},
		{"is hot too", "j", nil, met, []idemtest.Method{read}},
	} {
		if step.before != nil {
			step.before()
		}
		faults.Reset()
		err := s.Acquire(t.Context(), now, firstClaim(step.owner, now))
		require.Equal(t, step.calls, faults.Calls(), step.name)
		if step.fails == nil {
			require.NoError(t, err, step.name)
			continue
		}
		require.ErrorAs(t, err, step.fails, step.name)
		if failed, ok := step.fails.(**protocol.StoreError); ok {
			require.False(t, (*failed).Ambiguous, "%s: no claim was sent that can land", step.name)
		} else {
			require.Equal(t, "t#op#k", (*met).Existing.ID, step.name)
		}
	}
	over := firstClaim("k", now)
	over.Seen = "e"
	faults.Reset()
	require.NoError(t, s.Acquire(t.Context(), now, over))
	require.Equal(t, []idemtest.Method{claim}, faults.Calls(), "a takeover has read the record")
}

// free takes every claim.
type free struct{ protocol.Store }

func (free) Acquire(context.Context, time.Time, protocol.Claim) error { return nil }

// throttling takes none.
type throttling struct {
	protocol.Store
	err error
}

func (s *throttling) Acquire(context.Context, time.Time, protocol.Claim) error { return s.err }

// What is remembered of a key has no part of its id: ids of 2 KB in all slots would take half a megabyte.
func TestHotKeysCostNoAllocation(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	c := firstClaim("a", now)
	for name, store := range map[string]protocol.Store{"not hot": free{},
		"gets hot": &throttling{err: &protocol.StoreError{Op: "Acquire", Down: true, Throttled: true}}} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = guard.Hot(store).Acquire(ctx, now, c) })-
			testing.AllocsPerRun(100, func() { _ = guard.Hot(store) }), name)
	}
}
