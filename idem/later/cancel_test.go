package later_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
)

func (d *desk) cancel(id string) error {
	return idemtest.Deliver(d.Harness, 1, func(ctx context.Context, e *idem.Engine) (struct{}, error) {
		return struct{}{}, later.Cancel(ctx, e, statement, "acme", id)
	})[0].Err
}

func TestWorkIsCancelledUntilAWorkerHasBegun(t *testing.T) {
	d := newDesk(t)
	key := statement.Key("acme", "june")
	id := d.accepted(key, 3)
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

	for name, end := range map[string]error{"done": nil, "failed": idem.Permanent(errors.New("no")), "unknown": errors.New("time-out"), "not executed": idem.NotExecuted(errors.New("busy"))} {
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
			d := newDesk(t)
			key := statement.Key("acme", "june")
			id := d.accepted(key, 3)
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
		d := newDesk(t)
		key := statement.Key("acme", "june")
		id := d.accepted(key, 3)
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
	d := newDesk(t)
	key := statement.Key("acme", "june")
	id := d.accepted(key, 3)
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
