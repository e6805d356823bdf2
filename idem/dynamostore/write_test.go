package dynamostore

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

func TestBadWritesAreRefusedBeforeTheyAreSent(t *testing.T) {
	s, n := scripted(nil)
	ctx := t.Context()
	// Audit entries are written by an AdminStore alone.
	require.ErrorIs(t, s.Settle(ctx, base, protocol.Settlement{ID: "k", Audit: &protocol.Audit{ID: "k"}}),
		errors.ErrUnsupported)
	f := completion("k", "o1", make([]byte, DefaultMaxResult+1))
	require.ErrorAs(t, s.Finish(ctx, base, f), new(*protocol.TooLargeError))
	isStoreError(t, s.RecordStep(ctx, base, protocol.StepWrite{ID: "k", Owner: "o", Write: "w"}), false)
	added := completion("k", "o1", []byte("1")) // a result, and nothing else
	added.Attempt, added.Unit = protocol.WithoutResult{Write: "o1.fact"}, new(Tx)
	isStoreError(t, s.Finish(ctx, base, added), false)
	added.Unit, added.Ending = nil, protocol.Ending{State: protocol.Released}
	isStoreError(t, s.Finish(ctx, base, added), false)
	f.Ending = protocol.Ending{State: protocol.Failed}
	isStoreError(t, s.Finish(ctx, base, f), false)
	f.Ending = protocol.Ending{State: protocol.InProgress}
	isStoreError(t, s.Finish(ctx, base, f), false)
	for _, version := range []int{-1, math.MaxInt32 + 1} {
		f.Ending = protocol.Ending{State: protocol.Completed, Result: []byte("1"), ResponseVersion: version}
		require.ErrorContains(t, isStoreError(t, s.Finish(ctx, base, f), false), "count versions from zero")
	}
	w := resolution("k", "seen", "", protocol.Ending{State: protocol.Completed, Result: noise(10000)})
	isStoreError(t, s.Settle(ctx, base, w), false)
	w.Kind = protocol.EventClaim
	isStoreError(t, s.Settle(ctx, base, w), false)
	other := completion("k", "o1", nil)
	other.Unit = struct{ protocol.Unit }{}
	require.ErrorIs(t, s.Finish(ctx, base, other), errors.ErrUnsupported)
	require.Zero(t, *n)
}
