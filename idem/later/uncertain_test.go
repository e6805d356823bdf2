package later_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

var errTimeout = errors.New("the printer does not answer")

func (d *desk) reconciler() *reconcile.Reconciler {
	d.t.Helper()
	rc, err := reconcile.New(d.Store, &reconcile.Options{Now: d.Clock.Now})
	require.NoError(d.t, err)
	return rc
}

// sweep sweeps once.
func (d *desk) sweep() reconcile.Report {
	d.t.Helper()
	sweeper, err := reconcile.NewSweeper(d.reconciler(), nil)
	require.NoError(d.t, err)
	report, err := sweeper.Sweep(d.t.Context())
	require.NoError(d.t, err)
	return report
}

// sweeps for some days.
func (d *desk) sweeps() {
	d.t.Helper()
	for range 50 {
		d.Clock.Advance(time.Hour)
		d.sweep()
	}
}

// resolve lets a person say what became of it.
func (d *desk) resolve(key idem.Key, to idem.State) error {
	res := reconcile.Resolution{To: to}
	if to == idem.Failed {
		res.Failure = &idem.Failure{Message: "given up"}
	}
	return d.reconciler().Resolve(d.t.Context(), key.ID(), res, reconcile.Change{Actor: "alice", Reason: "she has looked"})
}

// The operation was not accepted for later yet when its first attempt may have taken effect:
// nobody is told that nothing was executed, and no stricter worker runs it.
func TestAnAcceptanceAfterAnUncertainAttemptStaysUncertain(t *testing.T) {
	op := idem.Operation{Name: "statement", Repeat: idem.Repeatable}
	for name, lapsed := range map[string]bool{"it has failed": false, "its process has died": true} {
		t.Run(name, func(t *testing.T) {
			d, key := deskOn(t, op)
			idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (string, error) {
				return idem.Do(ctx, e, key, 3, func(context.Context, int) (string, error) {
					if lapsed {
						d.Crash()
					}
					return "", errTimeout
				})
			})
			d.Restart()
			d.lapse()
			id := d.accepted(key, 3)
			rec := d.Record(key)
			require.True(t, rec.State == idem.Pending && rec.Uncertain && rec.Unsettled == 1, "%+v", rec)
			require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, op, "acme", id), later.ErrBegun)
			d.sweeps()
			require.Equal(t, idem.Pending, d.status(op, id).RecordState)
			require.False(t, d.Record(key).EscalatedAt.IsZero(), "it is escalated")

			require.ErrorIs(t, d.work(statement, key.ID(), nil).Err, idem.ErrOutcomeUnknown)
			require.Zero(t, d.runs)
			require.Equal(t, idem.Unknown, d.Record(key).State)
			require.NoError(t, d.resolve(key, idem.Released))
			require.NoError(t, d.work(op, key.ID(), nil).Err)
			require.Equal(t, 1, d.runs)
		})
	}
}

// Between a worker's look and its claim the work is cancelled, forgotten and accepted again: the
// worker has the input of what is over, and runs nothing.
func TestAWorkerRunsNoInputOfAnEarlierAcceptance(t *testing.T) {
	d, key, id := deskWith(t, statement)
	d.Faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, d.cancel(id))
		require.NoError(t, d.reconciler().Forget(ctx, key.ID(), reconcile.Change{Actor: "alice", Reason: "a test"}))
		id = d.accepted(key, 3)
		return c.Do(ctx)
	})
	require.ErrorIs(t, d.work(statement, key.ID(), nil).Err, idem.ErrInFlight, "its message comes again")
	require.Zero(t, d.runs)
	require.NoError(t, d.work(statement, key.ID(), nil).Err)
	require.Equal(t, idem.Completed, d.status(statement, id).RecordState)
}

// The message that would bring the next worker is gone: people have the work then, and can end it.
func TestWorkThatNoWorkerComesForAnyMoreIsEndedByPeople(t *testing.T) {
	repeatable := func(w idem.Watch) idem.Operation {
		return idem.Operation{Name: "statement", Repeat: idem.Repeatable, Watch: w}
	}
	for name, c := range map[string]struct {
		op   idem.Operation
		die  bool
		end  error
		left idem.State
	}{
		"its worker has died":                        {repeatable(idem.WatchNotRepeatable), true, nil, idem.InProgress},
		"its worker has died, watched":               {repeatable(idem.WatchAlways), true, nil, idem.InProgress},
		"its worker has died, not noticed elsewhere": {repeatable(idem.WatchNever), true, nil, idem.InProgress},
		"its worker did nothing":                     {statement, false, idem.NotExecuted(errTimeout), idem.Released},
		"its worker failed":                          {repeatable(0), false, errTimeout, idem.Released},
		"nobody knows":                               {statement, false, errTimeout, idem.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			d, key, id := deskWith(t, c.op)
			idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[string], error) {
				return later.Work(ctx, e, c.op, key.ID(), func(context.Context, int) (string, error) {
					if c.die {
						d.Crash()
					}
					return "", c.end
				})
			})
			d.Restart()
			d.sweeps()
			rec := d.Record(key)
			require.Equal(t, c.left, rec.State)
			require.False(t, rec.EscalatedAt.IsZero(), "it is escalated")
			require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, c.op, "acme", id), later.ErrBegun)
			require.NoError(t, d.resolve(key, idem.Failed))
			_, err := later.StatusOf(t.Context(), d.Engine, c.op, "acme", id)
			var failed *idem.RecordedError
			require.ErrorAs(t, err, &failed)
			require.ErrorAs(t, d.work(c.op, key.ID(), nil).Err, &failed, "a message that comes all the same")
			require.Zero(t, d.runs)
		})
	}
}

// Also an operation that may run while the store is down is accepted only if that is recorded.
func TestNothingIsAcceptedThatIsNotRecorded(t *testing.T) {
	op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}
	d, key := deskOn(t, op)
	for _, m := range []idemtest.Method{idemtest.Get, idemtest.Finish} {
		d.Faults.Always(idemtest.LoseRequest, m)
		require.Error(t, d.accept(key, 3).Err, m)
		d.Faults.Heal()
	}
	require.Empty(t, d.Published())
	d.accepted(key, 3)
	d.Faults.Always(idemtest.LoseRequest, idemtest.Acquire)
	require.ErrorIs(t, d.work(op, key.ID(), nil).Err, idem.ErrStoreUnavailable)
	d.Faults.Heal()
	d.Faults.Always(idemtest.Refuse, idemtest.StepResult)
	require.ErrorIs(t, d.work(op, key.ID(), nil).Err, idem.ErrStoreUnavailable)
	require.Zero(t, d.runs, "a worker has no input but the recorded one")
	d.Faults.Heal()
	require.NoError(t, d.work(op, key.ID(), nil).Err)

	key = op.Key("acme", "july")
	require.Panics(t, func() {
		_, _ = later.Accept[string](t.Context(), d.Engine, key, 3, func(context.Context, string) error { panic("no queue") })
	})
	_, err := later.Accept[string](t.Context(), d.Engine, key,
		3, func(context.Context, string) error { return errTimeout })
	require.ErrorIs(t, err, errTimeout)
	require.Nil(t, d.Record(key))
}

// The commit of an acceptance arrives when its caller has been told that nothing is certain, and
// has asked again.
func TestALateAcceptanceIsNone(t *testing.T) {
	d := newDesk(t)
	for name, withdrawn := range map[string]bool{"june": true, "july": false} {
		key := statement.Key("acme", name)
		var late *idemtest.Call
		d.Faults.Next(idemtest.Finish, func(_ context.Context, c *idemtest.Call) error { late = c; return c.Lost() })
		if !withdrawn {
			d.Faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
		}
		require.ErrorIs(t, d.accept(key, 3).Err, idem.ErrNotCommitted)
		d.Restart()
		d.Faults.Heal()
		before := len(d.Published())
		id := d.accepted(key, 3)
		require.Error(t, late.Do(t.Context()))
		require.Len(t, d.Published(), before+1)
		require.Equal(t, id, d.accepted(key, 3))
	}
}

// Workers have come and gone when its caller asks what became of the commit.
func TestAnAcceptanceWhoseReplyIsLostWhileWorkersCome(t *testing.T) {
	for attempts := range 4 {
		d, key := deskOn(t, statement)
		d.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			require.NoError(t, c.Do(ctx))
			for range attempts {
				require.ErrorIs(t, d.tries(statement, key, idem.NotExecuted(errTimeout)), errTimeout)
			}
			return c.Lost()
		})
		id := d.accepted(key, 3)
		d.status(statement, id)
		require.Len(t, d.Published(), 1)
		require.NoError(t, d.work(statement, key.ID(), nil).Err)
	}
}

// The record tells that the work has begun, whatever the mode: nobody is told that nothing was
// executed after an attempt that failed.
func TestAWorkerInAtomicModeClaimsBeforeItRuns(t *testing.T) {
	op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, Mode: idem.Atomic}
	t.Run("cancel", func(t *testing.T) {
		d, key, id := deskWith(t, op)
		require.ErrorIs(t, d.tries(op, key, errTimeout), errTimeout)
		require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, op, "acme", id), later.ErrBegun,
			"204: it was not executed and will not be")
	})
	t.Run("cancel while it runs", func(t *testing.T) {
		d, key, id := deskWith(t, op)
		_, err := later.Work(t.Context(), d.Engine, op, key.ID(), func(context.Context, int) (string, error) {
			require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, op, "acme", id), later.ErrBegun)
			return "", nil
		})
		require.NoError(t, err)
	})
	t.Run("sweep", func(t *testing.T) {
		d, key, id := deskWith(t, op)
		require.ErrorIs(t, d.tries(op, key, errTimeout), errTimeout)
		d.Clock.Advance(time.Hour + time.Second)
		d.sweep()
		_, err := later.StatusOf(t.Context(), d.Engine, op, "acme", id)
		var failed *idem.RecordedError
		if errors.As(err, &failed) {
			require.NotEqual(t, protocol.CodeNotStarted, failed.Code, failed.Message)
		}
	})
}

// Steps of accepted work are kept from worker to worker, undone, and counted as those of any
// other operation.
func TestAWorkersStepsAndAttempts(t *testing.T) {
	op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, MaxAttempts: 3}
	d := newDesk(t)
	reserved, undone := 0, 0
	work := func(key idem.Key, then error) error {
		_, err := later.Work(t.Context(), d.Engine, op, key.ID(), func(ctx context.Context, in int) (string, error) {
			_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { reserved++; return in, nil },
				&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undone++; return nil }})
			if err != nil {
				return "", err
			}
			return "", then
		})
		return err
	}
	june, july := op.Key("acme", "june"), op.Key("acme", "july")
	declined := errors.New("declined")
	id := d.accepted(june, 3)
	for _, err := range []error{errTimeout, errTimeout, idem.Permanent(declined)} {
		require.Error(t, work(june, err))
	}
	require.Equal(t, []int{1, 1}, []int{reserved, undone})
	_, err := later.StatusOf(t.Context(), d.Engine, op, "acme", id)
	require.ErrorContains(t, err, "declined")

	id = d.accepted(july, 3)
	for range 3 {
		require.ErrorIs(t, work(july, errTimeout), errTimeout)
	}
	require.ErrorIs(t, work(july, nil), idem.ErrOutcomeUnknown)
	require.Equal(t, idem.Unknown, d.status(op, id).RecordState)
	d.lapse()
	require.NoError(t, d.resolve(july, idem.Released))
	require.NoError(t, work(july, nil))
	require.Equal(t, 2, reserved)
}

// A large input has the time that a large result has.
func TestALargeInputHasTimeToBeAccepted(t *testing.T) {
	left := func(size int) (left time.Duration) {
		d := newDesk(t)
		d.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			end, ok := ctx.Deadline()
			require.True(t, ok)
			left = time.Until(end)
			return c.Do(ctx)
		})
		_, err := later.Accept[string](t.Context(), d.Engine, statement.Key("acme", "june"), strings.Repeat("x", size), nil)
		require.NoError(t, err)
		return left
	}
	require.Greater(t, left(60<<20), left(10)+30*time.Second)
}

// An operator says of work that waits that it failed. A worker claims it at that moment and ends
// with an unknown outcome: of that attempt nobody has found out anything.
func TestAResolutionOfWhatWaitsSettlesNoLaterAttempt(t *testing.T) {
	d, key := deskOn(t, statement)
	d.accepted(key, 3)
	d.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		require.ErrorIs(t, d.tries(statement, key, errTimeout), errTimeout)
		require.Equal(t, idem.Unknown, d.Record(key).State)
		return c.Do(ctx)
	})
	rc, err := reconcile.New(d.Faults, &reconcile.Options{Now: func() time.Time { return d.Clock.Now().Add(time.Hour) }})
	require.NoError(t, err)
	err = rc.Resolve(t.Context(), key.ID(),
		reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "the queue was deleted, nobody came"}},
		reconcile.Change{Actor: "alice", Reason: "nobody came"})
	require.Equal(t, idem.Unknown, d.Record(key).State,
		"err %v: attempt 1 was resolved by what was said of no attempt", err)
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

// A store that is down is asked once a second, and nothing runs until it answers.
func TestWorkersDoNotAskAStoreThatIsDown(t *testing.T) {
	for _, name := range []string{"Work", "Accept"} {
		t.Run(name, func(t *testing.T) {
			faults := idemtest.NewFaults(memstore.New())
			faults.Always(idemtest.Refuse)
			e, err := idem.New(faults, nil)
			require.NoError(t, err)
			for range 50 {
				require.ErrorIs(t, asks[name](t.Context(), e), idem.ErrStoreUnavailable)
			}
			require.LessOrEqual(t, len(faults.Calls()), 6)
		})
	}
}

// A store that does not answer costs a call its budget, not the whole invocation.
func TestABlackHoleCostsAWorkerItsBudget(t *testing.T) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := idemtest.NewFaults(memstore.New())
				faults.Always(idemtest.BlackHole)
				e, err := idem.New(faults, nil)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a worker's invocation
				defer cancel()
				began := time.Now()
				require.Error(t, ask(ctx, e))
				require.Less(t, time.Since(began), 2*time.Second)
			})
		})
	}
}
