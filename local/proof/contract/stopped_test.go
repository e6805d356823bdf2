package contract

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
)

// A process that takes several invocations is not killed at a time-out, and its leases are
// renewed. One that stands still past its lease, and then wakes up, changes nothing after
// it was taken over; after it was parked its own late outcome stands.
func TestStoppedPastItsLease(t *testing.T) {
	s := newService(t, newFixture(t), kinds[0], idemhttp.IETF)
	for _, to := range []string{"/transfers", "/payments"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			several := s.open(t, s.endpoint, runtime.Function{Timeout: time.Minute, MaxInstances: 1, Concurrency: 2}, patience)
			p := s.play(func(run int) script.Answer {
				a := made
				a.Body = fmt.Append(nil, "run ", run)
				return a
			})
			r := s.post(p, path(to), via(several))
			first := s.background(t, r)
			pid := p.process(t)
			childtest.Stop(t, pid)
			close(p.gate)
			elsewhere := r.with(via(s.calm))
			after := s.lapses(t, elsewhere)
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
			late := <-first
			if to == "/payments" {
				s.refused(t, after, idemhttp.CodeOutcomeUnknown)
				s.unmarked(t, late)
				require.Equal(t, "run 1", late.body)
				s.replayed(t, late, s.send(t, elsewhere))
				require.Equal(t, 1, p.count())
				return
			}
			s.unmarked(t, after)
			require.Equal(t, "run 2", after.body)
			s.replayed(t, after, late)
			s.replayed(t, after, s.send(t, elsewhere))
			require.Equal(t, 2, p.count())
		})
	}
}
