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
)

var statement = idem.Operation{Name: "statement"}

// desk accepts statements for later, and works them off.
type desk struct {
	*idemtest.Harness
	t    *testing.T
	runs int
}

func newDesk(t *testing.T) *desk { return &desk{Harness: idemtest.New(t, nil), t: t} }

// deskOn is a desk, and the key that its test is about.
func deskOn(t *testing.T, op idem.Operation) (*desk, idem.Key) {
	t.Helper()
	return newDesk(t), op.Key("acme", "june")
}

// deskWith is deskOn where the work is accepted, and has a status id.
func deskWith(t *testing.T, op idem.Operation) (d *desk, key idem.Key, id string) {
	t.Helper()
	d, key = deskOn(t, op)
	return d, key, d.accepted(key, 3)
}

func (d *desk) accept(key idem.Key, in int) idemtest.Delivery[idem.Result[string]] {
	d.t.Helper()
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[string], error) {
		return later.Accept[string](ctx, e, key, in, func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "statements", Body: []byte(id)})
			return nil
		})
	})[0]
}

// accepted is the status id of what is accepted for sure.
func (d *desk) accepted(key idem.Key, in int) string {
	d.t.Helper()
	got := d.accept(key, in)
	require.NoError(d.t, got.Err)
	require.NotEmpty(d.t, got.Value.Outcome.StatusID)
	return got.Value.Outcome.StatusID
}

func (d *desk) work(op idem.Operation, id string, before func()) idemtest.Delivery[idem.Result[string]] {
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

// tries works the key off with a handler that ends so.
func (d *desk) tries(op idem.Operation, key idem.Key, end error) error {
	_, err := later.Work(d.t.Context(), d.Engine, op, key.ID(), func(context.Context, int) (string, error) {
		return "", end
	})
	return err
}

// status is that of what was accepted for acme.
func (d *desk) status(op idem.Operation, id string) idem.Outcome {
	d.t.Helper()
	s, err := later.StatusOf(d.t.Context(), d.Engine, op, "acme", id)
	require.NoError(d.t, err)
	return s
}

func (d *desk) lapse() { d.Clock.Advance(time.Hour) }

func TestWorkIsAcceptedOnceAndRunsOnce(t *testing.T) {
	d, key := deskOn(t, statement)
	first := d.accept(key, 3)
	require.NoError(t, first.Err)
	require.Equal(t, idem.Pending, first.Value.Outcome.RecordState)
	require.False(t, first.Value.Outcome.Executed)
	id := first.Value.Outcome.StatusID
	require.Equal(t, id, d.accepted(key, 3), "the same request has the same answer")
	require.Len(t, d.Published(), 1)
	require.Equal(t, key.ID(), string(d.Published()[0].Body))
	require.ErrorIs(t, d.accept(key, 4).Err, idem.ErrKeyReused)
	_, err := idem.Do(t.Context(), d.Engine, key, 3,
		func(context.Context, int) (string, error) { panic("it waits for a worker") })
	require.ErrorIs(t, err, idem.ErrAccepted)

	require.Equal(t, idem.Pending, d.status(statement, id).RecordState)
	got := d.work(statement, key.ID(), func() {
		require.Equal(t, idem.InProgress, d.status(statement, id).RecordState)
		require.Equal(t, id, d.accepted(key, 3), "while the worker runs too")
	})
	require.NoError(t, got.Err)
	require.Equal(t, "lines: 3", got.Value.Value)
	for range 2 { // the message comes again
		again := d.work(statement, key.ID(), nil)
		require.NoError(t, again.Err)
		require.True(t, again.Value.Outcome.Replayed)
		require.Equal(t, "lines: 3", again.Value.Value)
	}
	require.Equal(t, 1, d.runs)
	require.Equal(t, idem.Completed, d.status(statement, id).RecordState)
	require.Equal(t, `"lines: 3"`, string(d.status(statement, id).Body))
	done := d.accept(key, 3)
	require.NoError(t, done.Err)
	require.Equal(t, "lines: 3", done.Value.Value)
	require.Empty(t, d.Record(key).Steps, "the input goes with the outcome")

	d.Clock.Advance(48 * time.Hour)
	_, err = later.StatusOf(t.Context(), d.Engine, statement, "acme", id)
	require.ErrorIs(t, err, later.ErrExpired)
	require.ErrorIs(t, d.work(statement, key.ID(), nil).Err, later.ErrNotAccepted)
	require.NotEqual(t, id, d.accepted(key, 5))
}

// Who does not own the work, or guesses, learns nothing: not even that there is any.
func TestAStatusIsItsTenantsAlone(t *testing.T) {
	d := newDesk(t)
	id := d.accepted(statement.Key("acme", "june"), 3)
	_, err := idem.Do(t.Context(), d.Engine, statement.Key("acme", "july"), 3,
		func(context.Context, int) (string, error) { return "", nil })
	require.NoError(t, err)
	guess := []byte(id)
	guess[len(guess)-3] ^= 1
	for name, ask := range map[string]struct {
		op         idem.Operation
		tenant, id string
	}{
		"another tenant":    {statement, "umbrella", id},
		"no tenant":         {statement, idem.SingleTenant, id},
		"another operation": {idem.Operation{Name: "refund"}, "acme", id},
		"a guess":           {statement, "acme", string(guess)},
		"nothing":           {statement, "acme", strings.Repeat("A", len(id))},
		"no ticket":         {statement, "acme", id[:43]},
		"no id":             {statement, "acme", "../june"},
		"empty":             {statement, "acme", ""},
	} {
		_, err := later.StatusOf(t.Context(), d.Engine, ask.op, ask.tenant, ask.id)
		require.Equal(t, later.ErrNotAccepted, err, name)
	}
}

// What hands the work over fails: nothing is recorded, and the request can be sent again.
func TestWorkThatIsNotHandedOverIsNotAccepted(t *testing.T) {
	d := newDesk(t)
	key, errQueue := statement.Key("acme", "june"), errors.New("no queue")
	for _, err := range []error{errQueue, idem.Permanent(errQueue), idem.NotExecuted(errQueue)} {
		_, got := later.Accept[string](t.Context(), d.Engine, key, 3, func(context.Context, string) error { return err })
		require.ErrorIs(t, got, errQueue)
		require.Nil(t, d.Record(key))
	}
	require.Panics(t, func() {
		_, _ = later.Accept[string](t.Context(), d.Engine, key, 3, func(context.Context, string) error { panic("no queue") })
	})
	require.Nil(t, d.Record(key))
	_, err := d.Engine.Execute(t.Context(), idem.Call{Key: key, Later: &protocol.Later{StartWithin: time.Nanosecond}})
	require.Error(t, err)
	d.accepted(key, 4) // no input has the key yet
}

// A worker that is safe to run again leaves the input, and the status waits.
func TestAWorkerThatDidNothingLeavesTheWorkToTheNextOne(t *testing.T) {
	d, key, id := deskWith(t, statement)
	busy := errors.New("the printer is busy")
	require.ErrorIs(t, d.tries(statement, key, idem.NotExecuted(busy)), busy)
	require.True(t, d.Record(key).Open(), "it is in the index until there is an outcome")
	require.Equal(t, id, d.accepted(key, 3))
	_, err := later.Work(t.Context(), d.Engine, statement, key.ID(),
		func(context.Context, []string) (string, error) { panic("it does not fit") })
	require.ErrorContains(t, err, "does not fit")
	require.NoError(t, d.work(statement, key.ID(), nil).Err)
	require.Equal(t, 1, d.runs)
}

// Nobody has come for it: it fails, unless a worker was quicker.
func TestAcceptedWorkIsResolvedWhileItWaits(t *testing.T) {
	d, key, id := deskWith(t, statement)
	require.NoError(t, d.resolve(key, idem.Failed))
	_, err := later.StatusOf(t.Context(), d.Engine, statement, "acme", id)
	var recorded *idem.RecordedError
	require.ErrorAs(t, err, &recorded)
	require.ErrorAs(t, d.work(statement, key.ID(), nil).Err, &recorded)
	require.Zero(t, d.runs)
}

func TestAWorkersIDIsChecked(t *testing.T) {
	d := newDesk(t)
	for _, id := range []string{"", "acme#statement", "acme#statement#short", "acme#%zz#" + strings.Repeat("A", 43),
		statement.Key("acme", "x").ID() + "#more"} {
		require.ErrorIs(t, d.work(statement, id, nil).Err, idem.ErrKeyInvalid, id)
	}
	require.ErrorIs(t, d.work(statement, idem.Operation{Name: "refund"}.Key("acme", "x").ID(), nil).Err,
		idem.ErrKeyInvalid)
	none := statement.Key(idem.SingleTenant, "x/ü#")
	require.ErrorIs(t, d.work(statement, none.ID(), nil).Err, later.ErrNotAccepted)
	id := d.accepted(none, 3)
	require.NoError(t, d.work(statement, none.ID(), nil).Err)
	s, err := later.StatusOf(t.Context(), d.Engine, statement, idem.SingleTenant, id)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.RecordState)
}

// A sweep ends what no worker has come for, once its time is over and not before.
func TestASweepEndsWorkThatNobodyHasComeFor(t *testing.T) {
	for name, abandoned := range map[string]bool{"waits": false, "has waited too long": true} {
		t.Run(name, func(t *testing.T) {
			d, key, id := deskWith(t, statement)
			if abandoned {
				d.Clock.Advance(time.Hour + time.Second)
			} else {
				d.Clock.Advance(59 * time.Minute)
			}
			require.Equal(t, abandoned, d.sweep().NotStarted == 1)
			_, err := later.StatusOf(t.Context(), d.Engine, statement, "acme", id)
			if !abandoned {
				require.NoError(t, err)
				require.NoError(t, d.work(statement, key.ID(), nil).Err)
				return
			}
			var failed *idem.RecordedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, protocol.CodeNotStarted, failed.Code)
			require.ErrorAs(t, d.work(statement, key.ID(), nil).Err, &failed, "a worker that comes late does not run it")
			require.ErrorAs(t, d.accept(key, 3).Err, &failed)
			require.Zero(t, d.runs)
		})
	}
}

// JSON cannot keep a string that is not UTF-8: the worker would get another one.
func TestAStringThatIsNotUTF8IsNotAccepted(t *testing.T) {
	d, key := deskOn(t, statement)
	_, err := later.Accept[string](t.Context(), d.Engine, key, "caf\xe9", nil)
	var mistake *idem.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.Nil(t, d.Record(key))
}

func (d *desk) cancel(id string) error {
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (struct{}, error) {
		return struct{}{}, later.Cancel(ctx, e, statement, "acme", id)
	})[0].Err
}

func TestWorkIsCancelledUntilAWorkerHasBegun(t *testing.T) {
	d, key, id := deskWith(t, statement)
	require.ErrorIs(t, later.Cancel(t.Context(), d.Engine, statement, "umbrella", id), later.ErrNotAccepted)
	for range 2 {
		require.NoError(t, d.cancel(id))
	}
	var failed *idem.RecordedError
	for _, err := range []error{d.work(statement, key.ID(), nil).Err, d.accept(key, 3).Err} {
		require.ErrorAs(t, err, &failed)
		require.Equal(t, protocol.CodeCancelled, failed.Code)
	}
	require.ErrorIs(t, d.accept(key, 4).Err, idem.ErrKeyReused)
	require.Zero(t, d.runs)
	require.Empty(t, d.Record(key).Steps, "the input goes with it")
	changes, err := d.Store.AuditOf(t.Context(), key.ID(), "")
	require.NoError(t, err)
	require.Len(t, changes.Entries, 1)
	require.Equal(t, idem.Failed, changes.Entries[0].To)
	require.Equal(t, "the client", changes.Entries[0].Who)

	for name, end := range map[string]error{"done": nil, "failed": idem.Permanent(errors.New("no")),
		"unknown": errors.New("time-out"), "not executed": idem.NotExecuted(errors.New("busy"))} {
		key := statement.Key("acme", name)
		id := d.accepted(key, 3)
		_, _ = later.Work(t.Context(), d.Engine, statement, key.ID(), func(context.Context, int) (string, error) {
			require.ErrorIs(t, d.cancel(id), later.ErrBegun)
			return "", end
		})
		require.ErrorIs(t, d.cancel(id), later.ErrBegun, name)
	}
}

// The reply of the cancellation is lost, or the process dies: it holds as a whole or not at all,
// and can be made again.
func TestACancellationThatIsCutOff(t *testing.T) {
	for n := 1; n <= 2; n++ {
		for _, landed := range []bool{false, true} {
			d, key, id := deskWith(t, statement)
			d.CrashAfter(n, landed)
			_ = d.cancel(id)
			d.Restart()
			state := d.Record(key).State
			require.Contains(t, []idem.State{idem.Pending, idem.Failed}, state)
			if n == 2 && landed {
				require.Equal(t, idem.Failed, state)
			}
			require.NoError(t, d.cancel(id))
			require.Error(t, d.work(statement, key.ID(), nil).Err)
			require.Zero(t, d.runs)
		}
	}
}

// One of the two has it, whatever comes first.
func TestACancellationOrAWorker(t *testing.T) {
	for range 20 {
		d, key, id := deskWith(t, statement)
		cancelled := make(chan error)
		go func() { cancelled <- later.Cancel(context.Background(), d.Engine, statement, "acme", id) }()
		worked := d.work(statement, key.ID(), nil).Err
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
	d, key, id := deskWith(t, statement)
	e, err := idem.New(plain{d.Store}, &idem.Options{Now: d.Clock.Now})
	require.NoError(t, err)
	require.NoError(t, later.Cancel(t.Context(), e, statement, "acme", id))
	require.Equal(t, protocol.CodeCancelled, d.Record(key).Failure.Code)
}

// plain is a store that is no more than that.
type plain struct{ idem.Store }

func (p plain) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if s.Audit != nil {
		return errors.ErrUnsupported
	}
	return p.Store.Settle(ctx, now, s)
}

// Work that waits has had no attempt: its worker's is the first.
func TestAnAcceptanceIsNoAttempt(t *testing.T) {
	d := newDesk(t)
	key := statement.Key("acme", "june")
	d.accepted(key, 3)
	require.Zero(t, d.Record(key).Attempt)
	require.Equal(t, 1, d.work(statement, key.ID(), nil).Value.Outcome.Attempt)
}

// Work waits for as long as the call that has accepted it says.
func TestWorkWaitsForAsLongAsItsCallSays(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{0: later.DefaultStartWithin,
		24 * time.Hour: 24 * time.Hour} {
		d := newDesk(t)
		key := statement.Key("acme", "june")
		call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil)}
		_, err := d.Engine.Execute(t.Context(),
			later.Call(call, protocol.Later{Input: []byte("3"), StartWithin: within}, nil))
		require.NoError(t, err)
		rec := d.Record(key)
		require.WithinDuration(t, rec.CreatedAt.Add(want), rec.Due, time.Second)
	}
}

// The message of work that is cancelled may still come when a short retention is over.
func TestACancellationStaysForAMinuteAtLeast(t *testing.T) {
	d := newDesk(t)
	op := idem.Operation{Name: statement.Name, Retention: time.Second}
	key := op.Key("acme", "june")
	id := d.accepted(key, 3)
	require.NoError(t, d.cancel(id))
	rec := d.Record(key)
	require.GreaterOrEqual(t, rec.ExpiresAt.Sub(rec.UpdatedAt), time.Minute)
}
