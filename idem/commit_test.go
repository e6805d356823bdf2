package idem_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// effect is a unit of work that counts how often it was committed.
type effect struct {
	n         int
	refuse    error
	ambiguous bool // an earlier try of the refused write may still arrive
	sealed    bool
	size      int
}

func (e *effect) Seal() bool {
	e.sealed = true
	return e.n > 0
}

func (e *effect) Size() int { return e.size }

// ledger is a store that commits effects with outcomes.
type ledger struct {
	*memstore.Store
	mu    sync.Mutex
	total int
}

func (l *ledger) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	e, ok := f.Unit.(*effect)
	if !ok {
		return l.Store.Finish(ctx, now, f)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Unit = nil
	old, err := l.Get(ctx, f.ID)
	if err != nil {
		return err
	}
	if _, err := f.Apply(old, now); err != nil {
		return err
	}
	landed := old != nil && old.Write == f.Write
	if !landed && e.refuse != nil {
		return &protocol.RefusedError{Err: e.refuse, Ambiguous: e.ambiguous}
	}
	if err := l.Store.Finish(ctx, now, f); err != nil {
		return err
	}
	if !landed {
		l.total += e.n
	}
	return nil
}

func (l *ledger) sum() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

type bankRig struct {
	*rig
	ledger *ledger
}

func newBankRig(t *testing.T) *bankRig {
	mem := memstore.New()
	l := &ledger{Store: mem}
	r := &rig{mem: mem, faults: idemtest.NewFaults(l), clock: new(idemtest.Clock), events: new(events)}
	var err error
	r.engine, err = idem.New(r.faults, &idem.Options{Now: r.clock.Now, Observer: r.events.observer})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(context.Background()))
	})
	return &bankRig{r, l}
}

// pay is a handler whose unit of work is e.
func pay(e effect, err error) func(context.Context, int) (string, error) {
	return func(ctx context.Context, _ int) (string, error) {
		u, uErr := idem.UnitOf(ctx, func() idem.Unit { return &e })
		if uErr != nil {
			return "", uErr
		}
		if again, _ := idem.UnitOf(ctx, func() idem.Unit { panic("made twice") }); again != u {
			return "", errors.New("another unit")
		}
		return "paid", err
	}
}

func TestUnitCommitsWithAResultAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		e     effect
		err   error
		total int
	}{
		"result":       {effect{n: 1}, nil, 1},
		"empty":        {effect{}, nil, 0},
		"error":        {effect{n: 1}, errPlain, 0},
		"permanent":    {effect{n: 1}, idem.Permanent(errPlain), 0},
		"not executed": {effect{n: 1}, idem.NotExecuted(errPlain), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newBankRig(t)
			_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, pay(tc.e, tc.err))
			require.Equal(t, idem.Unmark(tc.err), err)
			require.Equal(t, tc.total, r.ledger.sum())
			require.Equal(t, m("Acquire", "Finish"), r.faults.Calls())
		})
	}
}

// What is lost of a commit and of the fence after it, in the reserved mode. A caller
// who is told that nothing was committed is told the truth for ever.
func TestCommitInDoubt(t *testing.T) {
	lost := idemtest.LoseRequest
	for _, tc := range []struct {
		name     string
		finish   []idemtest.Fault // nil: held, and delivered at the end
		get      []idemtest.Fault
		ok       bool
		maybe    bool
		lands    bool // when the held commit is delivered at last
		released bool
	}{
		{name: "reply lost", finish: []idemtest.Fault{idemtest.LoseReply}, ok: true},
		{name: "request lost", finish: []idemtest.Fault{nil}, released: true},
		{name: "refused", finish: []idemtest.Fault{idemtest.Refuse}, released: true},
		{name: "reply lost, fence's request", finish: []idemtest.Fault{idemtest.LoseReply, lost}, ok: true},
		{name: "reply lost, fence's reply", finish: []idemtest.Fault{idemtest.LoseReply, idemtest.LoseReply}, ok: true},
		{name: "request lost, fence's reply", finish: []idemtest.Fault{nil, idemtest.LoseReply}, released: true},
		{name: "request lost, fence's request", finish: []idemtest.Fault{nil, lost}, maybe: true, lands: true},
		{name: "request lost, fence and read", finish: []idemtest.Fault{nil, lost}, get: []idemtest.Fault{lost},
			maybe: true, lands: true},
		{name: "reply lost, fence and read", finish: []idemtest.Fault{idemtest.LoseReply, lost},
			get: []idemtest.Fault{lost}, maybe: true},
		{name: "request lost, fence unreadable", finish: []idemtest.Fault{nil, idemtest.Unreadable},
			maybe: true, lands: true},
		{name: "request lost, fence's conflict without a record", finish: []idemtest.Fault{nil, idemtest.BareConflict},
			maybe: true, lands: true},
	} {
		for _, op := range both {
			bubble(t, tc.name+"/"+op.Name, func(t *testing.T) {
				r, key := newBankRig(t), op.Key("t", "k")
				var held *idemtest.Call
				for _, f := range tc.finish {
					if f == nil {
						f = idemtest.Hold(&held)
					}
					r.faults.Next(idemtest.Finish, f)
				}
				r.faults.Next(idemtest.Get, tc.get...)
				res, err := idem.Run(inLambda(t.Context()), r.engine, key, 1, pay(effect{n: 1}, nil))
				committed := tc.finish[0] != nil && tc.name != "refused"
				if tc.ok {
					require.NoError(t, err)
					require.Equal(t, "paid", res.Value)
					require.False(t, res.Outcome.Queued)
				} else {
					failed := errorAs[*idem.CommitError](t, err)
					require.Equal(t, tc.maybe, failed.Ambiguous)
					require.NotErrorIs(t, err, idem.ErrStoreUnavailable)
					require.Equal(t, op.Repeat == idem.NotRepeatable && tc.released, errors.Is(err, idem.ErrOutcomeUnknown))
				}
				require.NotContains(t, r.events.take(), "outcome_queued", "it is never written later")
				require.NoError(t, r.engine.Flush(t.Context()))
				if held != nil {
					_ = held.Do(t.Context())
					require.Equal(t, tc.lands, r.state(t, key) == idem.Completed)
					committed = tc.lands
				}
				if committed {
					require.Equal(t, 1, r.ledger.sum())
				} else {
					require.Zero(t, r.ledger.sum())
				}

				// The same call finds out.
				r.faults.Heal()
				r.clock.Advance(time.Hour)
				next, err := idem.Run(t.Context(), r.engine, key, 1, pay(effect{n: 1}, nil))
				switch {
				case committed:
					require.NoError(t, err)
					require.True(t, next.Outcome.Replayed)
					require.Equal(t, 1, r.ledger.sum())
				case op.Repeat == idem.Repeatable:
					require.NoError(t, err)
					require.False(t, next.Outcome.Replayed)
					require.Equal(t, 1, r.ledger.sum())
				default:
					require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
					require.Zero(t, r.ledger.sum())
				}
			})
		}
	}
}

// A stricter call has parked the attempt while it ran: its commit closes the
// question; in doubt, the fence holds although the record stays where it is.
func TestCommitOfAParkedAttempt(t *testing.T) {
	for name, lose := range map[string]bool{"lands": false, "fenced": true} {
		t.Run(name, func(t *testing.T) {
			r, key := newBankRig(t), safe.Key("t", "k")
			var held *idemtest.Call
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
				r.clock.Advance(time.Hour)
				refused(t, r.elsewhere(t), idem.Operation{Name: "safe"}.Key("t", "k"), idem.ErrOutcomeUnknown, new(counter).run)
				r.clock.Advance(-time.Hour)
				if lose {
					r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
				}
				return pay(effect{n: 1}, nil)(ctx, n)
			})
			if !lose {
				require.NoError(t, err)
				require.Equal(t, idem.Completed, r.state(t, key))
				require.Equal(t, 1, r.ledger.sum())
				return
			}
			require.ErrorIs(t, err, idem.ErrNotCommitted)
			require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
			require.ErrorAs(t, held.Do(t.Context()), new(*protocol.ConflictError))
			require.Equal(t, idem.Unknown, r.state(t, key))
			require.Zero(t, r.ledger.sum())
		})
	}
}

// An attempt that was taken over commits nothing, and its caller gets what is
// recorded.
func TestCommitAfterTheClaimIsLost(t *testing.T) {
	r, key := newBankRig(t), safe.Key("t", "k")
	res := mustRun(t, r.inLambda(), key, func(ctx context.Context, n int) (string, error) {
		r.clock.Advance(time.Hour)
		must(t, r.elsewhere(t), key, func(context.Context, int) (string, error) { return "theirs", nil })
		return pay(effect{n: 1}, nil)(ctx, n)
	})
	require.Equal(t, "theirs", res.Value)
	require.True(t, res.Outcome.Replayed)
	require.Zero(t, r.ledger.sum())
}

// A handler that panics drops its unit.
func TestPanicDropsTheUnit(t *testing.T) {
	r, key := newBankRig(t), safe.Key("t", "k")
	e := &effect{n: 1}
	require.Panics(t, func() {
		_, _ = idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (string, error) {
			_, err := idem.UnitOf(ctx, func() idem.Unit { return e })
			require.NoError(t, err)
			panic("boom")
		})
	})
	require.True(t, e.sealed)
	require.Zero(t, r.ledger.sum())
	require.Equal(t, idem.Released, r.state(t, key))
}

// A unit is asked for where it can commit.
func TestUnitOfNeedsAHandler(t *testing.T) {
	create := func() idem.Unit { return &effect{} }
	_, err := idem.UnitOf(t.Context(), create)
	require.ErrorAs(t, err, new(*idem.ConfigError))
	r := newBankRig(t)
	var after context.Context
	must(t, r.rig, safe.Key("t", "k"), func(ctx context.Context, _ int) (int, error) {
		after = ctx
		return idem.Step(ctx, "s", func(ctx context.Context) (int, error) {
			_, err := idem.UnitOf(ctx, create)
			require.ErrorAs(t, err, new(*idem.ConfigError))
			return 1, nil
		}, nil)
	})
	late, err := idem.UnitOf(after, create)
	require.NoError(t, err)
	require.True(t, late.(*effect).sealed)
}

// Steps have no claim to be recorded under in atomic mode.
func TestNoStepsInAtomicMode(t *testing.T) {
	r := newRig(t, nil)
	_, err := idem.Do(t.Context(), r.engine, atomically.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "s", func(context.Context) (int, error) { panic("ran") }, nil)
	})
	mistaken(t, err, "idem.Reserved")
}
