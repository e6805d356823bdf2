package memstore_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// unit has one action with a condition.
type unit struct{ name string }

func (u *unit) Seal() bool { return true }

func (u *unit) Size() int { return len(u.name) }

func (u *unit) CommitInMemory(conditions func(any) (bool, any)) error {
	if conditions == nil {
		return nil
	}
	if holds, old := conditions(u.name); !holds {
		return &protocol.RefusedError{Err: old.(error)}
	}
	return nil
}

func TestUnitsCommitWithTheOutcome(t *testing.T) {
	s := memstore.New()
	claim(t, s, "a")
	f := protocol.Finish{ID: "a", Owner: "owner-a", Write: "w", Ending: protocol.Ending{State: protocol.Completed}, Unit: &unit{"first"}}

	reason := errors.New("the condition does not hold")
	s.Conditions(func(action any) (bool, any) {
		require.Equal(t, "first", action)
		return false, reason
	})
	var refused *protocol.RefusedError
	require.ErrorAs(t, s.Finish(t.Context(), now, f), &refused)
	require.Equal(t, reason, refused.Err)
	require.Empty(t, s.Units())
	require.Equal(t, protocol.InProgress, s.Records()[0].State, "neither is written")

	s.Conditions(nil)
	other := f
	other.Owner = "somebody"
	require.Error(t, s.Finish(t.Context(), now, other))
	require.Empty(t, s.Units(), "who has no claim commits nothing")

	require.NoError(t, s.Finish(t.Context(), now, f))
	require.NoError(t, s.Finish(t.Context(), now, f), "the same write once more")
	require.Equal(t, []idem.Unit{f.Unit}, s.Units(), "commits once")
	require.Equal(t, protocol.Completed, s.Records()[0].State)
}
