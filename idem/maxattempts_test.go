package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// limited is parked after three attempts that may have taken effect.
var limited = idem.Operation{Name: "limited", Repeat: idem.Repeatable, MaxAttempts: 3}

// attempted plays a handler that counts its runs and ends each as requested.
type attempted struct {
	*rig
	key  idem.Key
	runs int
}

func (a *attempted) errs(t *testing.T, err error) error {
	t.Helper()
	_, got := idem.Do(t.Context(), a.engine, a.key, 1, func(context.Context, int) (int, error) { a.runs++; return 0, err })
	return got
}

// dies leaves the claim as a process that is killed does, and waits until it has lapsed.
func (a *attempted) dies(t *testing.T) error {
	t.Helper()
	h := a.elsewhere(t)
	h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	_, err := idem.Do(inLambda(t.Context()), h.engine, a.key,
		1, func(context.Context, int) (int, error) { a.runs++; return 0, errPlain })
	a.clock.Advance(time.Hour)
	return err
}

func erring(t *testing.T, a *attempted) { require.Same(t, errPlain, a.errs(t, errPlain)) }

func dying(t *testing.T, a *attempted) { require.Same(t, errPlain, a.dies(t)) }

func TestAnOperationIsParkedAfterItsLastAttempt(t *testing.T) {
	errs, dies := erring, dying
	panics := func(t *testing.T, a *attempted) {
		require.Panics(t, func() {
			_, _ = idem.Do(t.Context(), a.engine, a.key, 1,
				func(context.Context, int) (int, error) { a.runs++; panic("poison") })
		})
	}
	clean := func(t *testing.T, a *attempted) { require.Same(t, errPlain, a.errs(t, idem.NotExecuted(errPlain))) }
	expires := func(_ *testing.T, a *attempted) { a.clock.Advance(48 * time.Hour) }
	resolved := func(t *testing.T, a *attempted) {
		a.clock.Advance(time.Hour)
		require.NoError(t, a.resolve(t, a.key.ID(), reconcile.Resolution{To: idem.Released}))
	}
	once := limited
	once.MaxAttempts = 1
	type ends = []func(*testing.T, *attempted)
	for name, tc := range map[string]struct {
		op   idem.Operation
		ends ends // each runs
	}{
		"errors":                     {limited, ends{errs, errs, errs}},
		"dead processes":             {limited, ends{dies, dies, dies}},
		"panics":                     {limited, ends{panics, panics, panics}},
		"one of each":                {limited, ends{errs, dies, panics}},
		"a dead process last":        {limited, ends{errs, errs, dies}},
		"clean releases in between":  {limited, ends{clean, errs, clean, clean, dies, clean, errs}},
		"clean releases before":      {limited, ends{clean, clean, clean, errs, errs, errs}},
		"clean releases before last": {limited, ends{dies, dies, clean, clean, clean, dies}},
		"a single attempt":           {once, ends{clean, errs}},
		"the record has expired":     {limited, ends{errs, errs, expires, errs, errs, errs}},
		"resolved: none took effect": {limited, ends{errs, errs, errs, resolved, errs, errs, errs}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attempted{rig: newRig(t, nil), key: tc.op.Key("t", "k")}
			for _, end := range tc.ends {
				end(t, a)
			}
			ran := a.runs
			for range 3 {
				require.ErrorIs(t, a.errs(t, nil), idem.ErrOutcomeUnknown)
				a.clock.Advance(48 * time.Hour)
			}
			require.Equal(t, ran, a.runs)
			rec := a.record(t, a.key)
			require.Equal(t, idem.Unknown, rec.State)
			require.False(t, rec.Due.IsZero(), "the question is in the index")
		})
	}
}

// The attempt that is the last one parks the operation itself: a sweep finds it although no caller asks again.
func TestTheLastAttemptParksTheOperationItself(t *testing.T) {
	a := &attempted{rig: newRig(t, nil), key: limited.Key("t", "k")}
	for range 2 {
		require.Same(t, errPlain, a.errs(t, errPlain))
		require.Equal(t, idem.Released, a.state(t, a.key))
	}
	a.faults.Reset()
	require.Same(t, errPlain, a.errs(t, errPlain))
	require.Equal(t, idem.Unknown, a.state(t, a.key))
	require.Equal(t, m("Get", "Acquire", "Finish"), a.faults.Calls())
	status, err := a.engine.Lookup(t.Context(), a.key)
	require.NoError(t, err)
	require.Equal(t, "the last of 3 attempts: "+errPlain.Error(), status.Failure.Message)
}

// A person who must resolve the operation reads in its record who has parked it, when and why,
// also if that was a call: the attempt itself has died.
func TestARecordSaysWhyACallHasParkedIt(t *testing.T) {
	loose := limited
	loose.MaxAttempts = 0
	strict := loose
	strict.Repeat = idem.NotRepeatable
	errs, dies := erring, dying
	for name, tc := range map[string]struct {
		ran, calls idem.Operation
		ends       []func(*testing.T, *attempted)
		message    string
	}{
		"not repeatable":         {strict, strict, []func(*testing.T, *attempted){dies}, "attempt 1 left no outcome"},
		"declared stricter":      {loose, strict, []func(*testing.T, *attempted){errs, dies}, "attempt 2 left no outcome"},
		"released, and stricter": {loose, strict, []func(*testing.T, *attempted){errs}, errPlain.Error()},
		"its last attempt": {limited, limited, []func(*testing.T, *attempted){errs, dies, dies},
			"the last of 3 attempts left no outcome"},
		"a bound that came later": {loose, limited, []func(*testing.T, *attempted){errs, dies, errs, errs},
			"the last of 4 attempts: " + errPlain.Error()},
		"dead, and a bound that came later": {loose, limited, []func(*testing.T, *attempted){errs, dies, errs, dies},
			"the last of 4 attempts left no outcome"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &attempted{rig: newRig(t, nil), key: tc.ran.Key("t", "k")}
			for _, end := range tc.ends {
				end(t, a)
			}
			a.key = tc.calls.Key("t", "k")
			a.faults.Reset()
			require.ErrorIs(t, a.errs(t, nil), idem.ErrOutcomeUnknown)
			calls := a.faults.Calls()
			require.Len(t, calls, 2, "it costs no further call")
			require.Equal(t, idemtest.Settle, calls[1])
			status, err := a.engine.Lookup(t.Context(), a.key)
			require.NoError(t, err)
			require.Equal(t, idem.Unknown, status.State)
			require.Equal(t, len(tc.ends), status.Attempt)
			require.Equal(t, "parked by a later call: "+tc.message, status.Failure.Message)
			require.WithinDuration(t, a.clock.Now(), status.UpdatedAt, 20*time.Second)
		})
	}
}

// Whatever is lost on the way, attempts that may have taken effect are counted once each,
// and nothing else is: claims that were taken back, and clean ends, are not.
func TestAttemptsAreCountedOnceEach(t *testing.T) {
	for seed := range uint64(300) {
		a := &attempted{rig: newRig(t, nil), key: limited.Key("t", "k")}
		g := rand.New(rand.NewPCG(13, seed))
		var story []string
		maybe := func(faults ...idemtest.Fault) idemtest.Fault { return faults[g.IntN(len(faults))] }
		unsettled := 0
		for unsettled < limited.MaxAttempts {
			require.Less(t, len(story), 60, "seed %d", seed)
			before := a.runs
			var what string
			var err error
			switch g.IntN(5) {
			case 0:
				what = "a claim in doubt"
				if g.IntN(2) == 0 {
					a.faults.Next(idemtest.Acquire, maybe(idemtest.LoseReply, idemtest.LoseRequest))
				} else {
					a.faults.Next(idemtest.Acquire, idemtest.Pass, maybe(idemtest.LoseReply, idemtest.LoseRequest))
				}
				a.faults.Next(idemtest.Withdraw, maybe(idemtest.Pass, idemtest.LoseReply, idemtest.LoseRequest))
				err = a.errs(t, errPlain)
			case 1:
				what, err = "died", a.dies(t)
			case 2:
				what = "a clean end"
				err = a.errs(t, idem.NotExecuted(errPlain))
				before = a.runs // it does not count
			default:
				what = "an error"
				a.faults.Next(idemtest.Finish, maybe(idemtest.Pass, idemtest.LoseReply, idemtest.LoseRequest))
				err = a.errs(t, errPlain)
			}
			a.faults.Heal()
			require.NoError(t, a.engine.Flush(t.Context()))
			unsettled += a.runs - before
			story = append(story, fmt.Sprintf("%s: %v, %s", what, err, a.state(t, a.key)))
			require.False(t, errors.Is(err, idem.ErrOutcomeUnknown), "seed %d, after %d: %q", seed, unsettled, story)
		}
		for range 2 {
			require.ErrorIs(t, a.errs(t, nil), idem.ErrOutcomeUnknown, "seed %d: %q", seed, story)
		}
	}
}

// An attempt that asks about an interrupted step too early says nothing of what a later one finds:
// however often a client comes, the one that comes in time closes the step.
func TestAttemptsThatAskTooEarlyAreNotCounted(t *testing.T) {
	r, key := rigOn(t, limited)
	killedWith(t, r, key, shipping)
	asked := 0
	ship := func(ctx context.Context) (string, error) {
		return idem.Step(ctx, "ship", func(context.Context) (string, error) { return "shipped", nil },
			&idem.StepConfig[string]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: 24 * time.Hour,
				Interrupted: func(context.Context, time.Time) (string, error) { asked++; return "", idem.NotExecuted(errPlain) }})
	}
	for range 10 {
		refused(t, r, key, new(*idem.StepInterruptedError), steps(ship))
		require.Equal(t, idem.Released, r.state(t, key))
		require.Equal(t, 1, r.record(t, key).Unsettled, "the attempt that died")
		r.clock.Advance(time.Minute)
	}
	r.clock.Advance(24 * time.Hour)
	require.Equal(t, "shipped", must(t, r, key, steps(ship)))
	require.Equal(t, 11, asked)
}
