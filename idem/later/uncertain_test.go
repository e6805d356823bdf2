package later_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

var (
	errTimeout = errors.New("the printer does not answer")

	repeatable = idem.Operation{Name: "statement", Repeat: idem.Repeatable}
	// failOpen may run while the store is down.
	failOpen = idem.Operation{Name: "statement", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}
)

// The operation was not accepted for later yet when its first attempt may have taken effect:
// no caller hears that nothing was executed, and no stricter worker runs it.
func TestAnAcceptanceAfterAnUncertainAttemptStaysUncertain(t *testing.T) {
	for name, lapsed := range map[string]bool{"it has failed": false, "its process has died": true} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, repeatable)
			idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (string, error) {
				return idem.Do(ctx, e, d.key, 3, func(context.Context, int) (string, error) {
					if lapsed {
						d.Crash()
					}
					return "", errTimeout
				})
			})
			d.Restart()
			d.lapse()
			d.accepted(3)
			rec := d.record()
			require.True(t, rec.State == idem.Pending && rec.Uncertain && rec.Unsettled == 1, "%+v", rec)
			require.ErrorIs(t, d.cancel(), later.ErrBegun)
			d.escalated()
			d.is(idem.Pending)

			require.ErrorIs(t, d.workOn(statement, d.key.ID(), nil).Err, idem.ErrOutcomeUnknown)
			require.Zero(t, d.runs)
			require.Equal(t, idem.Unknown, d.record().State)
			require.NoError(t, d.resolve(d.reconciler(d.Store, 0), idem.Released))
			require.NoError(t, d.work())
			require.Equal(t, 1, d.runs)
		})
	}
}

// Between a worker's look and its claim the work is cancelled, forgotten and accepted again: the
// worker has the input of what is over, and runs nothing.
func TestAWorkerRunsNoInputOfAnEarlierAcceptance(t *testing.T) {
	d := deskWith(t, statement)
	d.Faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, d.cancel())
		rc, alice := d.reconciler(d.Store, 0), reconcile.Change{Actor: "alice", Reason: "a test"}
		require.NoError(t, rc.Forget(ctx, d.key.ID(), alice))
		d.accepted(3)
		return c.Do(ctx)
	})
	require.ErrorIs(t, d.work(), idem.ErrInFlight, "its message comes again")
	require.Zero(t, d.runs)
	require.NoError(t, d.work())
	d.is(idem.Completed)
}

// The message that would bring the next worker is deleted: operators get the work then, and can end it.
func TestWorkThatNoWorkerComesForAnyMoreIsEndedByOperators(t *testing.T) {
	watched := func(w idem.Watch) idem.Operation {
		op := repeatable
		op.Watch = w
		return op
	}
	for name, c := range map[string]struct {
		op   idem.Operation
		die  bool
		end  error
		left idem.State
	}{
		"its worker has died":                        {watched(idem.WatchNotRepeatable), true, nil, idem.InProgress},
		"its worker has died, watched":               {watched(idem.WatchAlways), true, nil, idem.InProgress},
		"its worker has died, not noticed elsewhere": {watched(idem.WatchNever), true, nil, idem.InProgress},
		"its worker did nothing":                     {statement, false, idem.NotExecuted(errTimeout), idem.Released},
		"its worker failed":                          {repeatable, false, errTimeout, idem.Released},
		"its outcome is unknown":                     {statement, false, errTimeout, idem.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			d := deskWith(t, c.op)
			idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[string], error) {
				return later.Work(ctx, e, c.op, d.key.ID(), func(context.Context, int) (string, error) {
					if c.die {
						d.Crash()
					}
					return "", c.end
				})
			})
			d.Restart()
			d.escalated()
			require.Equal(t, c.left, d.record().State)
			require.ErrorIs(t, d.cancel(), later.ErrBegun)
			require.NoError(t, d.resolve(d.reconciler(d.Store, 0), idem.Failed))
			d.failed(d.work()) // a message that comes all the same
			require.Zero(t, d.runs)
		})
	}
}

// Also an operation that may run while the store is down is accepted only if that is recorded.
func TestNothingIsAcceptedThatIsNotRecorded(t *testing.T) {
	d := newDesk(t, failOpen)
	during := func(fault idemtest.Fault, m idemtest.Method, f func() error) error {
		defer d.Faults.Heal()
		d.Faults.Always(fault, m)
		return f()
	}
	for _, m := range []idemtest.Method{idemtest.Get, idemtest.Finish} {
		require.Error(t, during(idemtest.LoseRequest, m, func() error { return d.accept(3).Err }), m)
	}
	require.Empty(t, d.Published())
	d.accepted(3)
	require.ErrorIs(t, during(idemtest.LoseRequest, idemtest.Acquire, d.work), idem.ErrStoreUnavailable)
	require.ErrorIs(t, during(idemtest.Refuse, idemtest.StepResult, d.work), idem.ErrStoreUnavailable)
	require.Zero(t, d.runs, "a worker has no input but the recorded one")
	require.NoError(t, d.work())
}

// The commit of an acceptance arrives when its caller has heard that nothing is certain, and has asked again.
func TestALateAcceptanceIsNone(t *testing.T) {
	for _, withdrawn := range []bool{true, false} {
		d := newDesk(t, statement)
		var late *idemtest.Call
		d.Faults.Next(idemtest.Finish, idemtest.Hold(&late))
		if !withdrawn {
			d.Faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
		}
		require.ErrorIs(t, d.accept(3).Err, idem.ErrNotCommitted)
		d.Restart()
		d.Faults.Heal()
		id := d.accepted(3)
		require.Error(t, late.Do(t.Context()))
		require.Len(t, d.Published(), 1)
		require.Equal(t, id, d.accepted(3))
	}
}

// Workers have run when its caller asks what became of the commit.
func TestAnAcceptanceWhoseReplyIsLostWhileWorkersCome(t *testing.T) {
	for attempts := range 4 {
		d := newDesk(t, statement)
		d.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			require.NoError(t, c.Do(ctx))
			for range attempts {
				require.ErrorIs(t, d.tries(idem.NotExecuted(errTimeout)), errTimeout)
			}
			return c.Lost()
		})
		d.accepted(3)
		_, err := d.status()
		require.NoError(t, err)
		require.Len(t, d.Published(), 1)
		require.NoError(t, d.work())
	}
}

// A worker's message is not deleted before its outcome is written: if the process dies with it, another worker comes.
func TestAWorkerComesAgainUntilItsOutcomeIsWritten(t *testing.T) {
	for _, end := range []error{nil, idem.Permanent(errTimeout)} {
		d := deskWith(t, repeatable)
		d.Faults.Always(idemtest.LoseRequest, idemtest.Finish)
		require.ErrorIs(t, d.tries(end), idem.ErrInFlight)
		d.Restart()
		d.Faults.Heal()
		d.lapse()
		require.NoError(t, d.work())
		d.is(idem.Completed)
		require.Equal(t, 1, d.runs)
	}
}

// Nor is it where the process has no room to keep what is not written.
func TestAWorkerComesAgainWhenNothingMoreIsKept(t *testing.T) {
	d := deskWith(t, repeatable)
	d.Faults.Always(idemtest.LoseRequest, idemtest.Finish)
	long, other := idem.Permanent(errors.New(strings.Repeat("x", 4000))), idem.Operation{Name: "other"}
	for _, end := range []error{long, idem.Permanent(errTimeout)} { // large ones, and what room they leave
		for n, queued := 0, true; queued; n++ {
			out, _ := idem.Run(t.Context(), d.Engine, other.Key("acme", fmt.Sprint(len(end.Error()), n)), 3,
				func(context.Context, int) (string, error) { return "", end })
			queued = out.Outcome.Queued
		}
	}
	require.ErrorIs(t, d.tries(nil), idem.ErrInFlight)
}

// The record says that the work has begun, whatever the mode: no caller hears that nothing was
// executed after an attempt that failed.
func TestAWorkerInAtomicModeClaimsBeforeItRuns(t *testing.T) {
	op := repeatable
	op.Mode = idem.Atomic
	for name, run := range map[string]func(d *desk){
		"cancel": func(d *desk) {
			require.ErrorIs(t, d.tries(errTimeout), errTimeout)
			require.ErrorIs(t, d.cancel(), later.ErrBegun, "204: it was not executed and will not be")
		},
		"cancel while it runs": func(d *desk) {
			require.NoError(t, d.workOn(op, d.key.ID(), func() { require.ErrorIs(t, d.cancel(), later.ErrBegun) }).Err)
		},
		"sweep": func(d *desk) {
			require.ErrorIs(t, d.tries(errTimeout), errTimeout)
			d.Clock.Advance(time.Hour + time.Second)
			require.Zero(t, d.sweep().NotStarted)
			_, err := d.status()
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) { run(deskWith(t, op)) })
	}
}

// Steps of accepted work are kept from worker to worker, undone, and counted as those of any other operation.
func TestAWorkersStepsAndAttempts(t *testing.T) {
	op := repeatable
	op.MaxAttempts = 3
	reserved, undone := 0, 0
	work := func(d *desk, then error) error {
		_, err := later.Work(t.Context(), d.Engine, op, d.key.ID(), func(ctx context.Context, in int) (string, error) {
			_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { reserved++; return in, nil },
				&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undone++; return nil }})
			if err != nil {
				return "", err
			}
			return "", then
		})
		return err
	}
	d := deskWith(t, op)
	for _, err := range []error{errTimeout, errTimeout, idem.Permanent(errors.New("declined"))} {
		require.Error(t, work(d, err))
	}
	require.Equal(t, []int{1, 1}, []int{reserved, undone})
	require.Equal(t, "declined", d.failed().Message)

	d = deskWith(t, op)
	for range 3 {
		require.ErrorIs(t, work(d, errTimeout), errTimeout)
	}
	require.ErrorIs(t, work(d, nil), idem.ErrOutcomeUnknown)
	d.is(idem.Unknown)
	d.lapse()
	require.NoError(t, d.resolve(d.reconciler(d.Store, 0), idem.Released))
	require.NoError(t, work(d, nil))
	require.Equal(t, 2, reserved)
}

// A large input has the time that a large result has.
func TestALargeInputHasTimeToBeAccepted(t *testing.T) {
	left := func(size int) (left time.Duration) {
		d := newDesk(t, statement)
		d.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			end, ok := ctx.Deadline()
			require.True(t, ok)
			left = time.Until(end)
			return c.Do(ctx)
		})
		_, err := later.Accept[string](t.Context(), d.Engine, d.key, strings.Repeat("x", size), nil)
		require.NoError(t, err)
		return left
	}
	require.Greater(t, left(60<<20), left(10)+30*time.Second)
}

// An operator says of work that waits that it failed. A worker claims it at that moment and ends
// with an unknown outcome: of that attempt nothing is found out.
func TestAResolutionOfWhatWaitsSettlesNoLaterAttempt(t *testing.T) {
	d := deskWith(t, statement)
	d.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		require.ErrorIs(t, d.tries(errTimeout), errTimeout)
		require.Equal(t, idem.Unknown, d.record().State)
		return c.Do(ctx)
	})
	err := d.resolve(d.reconciler(d.Faults, time.Hour), idem.Failed)
	require.Equal(t, idem.Unknown, d.record().State, "err %v: attempt 1 was resolved by what was said of no attempt", err)
}

// asks are the calls to later, of work that is there or not.
var asks = map[string]func(ctx context.Context, e *idem.Engine) error{
	"Work": func(ctx context.Context, e *idem.Engine) error {
		_, err := later.Work(ctx, e, statement, statement.Key("acme", "june").ID(),
			func(context.Context, int) (string, error) { return "", nil })
		return err
	},
	"StatusOf": func(ctx context.Context, e *idem.Engine) error {
		_, err := later.StatusOf(ctx, e, statement, "acme", strings.Repeat("A", 64))
		return err
	},
	"Cancel": func(ctx context.Context, e *idem.Engine) error {
		return later.Cancel(ctx, e, statement, "acme", strings.Repeat("A", 64))
	},
	"Accept": func(ctx context.Context, e *idem.Engine) error {
		_, err := later.Accept[string](ctx, e, statement.Key("acme", "june"), 3, nil)
		return err
	},
}

// engine is one over a store with the fault.
func engine(t *testing.T, fault idemtest.Fault) (*idem.Engine, *idemtest.Faults) {
	faults := idemtest.NewFaults(memstore.New())
	faults.Always(fault)
	e, err := idem.New(faults, nil)
	require.NoError(t, err)
	return e, faults
}

// A store that is down is asked once a second, and nothing runs until it answers.
func TestWorkersDoNotAskAStoreThatIsDown(t *testing.T) {
	for _, name := range []string{"Work", "Accept"} {
		e, faults := engine(t, idemtest.Refuse)
		for range 50 {
			require.ErrorIs(t, asks[name](t.Context(), e), idem.ErrStoreUnavailable, name)
		}
		require.LessOrEqual(t, len(faults.Calls()), 6, name)
	}
}

// A store that does not answer costs a call its budget, not the whole invocation.
func TestABlackHoleCostsAWorkerItsBudget(t *testing.T) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := engine(t, idemtest.BlackHole)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a worker's invocation
				defer cancel()
				began := time.Now()
				require.Error(t, ask(ctx, e))
				require.Less(t, time.Since(began), 2*time.Second)
			})
		})
	}
}
