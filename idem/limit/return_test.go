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
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Two duplicates of one process lose the replies of their claims while another process has the
// claim. The first withdrawal finds the record that keeps both out, so that the second one writes
// nothing: the place of that record stays.
func TestAClaimThatIsKeptOutLeavesThePlace(t *testing.T) {
	for name, queued := range map[string]bool{"at once": false, "from the queue": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			p, q := r.process(), r.process()
			op := r.of(idem.Repeatable)
			arrived, lose := make(chan struct{}, 2), make(chan struct{}, 2)
			p.faults.Always(func(_ context.Context, c *idemtest.Call) error {
				arrived <- struct{}{}
				<-lose
				return c.Lost()
			}, idemtest.Acquire)
			if queued {
				p.faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
			}
			ended := make(chan error, 2)
			for range 2 {
				go func() { ended <- p.do(op, "a", nil) }()
			}
			<-arrived
			<-arrived
			running, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				done <- q.do(op, "a", func(context.Context) error {
					close(running)
					<-end
					return nil
				})
			}()
			<-running
			for range 2 { // one after the other
				lose <- struct{}{}
				require.ErrorIs(t, <-ended, idem.ErrStoreUnavailable)
			}
			p.faults.Heal()
			require.NoError(t, p.engine.Flush(t.Context()))
			require.Equal(t, idem.InProgress, r.state(op, "a"))
			full := r.process().do(op, "b", nil)
			close(end)
			require.NoError(t, <-done)
			require.ErrorIs(t, full, idem.ErrTooMany)
			if queued {
				require.Equal(t, 1, p.heard(notice.OutcomeDropped), "the one that has found the record")
				require.Equal(t, 1, p.heard(notice.OutcomeLanded), "the one that is kept out loses nothing")
			} else {
				require.Equal(t, 2, p.heard(notice.Withdrawn))
			}
			require.True(t, r.free(op))
		})
	}
}

func (p *process) heard(kind notice.Kind) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		if k == kind {
			n++
		}
	}
	return n
}

// A call answers before its process is killed, also where its place cannot be given back, and does
// not try if too little time is left.
func TestGivingAPlaceBackDoesNotOutliveTheProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		finish time.Duration
		calls  []idemtest.Method
	}{
		"time is left":       {0, []idemtest.Method{"Get", "TakePlace", "Acquire", "Finish", "ReturnPlace"}},
		"too little is left": {449 * time.Millisecond, []idemtest.Method{"Get", "TakePlace", "Acquire", "Finish"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				p := r.process()
				op := r.of(idem.Repeatable)
				p.faults.Always(idemtest.BlackHole, idemtest.ReturnPlace)
				p.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
					time.Sleep(tc.finish)
					return c.Do(ctx)
				})
				kill := time.Now().Add(2 * time.Second)
				_, err := idem.Do(idem.WithKillTime(t.Context(), kill), p.engine, op.Key("acme", "a"), "a", func(ctx context.Context, _ string) (string, error) {
					<-ctx.Done() // the guard
					return "done", nil
				})
				require.NoError(t, err)
				require.Less(t, time.Now(), kill)
				require.Equal(t, tc.calls, p.faults.Calls())
				r.clock.Advance(time.Minute)
				require.NoError(t, r.process().do(op, "b", nil), "who needs the place finds it")
			})
		})
	}
}

// What the queue gives back before a call takes no more of the call's time than the queue has.
func TestAPlaceGivenBackByTheQueueLeavesTimeToClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		p := r.process()
		op := r.of(idem.Repeatable)
		call := func(value string) error {
			ctx := idem.WithKillTime(t.Context(), time.Now().Add(time.Second))
			_, err := idem.Do(ctx, p.engine, op.Key("acme", value), value, func(context.Context, string) (string, error) { return "done", nil })
			return err
		}
		p.faults.Always(idemtest.LoseRequest, idemtest.Finish)
		require.NoError(t, call("a"))
		require.Equal(t, idem.InProgress, r.state(op, "a"))
		p.faults.Heal()
		p.faults.Next(idemtest.ReturnPlace, idemtest.BlackHole)
		require.NoError(t, call("b"))
		require.Equal(t, idem.Completed, r.state(op, "a"))
	})
}

// A process whose clock is ahead takes an outcome for expired, and a place for its claim. A look by
// another clock does not give the place away before that claim, however late it comes.
func TestAPlaceStaysWhileItsOutcomeIsExpiredForSome(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	op.Retention = time.Hour
	p, ahead := r.process(), r.ahead(15*time.Second)
	require.NoError(t, p.do(op, "a", nil))
	r.clock.Advance(time.Hour - 5*time.Second)
	var claim *idemtest.Call
	ahead.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
	ahead.faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
	require.ErrorIs(t, ahead.do(op, "a", nil), idem.ErrStoreUnavailable)

	require.ErrorIs(t, p.do(op, "b", nil), idem.ErrTooMany)
	r.clock.Advance(time.Minute)
	require.NoError(t, p.do(op, "b", func(context.Context) error {
		var conflict *protocol.ConflictError
		require.ErrorAs(t, claim.Do(context.Background()), &conflict, "it was fenced")
		return nil
	}), "once it has expired for all, the place is found")
}

// ahead is a process whose clock is ahead of the others'.
func (r *rig) ahead(by time.Duration) *process {
	p := &process{rig: r, faults: idemtest.NewFaults(counted{r.table, r})}
	var err error
	p.engine, err = idem.New(p.faults, &idem.Options{Now: func() time.Time { return r.clock.Now().Add(by) }, ClaimBudget: 10 * time.Second})
	require.NoError(r.t, err)
	return p
}

// A place that was taken for what was released, and has got its outcome from a person since, is free
// long before that outcome expires.
func TestAPlaceOfWhatAPersonHasEnded(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p := r.process()
	_, err := p.accept(op, "a")
	require.NoError(t, err)
	require.Error(t, p.work(op, "a", errors.New("later")))
	p.faults.Next(idemtest.Acquire, idemtest.Refuse)
	require.Error(t, p.work(op, "a", nil))
	rec, err := r.table.Get(t.Context(), op.Key("acme", "a").ID())
	require.NoError(t, err)
	require.NoError(t, r.table.Settle(t.Context(), r.clock.Now(), protocol.Settlement{
		ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Write: "resolved", Owner: "resolver",
		Ending: protocol.Ending{State: idem.Completed, Result: []byte(`"done"`), ExpiresAt: r.clock.Now().Add(24 * time.Hour)},
	}))
	r.clock.Advance(time.Minute)
	require.NoError(t, r.process().do(op, "b", nil))
}
