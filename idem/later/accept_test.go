package later_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var statement = idem.Operation{Name: "statement"}

// desk accepts a statement for later, and works it off.
type desk struct {
	*idemtest.Harness
	t    *testing.T
	op   idem.Operation
	key  idem.Key // of acme, for June
	id   string   // of the status, once it is accepted
	runs int
}

func newDesk(t *testing.T, op idem.Operation) *desk {
	return &desk{Harness: idemtest.New(t, nil), t: t, op: op, key: op.Key("acme", "june")}
}

// deskWith is a desk where the work is accepted.
func deskWith(t *testing.T, op idem.Operation) *desk {
	t.Helper()
	d := newDesk(t, op)
	d.accepted(3)
	return d
}

func (d *desk) record() *idem.Record { return d.Record(d.key) }

func (d *desk) accept(in int) idemtest.Delivery[idem.Result[string]] {
	d.t.Helper()
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[string], error) {
		return later.Accept[string](ctx, e, d.key, in, func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "statements", Body: []byte(id)})
			return nil
		})
	})[0]
}

// accepted is the status id of what is accepted for sure.
func (d *desk) accepted(in int) string {
	d.t.Helper()
	got := d.accept(in)
	require.NoError(d.t, got.Err)
	d.id = got.Value.Outcome.StatusID
	require.NotEmpty(d.t, d.id)
	return d.id
}

// work is a worker's delivery of the record with the id.
func (d *desk) workOn(op idem.Operation, id string, before func()) idemtest.Delivery[idem.Result[string]] {
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[string], error) {
		return later.Work(ctx, e, op, id, func(_ context.Context, in int) (string, error) {
			if before != nil {
				before()
			}
			d.runs++
			return fmt.Sprint("lines: ", in), nil
		})
	})[0]
}

// work is that of the accepted one.
func (d *desk) work() error { return d.workOn(d.op, d.key.ID(), nil).Err }

// tries works it off with a handler that ends so.
func (d *desk) tries(end error) error {
	_, err := later.Work(d.t.Context(), d.Engine, d.op, d.key.ID(), func(context.Context, int) (string, error) {
		return "", end
	})
	return err
}

// status is that of what was accepted.
func (d *desk) status() (idem.Outcome, error) {
	return later.StatusOf(d.t.Context(), d.Engine, d.op, "acme", d.id)
}

// is checks the state in it.
func (d *desk) is(want idem.State) idem.Outcome {
	d.t.Helper()
	s, err := d.status()
	require.NoError(d.t, err)
	require.Equal(d.t, want, s.RecordState)
	return s
}

// failed checks that the status, and the errors, are a recorded failure.
func (d *desk) failed(errs ...error) *idem.RecordedError {
	d.t.Helper()
	_, err := d.status()
	var failed *idem.RecordedError
	for _, err := range append(errs, err) {
		require.ErrorAs(d.t, err, &failed)
	}
	return failed
}

func (d *desk) cancel() error {
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (struct{}, error) {
		return struct{}{}, later.Cancel(ctx, e, d.op, "acme", d.id)
	})[0].Err
}

func (d *desk) lapse() { d.Clock.Advance(time.Hour) }

func (d *desk) reconciler(store reconcile.Store, ahead time.Duration) *reconcile.Reconciler {
	d.t.Helper()
	rc, err := reconcile.New(store, &reconcile.Options{Now: func() time.Time { return d.Clock.Now().Add(ahead) }})
	require.NoError(d.t, err)
	return rc
}

// sweep sweeps once.
func (d *desk) sweep() reconcile.Report {
	d.t.Helper()
	sweeper, err := reconcile.NewSweeper(d.reconciler(d.Store, 0), nil)
	require.NoError(d.t, err)
	report, err := sweeper.Sweep(d.t.Context())
	require.NoError(d.t, err)
	return report
}

// escalated sweeps for two days, after which operators have the record.
func (d *desk) escalated() {
	d.t.Helper()
	for range 50 {
		d.Clock.Advance(time.Hour)
		d.sweep()
	}
	require.False(d.t, d.record().EscalatedAt.IsZero(), "it is escalated")
}

// resolve lets a person say what became of it.
func (d *desk) resolve(rc *reconcile.Reconciler, to idem.State) error {
	res := reconcile.Resolution{To: to}
	if to == idem.Failed {
		res.Failure = &idem.Failure{Message: "given up"}
	}
	return rc.Resolve(d.t.Context(), d.key.ID(), res, reconcile.Change{Actor: "alice", Reason: "she has looked"})
}

func TestWorkIsAcceptedOnceAndRunsOnce(t *testing.T) {
	d := newDesk(t, statement)
	first := d.accept(3)
	require.NoError(t, first.Err)
	require.Equal(t, idem.Pending, first.Value.Outcome.RecordState)
	require.False(t, first.Value.Outcome.Executed)
	require.Zero(t, d.record().Attempt, "an acceptance is no attempt")
	id := first.Value.Outcome.StatusID
	require.Equal(t, id, d.accepted(3), "the same request has the same answer")
	require.Len(t, d.Published(), 1)
	require.Equal(t, d.key.ID(), string(d.Published()[0].Body))
	require.ErrorIs(t, d.accept(4).Err, idem.ErrKeyReused)
	_, err := idem.Do(t.Context(), d.Engine, d.key, 3,
		func(context.Context, int) (string, error) { panic("it waits for a worker") })
	require.ErrorIs(t, err, idem.ErrAccepted)

	d.is(idem.Pending)
	got := d.workOn(statement, d.key.ID(), func() {
		d.is(idem.InProgress)
		require.Equal(t, id, d.accepted(3), "while the worker runs too")
	})
	require.NoError(t, got.Err)
	require.Equal(t, "lines: 3", got.Value.Value)
	require.Equal(t, 1, got.Value.Outcome.Attempt)
	for range 2 { // the message comes again
		again := d.workOn(statement, d.key.ID(), nil)
		require.NoError(t, again.Err)
		require.True(t, again.Value.Outcome.Replayed)
		require.Equal(t, "lines: 3", again.Value.Value)
	}
	require.Equal(t, 1, d.runs)
	require.Equal(t, `"lines: 3"`, string(d.is(idem.Completed).Body))
	done := d.accept(3)
	require.NoError(t, done.Err)
	require.Equal(t, "lines: 3", done.Value.Value)
	require.Empty(t, d.record().Steps, "the input goes with the outcome")

	d.Clock.Advance(48 * time.Hour)
	_, err = d.status()
	require.ErrorIs(t, err, later.ErrExpired)
	require.ErrorIs(t, d.work(), later.ErrNotAccepted)
	require.NotEqual(t, id, d.accepted(5))
}

// Who does not own the work, or guesses, learns nothing: not even that there is any.
func TestAStatusIsItsTenantsAlone(t *testing.T) {
	d := deskWith(t, statement)
	_, err := idem.Do(t.Context(), d.Engine, statement.Key("acme", "july"), 3,
		func(context.Context, int) (string, error) { return "", nil })
	require.NoError(t, err)
	guess := []byte(d.id)
	guess[len(guess)-3] ^= 1
	for name, ask := range map[string]struct {
		op         idem.Operation
		tenant, id string
	}{
		"another tenant":    {statement, "umbrella", d.id},
		"no tenant":         {statement, idem.SingleTenant, d.id},
		"another operation": {idem.Operation{Name: "refund"}, "acme", d.id},
		"a guess":           {statement, "acme", string(guess)},
		"nothing":           {statement, "acme", strings.Repeat("A", len(d.id))},
		"no ticket":         {statement, "acme", d.id[:43]},
		"no id":             {statement, "acme", "../june"},
		"empty":             {statement, "acme", ""},
	} {
		_, err := later.StatusOf(t.Context(), d.Engine, ask.op, ask.tenant, ask.id)
		require.Equal(t, later.ErrNotAccepted, err, name)
	}
}

// What hands the work over fails, or the input is none that JSON could keep: nothing is recorded, and the
// request can be sent again.
func TestWorkThatIsNotHandedOverIsNotAccepted(t *testing.T) {
	errQueue := errors.New("no queue")
	for _, op := range []idem.Operation{statement, failOpen} {
		d := newDesk(t, op)
		for _, err := range []error{errQueue, idem.Permanent(errQueue), idem.NotExecuted(errQueue)} {
			_, got := later.Accept[string](t.Context(), d.Engine, d.key, 3, func(context.Context, string) error { return err })
			require.ErrorIs(t, got, errQueue)
			require.Nil(t, d.record())
		}
		panics := func(context.Context, string) error { panic("no queue") }
		require.Panics(t, func() { _, _ = later.Accept[string](t.Context(), d.Engine, d.key, 3, panics) })
		require.Nil(t, d.record())
		_, err := d.Engine.Execute(t.Context(), idem.Call{Key: d.key, Later: &protocol.Later{StartWithin: time.Nanosecond}})
		require.Error(t, err)
		_, err = later.Accept[string](t.Context(), d.Engine, d.key, "caf\xe9", nil)
		require.ErrorAs(t, err, new(*idem.ConfigError), "the worker would get another string")
		require.Nil(t, d.record())
		d.accepted(4) // no input has the key yet
	}
}

// A worker that is safe to run again leaves the input, and the status waits.
func TestAWorkerThatDidNothingLeavesTheWorkToTheNextOne(t *testing.T) {
	d := deskWith(t, statement)
	id, busy := d.id, errors.New("the printer is busy")
	require.ErrorIs(t, d.tries(idem.NotExecuted(busy)), busy)
	require.True(t, d.record().Open(), "it is in the index until there is an outcome")
	require.Equal(t, id, d.accepted(3))
	_, err := later.Work(t.Context(), d.Engine, statement, d.key.ID(),
		func(context.Context, []string) (string, error) { panic("it does not fit") })
	require.ErrorContains(t, err, "does not fit")
	require.NoError(t, d.work())
	require.Equal(t, 1, d.runs)
}

func TestAWorkersIDIsChecked(t *testing.T) {
	d := newDesk(t, statement)
	for _, id := range []string{"", "acme#statement", "acme#statement#short", "acme#%zz#" + strings.Repeat("A", 43),
		d.key.ID() + "#more", idem.Operation{Name: "refund"}.Key("acme", "x").ID()} {
		require.ErrorIs(t, d.workOn(statement, id, nil).Err, idem.ErrKeyInvalid, id)
	}
	d.key = statement.Key(idem.SingleTenant, "x/ü#")
	require.ErrorIs(t, d.work(), later.ErrNotAccepted)
	d.accepted(3)
	require.NoError(t, d.work())
	s, err := later.StatusOf(t.Context(), d.Engine, statement, idem.SingleTenant, d.id)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.RecordState)
}

// A sweep ends what no worker has come for, once its time is over and not before, and so may an operator.
func TestASweepEndsWorkThatNoWorkerHasComeFor(t *testing.T) {
	for name, c := range map[string]struct {
		waits time.Duration
		end   func(d *desk) error // by an operator
		code  string
	}{
		"waits":               {waits: 59 * time.Minute},
		"has waited too long": {waits: time.Hour + time.Second, code: protocol.CodeNotStarted},
		"is ended":            {end: func(d *desk) error { return d.resolve(d.reconciler(d.Store, 0), idem.Failed) }},
	} {
		t.Run(name, func(t *testing.T) {
			d := deskWith(t, statement)
			d.Clock.Advance(c.waits)
			require.Equal(t, c.code != "", d.sweep().NotStarted == 1)
			if c.end != nil {
				require.NoError(t, c.end(d))
			} else if c.code == "" {
				d.is(idem.Pending)
				require.NoError(t, d.work())
				return
			}
			// A worker that comes late does not run it.
			require.Equal(t, c.code, d.failed(d.work(), d.accept(3).Err).Code)
			require.Zero(t, d.runs)
		})
	}
}

func TestWorkIsCancelledUntilAWorkerHasBegun(t *testing.T) {
	d := deskWith(t, statement)
	require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, statement, "umbrella", d.id), later.ErrNotAccepted)
	for range 2 {
		require.NoError(t, d.cancel())
	}
	require.Equal(t, protocol.CodeCancelled, d.failed(d.work(), d.accept(3).Err).Code)
	require.ErrorIs(t, d.accept(4).Err, idem.ErrKeyReused)
	require.Zero(t, d.runs)
	require.Empty(t, d.record().Steps, "the input goes with it")
	changes, err := d.Store.AuditOf(t.Context(), d.key.ID(), "")
	require.NoError(t, err)
	require.Len(t, changes.Entries, 1)
	require.Equal(t, idem.Failed, changes.Entries[0].To)
	require.Equal(t, "the client", changes.Entries[0].Who)

	for name, end := range map[string]error{"done": nil, "failed": idem.Permanent(errors.New("no")),
		"unknown": errors.New("time-out"), "not executed": idem.NotExecuted(errors.New("busy"))} {
		d := deskWith(t, statement)
		_, _ = later.Work(t.Context(), d.Engine, statement, d.key.ID(), func(context.Context, int) (string, error) {
			require.ErrorIs(t, d.cancel(), later.ErrBegun)
			return "", end
		})
		require.ErrorIs(t, d.cancel(), later.ErrBegun, name)
	}
}

// The reply of the cancellation is lost, or the process dies: it holds as a whole or not at all,
// and can be made again.
func TestACancellationThatIsCutOff(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for _, landed := range []bool{false, true} {
			d := deskWith(t, statement)
			d.CrashAfter(n, landed)
			_ = d.cancel()
			d.Restart()
			state := d.record().State
			require.Contains(t, []idem.State{idem.Pending, idem.Failed}, state)
			if n == 2 && landed {
				require.Equal(t, idem.Failed, state)
			}
			require.NoError(t, d.cancel())
			require.Error(t, d.work())
			require.Zero(t, d.runs)
		}
	}
}

// One of the two has it, whatever comes first.
func TestACancellationOrAWorker(t *testing.T) {
	for range 20 {
		d := deskWith(t, statement)
		cancelled := make(chan error)
		go func() { cancelled <- later.Cancel(context.Background(), d.Engine, statement, "acme", d.id) }()
		worked := d.work()
		if err := <-cancelled; err != nil {
			require.ErrorIs(t, err, later.ErrBegun)
			require.NoError(t, worked)
			require.Equal(t, 1, d.runs)
		} else {
			require.Error(t, worked)
			require.Zero(t, d.runs)
		}
	}
}

// A handler's store need not keep changes: its client cancels all the same.
func TestWorkIsCancelledInAStoreThatKeepsNoChanges(t *testing.T) {
	d := deskWith(t, statement)
	e, err := idem.New(plain{d.Store}, &idem.Options{Now: d.Clock.Now})
	require.NoError(t, err)
	require.NoError(t, later.Cancel(t.Context(), e, statement, "acme", d.id))
	require.Equal(t, protocol.CodeCancelled, d.record().Failure.Code)
}

// plain is a store that is no more than that.
type plain struct{ idem.Store }

func (p plain) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if s.Audit != nil {
		return errors.ErrUnsupported
	}
	return p.Store.Settle(ctx, now, s)
}

// Work waits for as long as the call that has accepted it says.
func TestWorkWaitsForAsLongAsItsCallSays(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{0: later.DefaultStartWithin,
		24 * time.Hour: 24 * time.Hour} {
		d := newDesk(t, statement)
		call := idem.Call{Key: d.key, Fingerprint: fingerprint.Bytes(nil)}
		_, err := d.Engine.Execute(t.Context(),
			later.Call(call, protocol.Later{Input: []byte("3"), StartWithin: within}, nil))
		require.NoError(t, err)
		require.WithinDuration(t, d.record().CreatedAt.Add(want), d.record().Due, time.Second)
	}
}

// The message of work that is cancelled may still come when a short retention is over.
func TestACancellationStaysForAMinuteAtLeast(t *testing.T) {
	d := deskWith(t, idem.Operation{Name: statement.Name, Retention: time.Second})
	require.NoError(t, d.cancel())
	require.GreaterOrEqual(t, d.record().ExpiresAt.Sub(d.record().UpdatedAt), time.Minute)
}
