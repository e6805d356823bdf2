package contract

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
	"github.com/stretchr/testify/require"
)

// hold starts a request whose handler waits for the play's gate. Where the function comes to no handler, for want of
// time or of a table that answers in time, another request is as good.
func (s *service) hold(t *testing.T, where at, change ...contract.Change) (*play, request, <-chan contracttest.Reply) {
	t.Helper()
	p, r, first, _ := s.holds(t, func(int) contract.Answer { return contract.Made }, where, change...)
	return p, r, first
}

// holds also has the handler's answer given, and returns its process.
func (s *service) holds(t *testing.T, answer func(run int) contract.Answer, where at,
	change ...contract.Change) (p *play, r request, first <-chan contracttest.Reply, pid int) {
	t.Helper()
	if where.pool == s.calm.pool {
		s.held.Lock()
		t.Cleanup(s.held.Unlock)
	}
	for {
		p = s.play(answer)
		r = s.post(p, where, change...)
		first = s.background(t, r)
		select {
		case pid = <-p.arrived:
			return p, r, first, pid
		case got := <-first:
			if where == s.impatient && got.Status == s.late.status {
				again := make(chan contracttest.Reply, 1)
				again <- got // its gateway did not wait for the handler
				return p, r, again, p.process(t)
			}
			t.Logf("no handler ran: %d %s", got.Status, got.Body)
		case <-time.After(patience):
			require.FailNow(t, "the handler was not called")
		}
	}
}

func inFlightWaiting(t *testing.T, s *service) {
	p, r, first := s.hold(t, s.calm)
	duplicate := s.background(t, r.with(contract.Choose(contract.Wait)))
	eventually(t, func() bool { return len(s.calm.of(r.Key())) == 2 })
	close(p.gate)
	live := <-first
	require.Equal(t, 201, live.Status)
	s.replayed(t, live, <-duplicate)
	require.Equal(t, 1, p.count())
}

// A late retry gets what the first client did not.
func gatewayGivesUp(t *testing.T, s *service) {
	p, r, first := s.hold(t, s.impatient)
	s.broke(t, <-first, s.late)
	s.refused(t, s.send(t, r.through(s.calm)), idemhttp.CodeInProgress)
	close(p.gate)
	s.answers(t, p, r.through(s.calm))
}

func clientGoesAway(t *testing.T, s *service) {
	s.held.Lock()
	defer s.held.Unlock()
	p := s.play(func(int) contract.Answer { return contract.Made })
	r := s.post(p, s.calm)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	over := make(chan error, 1)
	for arrived := false; !arrived; {
		req := s.build(t, ctx, r)
		go func() {
			_, err := s.do(req)
			over <- err
		}()
		select {
		case <-p.arrived:
			arrived = true
		case err := <-over: // the store was too slow
			require.NoError(t, err)
		}
	}
	leave()
	require.ErrorIs(t, <-over, context.Canceled)
	close(p.gate)
	s.answers(t, p, r)
}

// answers asks until the only run's response is there.
func (s *service) answers(t *testing.T, p *play, r request) {
	t.Helper()
	var got contracttest.Reply
	eventually(t, func() bool {
		got = s.send(t, r)
		if contracttest.CodeOf(got) == idemhttp.CodeInProgress {
			s.refused(t, got, idemhttp.CodeInProgress)
			return false
		}
		return true
	})
	require.Equal(t, 201, got.Status, "%s", got.Body)
	require.Equal(t, "made", got.Body)
	require.Equal(t, []string{"true"}, got.Header.Values(contracttest.Markers[s.profile]))
	require.Equal(t, 1, p.count())
}

// killed: the process dies while the handler runs, and no process knows what it did.
func killed(t *testing.T, s *service) {
	p, r, first := s.hold(t, s.hasty)
	s.kill(t, r)
	s.broke(t, <-first, s.failed)
	close(p.gate)
	s.lapses(t, r)
	for range 2 {
		s.refused(t, s.sendPatiently(t, r), idemhttp.CodeOutcomeUnknown)
	}
	require.Equal(t, 1, p.count())
}

func killedRepeatable(t *testing.T, s *service) {
	p, r, first := s.hold(t, s.hasty, contract.Path("/transfers"))
	s.kill(t, r)
	s.broke(t, <-first, s.failed)
	close(p.gate)
	live := s.lapses(t, r)
	require.Equal(t, 201, live.Status, "%s", live.Body)
	contracttest.Unmarked(t, live)
	s.replayed(t, live, s.sendPatiently(t, r))
	require.Equal(t, 2, p.count())
}

// killedInStep: the call that finds the step interrupted gets what all later ones get, and no
// failure of the function.
func killedInStep(t *testing.T, s *service) {
	p, r, first := s.hold(t, s.hasty, contract.Path("/transfers"), contract.Header(script.StepHeader, "yes"))
	s.kill(t, r)
	s.broke(t, <-first, s.failed)
	close(p.gate)
	s.refused(t, s.lapses(t, r), idemhttp.CodeOutcomeUnknown)
	s.refused(t, s.sendPatiently(t, r), idemhttp.CodeOutcomeUnknown)
	require.Equal(t, 1, p.count())
}

// hanging: the handler heeds nothing and is killed at the time-out.
func hanging(t *testing.T, s *service) {
	var p *play
	var r request
	for p == nil || p.count() == 0 {
		p = s.always(contract.Answer{Hang: true})
		r = s.post(p, s.hasty)
		first := s.send(t, r)
		if p.count() > 0 {
			s.broke(t, first, s.failed)
		}
	}
	s.lapses(t, r)
	s.refused(t, s.sendPatiently(t, r), idemhttp.CodeOutcomeUnknown)
	require.Equal(t, 1, p.count())
}

// kill ends the process that works on the request.
func (s *service) kill(t *testing.T, r request) {
	t.Helper()
	pids := r.at.of(r.Key())
	require.Len(t, pids, 1)
	require.NoError(t, r.at.pool.Kill(pids[0]))
}

// lapses asks until the lease of an attempt that was killed has ended.
func (s *service) lapses(t *testing.T, r request) (got contracttest.Reply) {
	t.Helper()
	eventually(t, func() bool {
		got = s.send(t, r)
		switch code := contracttest.CodeOf(got); code {
		// So close to its time-out the function may find a busy table too slow.
		case idemhttp.CodeInProgress, idemhttp.CodeStoreUnavailable:
			s.refused(t, got, code)
			return false
		}
		return true
	})
	return got
}

func noToken(t *testing.T, s *service) {
	p := s.always(contract.Made)
	s.broke(t, s.send(t, s.post(p, s.calm, contract.Tenant(anonymous))), s.unsigned)
	require.Zero(t, p.count())
}

// A process that takes several invocations is not killed at a time-out, and its leases are
// renewed. One that stands still past its lease, and then wakes up, changes nothing after
// it was taken over; after it was parked its own late outcome stands.
func TestStoppedPastItsLease(t *testing.T) {
	s := newService(t, newFixture(t), kinds[0], idemhttp.IETF)
	for _, to := range []string{"/transfers", "/payments"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			several := s.open(t, s.endpoint, runtime.Function{Timeout: time.Minute, MaxInstances: 1, Concurrency: 2}, patience)
			p, r, first, pid := s.holds(t, func(run int) contract.Answer {
				a := contract.Made
				a.Body = fmt.Append(nil, "run ", run)
				return a
			}, several, contract.Path(to))
			childtest.Stop(t, pid)
			close(p.gate)
			elsewhere := r.through(s.calm)
			after := s.lapses(t, elsewhere)
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
			late := <-first
			if to == "/payments" {
				s.refused(t, after, idemhttp.CodeOutcomeUnknown)
				contracttest.Unmarked(t, late)
				require.Equal(t, "run 1", late.Body)
				s.replayed(t, late, s.send(t, elsewhere))
				require.Equal(t, 1, p.count())
				return
			}
			contracttest.Unmarked(t, after)
			require.Equal(t, "run 2", after.Body)
			s.replayed(t, after, late)
			s.replayed(t, after, s.send(t, elsewhere))
			require.Equal(t, 2, p.count())
		})
	}
}
