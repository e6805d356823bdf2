package limit_test

import (
	"context"
	"testing"

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
