package reconcile_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// seen is alice after she has looked at the record.
func (r *rig) seen(key idem.Key) reconcile.Change {
	by := alice
	by.IfWrite = r.Record(key).Write
	return by
}

func TestADecisionIsAboutTheRecordThatWasSeen(t *testing.T) {
	notHappened := reconcile.Resolution{To: idem.Released}
	key := refund.Key("acme", "r-1")

	t.Run("as it was", func(t *testing.T) {
		r := newRig(t)
		r.end(key, errPlain)
		by := r.seen(key)
		r.lapse()
		r.sweep(r.sweeper(reconcile.SweepOptions{})) // when it is looked at next is no news
		require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), notHappened, by))
	})
	t.Run("a lapsed claim", func(t *testing.T) {
		r := newRig(t)
		r.killed(key)
		r.lapse()
		require.NoError(t, r.reconciler().Resolve(t.Context(), key.ID(), notHappened, r.seen(key)))
		require.Equal(t, idem.Released, r.Record(key).State)
	})
	t.Run("somebody else was faster", func(t *testing.T) {
		r := newRig(t)
		r.end(key, errPlain)
		r.lapse()
		by := r.seen(key)
		rc := r.reconciler()
		require.NoError(t, rc.Resolve(t.Context(), key.ID(), notHappened, alice))
		_, err := r.call(key, func(context.Context, int) (int, error) { return 0, errPlain })
		require.Error(t, err)
		r.lapse()
		before := r.Record(key)
		require.Equal(t, idem.Unknown, before.State)
		require.ErrorIs(t, rc.Resolve(t.Context(), key.ID(), notHappened, by), reconcile.ErrChanged)
		require.Equal(t, before, r.Record(key), "the second attempt may have taken effect")
	})
	t.Run("an outcome came", func(t *testing.T) {
		r := newRig(t)
		r.end(key, nil)
		by := alice
		by.IfWrite = "another"
		require.ErrorIs(t, r.reconciler().Forget(t.Context(), key.ID(), by), reconcile.ErrChanged)
		require.NoError(t, r.reconciler().Forget(t.Context(), key.ID(), r.seen(key)))
	})
}

func TestADecisionIsFoundInTheHistoryByItsID(t *testing.T) {
	r := newRig(t)
	rc, key := r.reconciler(), refund.Key("acme", "r-1")
	r.end(key, errPlain)
	r.lapse()
	for _, id := range []string{"a b", "a#b", "a.b", "\u00e4", strings.Repeat("a", 65)} {
		by := alice
		by.DecisionID = id
		var mistake *idem.ConfigError
		require.ErrorAs(t, rc.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed}, by), &mistake, id)
	}
	named, other := alice, alice
	named.DecisionID, other.DecisionID = "form-1", "form-10"
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed}, named))
	require.NoError(t, rc.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed, Replace: true}, r.seen(key)))
	history, err := rc.History(t.Context(), key.ID())
	require.NoError(t, err)
	made := func(by reconcile.Change) (all []bool) {
		for _, a := range history {
			all = append(all, by.Made(a))
		}
		return all
	}
	require.Equal(t, []bool{true, false}, made(named))
	require.Equal(t, []bool{false, false}, made(other), "an ID that begins like it")
	require.Equal(t, []bool{false, false}, made(alice), "who has no ID finds none")
}
