package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
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
