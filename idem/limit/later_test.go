package limit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

func (p *process) accept(op idem.Operation, value string) (idem.Result[string], error) {
	return later.Accept[string](context.Background(), p.engine, op.Key("acme", value), value, nil)
}

func (p *process) work(op idem.Operation, value string, fail error) error {
	_, err := later.Work(context.Background(), p.engine, op, op.Key("acme", value).ID(), func(context.Context, string) (string, error) { return "done", fail })
	return err
}

// What is accepted for later is open until it has its outcome.
func TestAcceptedWorkIsOpenUntilItHasItsOutcome(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p := r.process()
	first, err := p.accept(op, "a")
	require.NoError(t, err)
	require.Equal(t, idem.Pending, first.Outcome.RecordState)
	_, err = p.accept(op, "b")
	require.ErrorIs(t, err, idem.ErrTooMany)
	require.Equal(t, idem.Absent, r.state(op, "b"))
	again, err := p.accept(op, "a")
	require.NoError(t, err, "a repeat is known")
	require.Equal(t, first.Outcome.StatusID, again.Outcome.StatusID)
	r.clock.Advance(time.Minute)
	_, err = r.process().accept(op, "b")
	require.ErrorIs(t, err, idem.ErrTooMany, "however long it waits")

	require.Error(t, p.work(op, "a", errors.New("later")))
	require.Equal(t, idem.Released, r.state(op, "a"))
	held, err := p.accept(op, "held")
	require.NoError(t, err, "what was released is not open")
	require.ErrorIs(t, p.work(op, "a", nil), idem.ErrTooMany, "until another worker finds room")
	require.Equal(t, idem.Pending, held.Outcome.RecordState)
	require.NoError(t, p.work(op, "held", nil))
	require.NoError(t, p.work(op, "a", nil))
	require.True(t, r.free(op))
	replayed, err := p.accept(op, "a")
	require.NoError(t, err)
	require.Equal(t, "done", replayed.Value)

	second, err := p.accept(op, "b")
	require.NoError(t, err)
	require.NoError(t, later.Cancel(t.Context(), p.engine, op, "acme", second.Outcome.StatusID))
	r.clock.Advance(time.Minute)
	require.NoError(t, p.later(op, "c", 1), "what was cancelled has no place when it is needed")
}

// What is cancelled has no place any more, at once.
func TestACancellationGivesThePlaceBack(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p := r.process()
	for _, value := range []string{"a", "b", "c"} {
		got, err := p.accept(op, value)
		require.NoError(t, err)
		require.NoError(t, later.Cancel(t.Context(), p.engine, op, "acme", got.Outcome.StatusID))
	}
	require.NoError(t, p.do(op, "d", nil))
}

// stopped is a store of a process that is stopped once its settlement has landed.
type stopped struct{ *memstore.Store }

func (s stopped) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	err := s.Store.Settle(ctx, now, w)
	time.Sleep(time.Hour)
	return err
}

// A process that was stopped after its cancellation leaves the place alone: another acceptance of
// the key may have it.
func TestALateCancellationGivesNoPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		op := idem.Operation{Name: "export", Retention: time.Minute, Repeat: idem.Repeatable, Limit: limit.PerTenant{Open: 1}}
		slow, err := idem.New(stopped{store}, nil)
		require.NoError(t, err)
		quick, err := idem.New(store, nil)
		require.NoError(t, err)
		first, err := later.Accept[string](t.Context(), slow, op.Key("acme", "a"), "a", nil)
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- later.Cancel(context.Background(), slow, op, "acme", first.Outcome.StatusID) }()
		time.Sleep(30 * time.Minute)
		again, err := later.Accept[string](t.Context(), quick, op.Key("acme", "a"), "a", nil)
		require.NoError(t, err)
		require.Equal(t, idem.Pending, again.Outcome.RecordState)
		require.NoError(t, <-done)
		_, err = later.Accept[string](t.Context(), quick, op.Key("acme", "b"), "b", nil)
		require.ErrorIs(t, err, idem.ErrTooMany)
	})
}

// A process takes a place for what was released, and dies before its claim. Any call that finds the
// limit full finds that place, whether its key was accepted for later or not.
func TestAPlaceThatNobodyClaimsForComesBackToEverybody(t *testing.T) {
	for _, left := range []string{"accepted", "called"} {
		for _, looks := range []string{"accepts", "calls", "works"} {
			t.Run(left+", who looks "+looks, func(t *testing.T) {
				r := newRig(t, 1)
				op := r.of(idem.Repeatable)
				p, q := r.process(), r.process()
				if looks == "works" {
					_, err := q.accept(op, "b")
					require.NoError(t, err)
					require.Error(t, q.work(op, "b", errors.New("later")))
				}
				run := func(fail error) error { return p.do(op, "a", func(context.Context) error { return fail }) }
				if left == "accepted" {
					_, err := p.accept(op, "a")
					require.NoError(t, err)
					run = func(fail error) error { return p.work(op, "a", fail) }
				}
				require.Error(t, run(errors.New("later")))
				p.faults.Next(idemtest.Acquire, idemtest.Refuse)
				require.ErrorIs(t, run(nil), idem.ErrStoreUnavailable)
				require.Equal(t, idem.Released, r.state(op, "a"))
				require.False(t, r.free(op))

				r.clock.Advance(time.Minute)
				var err error
				switch looks {
				case "accepts":
					_, err = q.accept(op, "b")
				case "calls":
					err = q.do(op, "b", nil)
				case "works":
					err = q.work(op, "b", nil)
				}
				require.NoError(t, err, "nothing is open")
			})
		}
	}
}

// A process dies at any call while it accepts: what is not accepted has no place for long.
func TestTheCountComesBackAfterADeathWhileAccepting(t *testing.T) {
	for _, fault := range []idemtest.Fault{idemtest.LoseReply, idemtest.LoseRequest} {
		for _, m := range []idemtest.Method{idemtest.TakePlace, idemtest.Finish} {
			r := newRig(t, 1)
			op := r.of(idem.Repeatable)
			p := r.process()
			p.faults.Always(idemtest.LoseRequest, idemtest.Finish, idemtest.Withdraw)
			p.faults.Always(fault, m)
			_, err := p.accept(op, "a")
			q := r.process()
			r.clock.Advance(time.Minute)
			require.Equal(t, err == nil, r.state(op, "a") == idem.Pending)
			if err == nil {
				_, err = q.accept(op, "b")
				require.ErrorIs(t, err, idem.ErrTooMany)
				require.NoError(t, q.work(op, "a", nil))
			}
			_, err = q.accept(op, "b")
			require.NoError(t, err, "%s", m)
			require.Equal(t, idem.Pending, r.state(op, "b"))
		}
	}
}

// An acceptance that arrives once its place is given away opens nothing.
func TestAnAcceptanceThatArrivesLateOpensNothing(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p, q := r.process(), r.process()
	var commit *idemtest.Call
	p.faults.Next(idemtest.Finish, idemtest.Hold(&commit))
	p.faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
	_, err := p.accept(op, "a")
	require.Error(t, err)
	r.clock.Advance(time.Minute)
	_, err = q.accept(op, "b")
	require.NoError(t, err)
	var conflict *protocol.ConflictError
	require.ErrorAs(t, commit.Do(context.Background()), &conflict)
}
