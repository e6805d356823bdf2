package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// trip is one booking, of a seat that can be given back and a payment that is made at most
// once, and everybody who has to do with it at the same time, each over a network that
// delays, loses and repeats.
type trip struct {
	t     *testing.T
	op    idem.Operation
	key   idem.Key
	store *memstore.Store

	mu                   sync.Mutex
	rand                 *rand.Rand
	calm                 bool
	seats, paid, refunds int
	sent                 map[string]int
	answers              []string
	calls                int // that are on their way
	counts               map[string]int
}

func (s *trip) n(max int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(max)
}

func (s *trip) pause(most time.Duration) { time.Sleep(time.Duration(s.n(int(most)))) }

func (s *trip) do(what string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.counts[what]++
}

// clock is off by as much as the margin allows between two of them.
func (s *trip) clock() func() time.Time {
	off := time.Duration(s.n(int(idem.DefaultMargin))) - idem.DefaultMargin/2
	return func() time.Time { return time.Now().Add(off) }
}

// net is a network of its own; what kill returns ends all that is sent over it.
func (s *trip) net() (store *idemtest.Faults, kill func()) {
	store = idemtest.NewFaults(s.store)
	dead := false
	var cut time.Time
	store.Always(func(ctx context.Context, c *idemtest.Call) error {
		s.mu.Lock()
		calm, gone, over := s.calm, dead, cut
		s.mu.Unlock()
		switch {
		case gone:
			return &protocol.ConflictError{} // as a dead process's store of idemtest
		case calm:
			return c.Do(ctx)
		case time.Now().Before(over):
			select {
			case <-ctx.Done():
				return c.Lost()
			case <-time.After(time.Until(over)):
			}
		case s.n(40) == 0:
			over = time.Now().Add(time.Duration(s.n(int(time.Minute))))
			s.mu.Lock()
			cut = over
			s.mu.Unlock()
		}
		wait := time.Duration(s.n(int(20 * time.Millisecond)))
		if s.n(25) == 0 {
			wait = time.Duration(s.n(int(40 * time.Second)))
		}
		select {
		case <-ctx.Done():
			if s.n(2) == 0 { // it is on its way
				s.later(func() {
					s.pause(20 * time.Second)
					_ = c.Do(context.WithoutCancel(ctx))
				})
			}
			return c.Lost()
		case <-time.After(wait):
		}
		switch s.n(20) {
		case 0:
			return idemtest.LoseRequest(ctx, c)
		case 1:
			return idemtest.LoseReply(ctx, c)
		case 2:
			return idemtest.Refuse(ctx, c)
		case 3:
			_ = c.Do(ctx)
			return c.Do(ctx)
		}
		return c.Do(ctx)
	})
	return store, func() { s.mu.Lock(); dead = true; s.mu.Unlock() }
}

// later has f run in parallel with what follows. A sync.WaitGroup could not be waited for while the
// timer of an attempt adds to it.
func (s *trip) later(f func()) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	go func() {
		defer func() { s.mu.Lock(); s.calls--; s.mu.Unlock() }()
		f()
	}()
}

// join waits for what runs in parallel.
func (s *trip) join() {
	for {
		s.mu.Lock()
		n := s.calls
		s.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Second)
	}
}

// call is a client's, of a process of its own.
func (s *trip) call() {
	store, kill := s.net()
	e, err := idem.New(store, &idem.Options{Now: s.clock()})
	require.NoError(s.t, err)
	die := func() bool {
		if s.n(6) > 0 || s.quiet() {
			return false
		}
		kill()
		return true
	}
	errDead := errors.New("dead")
	ran := false
	out, err := idem.Do(context.Background(), e, s.key, 1, func(ctx context.Context, _ int) (string, error) {
		ran = true
		_, err := idem.Step(ctx, "book", func(context.Context) (int, error) {
			s.do("booked", func() { s.seats = 1 })
			return 7, nil
		}, &idem.StepConfig[int]{Compensate: func(context.Context, int) error {
			s.do("unbooked", func() { s.seats = 0 })
			if die() {
				return errDead
			}
			return nil
		}})
		if err != nil {
			return "", err
		}
		s.pause(2 * time.Second)
		_, err = idem.Step(ctx, "pay", func(ctx context.Context) (string, error) {
			if die() {
				return "", errDead
			}
			s.pause(20 * time.Second)
			if ctx.Err() != nil {
				return "", idem.NotExecuted(ctx.Err())
			}
			s.do("paid", func() { s.paid++ })
			if die() {
				return "", errDead
			}
			return "ch_1", nil
		}, &idem.StepConfig[string]{Semantics: idem.AtMostOnce, Reference: "ref",
			Compensate: func(context.Context, string) error {
				if die() {
					return errDead
				}
				s.do("refunded", func() { s.refunds = s.paid })
				return nil
			}})
		if err != nil {
			return "", err
		}
		if die() {
			return "", errDead
		}
		switch s.n(6) {
		case 0:
			return "", idem.Permanent(errors.New("sold out"))
		case 1:
			if !s.quiet() {
				return "", errPlain
			}
		}
		return "paid", nil
	})
	_ = e.Flush(context.Background())
	var recorded *idem.RecordedError
	switch {
	case ran: // its own answer may not be recorded
	case err == nil:
		s.do("answered", func() { s.answers = append(s.answers, out) })
	case errors.As(err, &recorded):
		s.do("answered", func() { s.answers = append(s.answers, "failed") })
	}
}

func (s *trip) quiet() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.calm }

// provider says what became of the payment.
func (s *trip) provider() (paid, refunded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paid > 0, s.refunds > 0
}

func (s *trip) reconciler(store reconcile.Store) *reconcile.Reconciler {
	r, err := reconcile.New(store, &reconcile.Options{Now: s.clock()})
	require.NoError(s.t, err)
	return r
}

func (s *trip) sweeper() *reconcile.Sweeper {
	store, _ := s.net()
	sw, err := reconcile.NewSweeper(s.reconciler(store), &reconcile.SweepOptions{
		Concurrency: 2, Log: slog.New(slog.DiscardHandler),
		Escalate: func(_ context.Context, g reconcile.Escalation) error {
			s.do("sent", func() { s.sent[g.Message]++ })
			return nil
		},
		Operations: []reconcile.Operation{{Operation: s.op, EscalateAfter: 30 * time.Minute,
			Probe: func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
				paid, refunded := s.provider()
				s.pause(3 * time.Second)
				switch n := s.n(10); {
				case n == 0:
					return reconcile.StillUnknown(0), nil
				case n == 1:
					return reconcile.Answer{}, errPlain
				case n == 2 && !s.quiet():
					return reconcile.CannotBeKnown("lost"), nil
				case refunded:
					return reconcile.FailedWith(idem.Failure{Message: "refunded"}), nil
				case paid:
					return reconcile.CompletedWith("paid"), nil
				}
				return reconcile.NotExecuted(), nil
			},
			OnAbandoned: func(context.Context, reconcile.Question) error {
				s.later(func() { s.pause(5 * time.Second); s.call() })
				return nil
			}}},
	})
	require.NoError(s.t, err)
	return sw
}

// operator looks, asks the provider, and says what is so.
func (s *trip) operator() {
	store, _ := s.net()
	r := s.reconciler(store)
	rec, err := r.Lookup(context.Background(), s.key.ID())
	if err != nil || rec == nil || !rec.Lapsed(time.Now(), idem.DefaultMargin) {
		return
	}
	paid, refunded := s.provider()
	res := reconcile.Resolution{To: idem.Released, Attempt: rec.Attempt}
	byHand := s.n(3) == 0
	switch {
	case refunded:
		return
	case byHand:
		res.To, res.Failure, res.CompensatedManually = idem.Failed, &idem.Failure{Message: "by hand"}, true
	case paid:
		out, err := reconcile.Encode("paid")
		require.NoError(s.t, err)
		res.To, res.Result = idem.Completed, &out
	}
	s.pause(3 * time.Second)
	err = r.Resolve(context.Background(), s.key.ID(),
		res, reconcile.Change{Actor: "alice", Reason: "the provider says so"})
	if err != nil { // perhaps it has landed
		rec, gerr := s.store.Get(context.Background(), s.key.ID())
		require.NoError(s.t, gerr)
		if !byHand || rec.State != idem.Failed || !rec.Resolved || rec.Failure.Message != "by hand" {
			return
		}
	}
	s.do("resolved by hand", func() {
		if byHand { // afterwards, since before that another one may have been faster
			s.seats, s.refunds = 0, s.paid
		}
	})
}

// keeper keeps the record for a dispute, as soon as it has ended.
func (s *trip) keeper() {
	store, _ := s.net()
	r := s.reconciler(store)
	for range 8 {
		s.pause(time.Minute)
		_ = r.Extend(context.Background(), s.key.ID(), time.Now().Add(dispute),
			reconcile.Change{Actor: "carol", Reason: "a dispute"})
	}
}

// Whatever happens in whatever order, it is paid once at most, the seat is booked exactly if
// it is paid and completed, every replay is the outcome, and what stays open operators have.
func TestAnyScheduleOfStepsEndsOnce(t *testing.T) {
	seeds := 60
	if os.Getenv("IDEM_LONG") == "1" {
		seeds = 1000
	}
	counts := map[string]int{}
	for seed := range seeds {
		for _, op := range []idem.Operation{
			{Name: "trip"}, {Name: "trip", Repeat: idem.Repeatable, Watch: idem.WatchAlways, MaxAttempts: 4},
		} {
			t.Run(fmt.Sprint(seed, " ", op.Repeat), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playTrip(t, uint64(seed), op, counts) })
			})
		}
	}
	t.Log(counts)
	must := []string{"paid", "answered", "resolved", "completed", "extended"}
	if os.Getenv("IDEM_LONG") == "1" { // rare in a few
		must = append(must, "refunded", "unbooked", "resolved by hand", "sent", "parked", "escalated", "failed", "unknown")
	}
	for _, what := range must {
		require.NotZero(t, counts[what], what)
	}
}

func playTrip(t *testing.T, seed uint64, op idem.Operation, counts map[string]int) {
	s := &trip{
		t: t, op: op, key: op.Key("acme", "1"), store: memstore.New(), rand: rand.New(rand.NewPCG(seed, 7)),
		sent: map[string]int{}, counts: map[string]int{},
	}
	var all sync.WaitGroup
	all.Go(s.call)
	for range 2 {
		sw := s.sweeper()
		all.Go(func() {
			for range 8 {
				s.pause(40 * time.Second)
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
				_, _ = sw.Sweep(ctx)
				cancel()
			}
		})
		all.Go(func() { s.pause(4 * time.Minute); s.operator() })
		all.Go(s.keeper)
		all.Go(func() {
			for range 3 {
				s.pause(2 * time.Minute)
				s.call()
			}
		})
	}
	all.Wait()
	s.join()
	s.do("calm", func() { s.calm = true })
	sw := s.sweeper()
	for range 120 {
		time.Sleep(time.Minute)
		_, err := sw.Sweep(context.Background())
		require.NoError(t, err)
		s.join()
		rec, err := s.store.Get(t.Context(), s.key.ID())
		require.NoError(t, err)
		if rec == nil || rec.Due.IsZero() || !rec.EscalatedAt.IsZero() {
			break
		}
	}
	for range 3 {
		s.call()
	}
	rec, err := s.store.Get(t.Context(), s.key.ID())
	require.NoError(t, err)
	require.LessOrEqual(t, s.paid, 1)
	history, err := s.reconciler(s.store).History(t.Context(), s.key.ID())
	require.NoError(t, err)
	show := fmt.Sprintf("%+v\n%+v\n%v", rec, history, s.answers)
	switch rec.State {
	case idem.Completed:
		require.Equal(t, []int{1, 1, 0}, []int{s.seats, s.paid, s.refunds}, show)
		for _, a := range s.answers {
			require.Equal(t, "paid", a, show)
		}
	case idem.Failed:
		require.Equal(t, []int{0, s.paid}, []int{s.seats, s.refunds}, show)
		for _, a := range s.answers {
			require.Equal(t, "failed", a, show)
		}
	default:
		require.False(t, rec.EscalatedAt.IsZero(), show)
		require.NotEmpty(t, s.sent, show)
		require.Empty(t, s.answers, show)
	}
	counts[string(rec.State)]++
	for what, n := range s.counts {
		counts[what] += n
	}
	for _, n := range s.sent {
		if n > 1 {
			counts["sent twice"]++
		}
	}
	given := 0
	for _, a := range history {
		counts[string(a.Change)]++
		if a.Change == protocol.ChangeExtended && a.From != idem.Released {
			require.Equal(t, rec.State, a.From, show)
			require.True(t, rec.ExpiresAt.After(a.At.Add(dispute-time.Hour)), show) // it was asked for before
		}
		if a.Change == protocol.ChangeEscalated {
			given++
		}
	}
	require.LessOrEqual(t, given, len(s.sent), show)
}
