package questions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	refund = idem.Operation{Name: "refund"}
	// order is not watched until its step begins, in which all happens.
	order = idem.Operation{Name: "order", Repeat: idem.Repeatable}
)

// receipt is what the provider says of the one effect that may be.
const receipt = "re_1"

// schedule is one key, and all that happens to it at the same time. Its clock is moved on
// while it happens.
type schedule struct {
	t     *testing.T
	table string
	key   idem.Key
	steps bool // it is an order
	noTx  bool // the table has no transactions
	clock idemtest.Clock
	seed  uint64

	mu      sync.Mutex
	rand    *rand.Rand
	effects int
	faults  map[string]int
	changes map[string]string // from outside, by their transaction or entry: the key of the audit entry
	strange []string          // writes from outside that change a state without an entry
	people  map[string]int    // by message
	answers []string          // what clients were told is the outcome
	again   bool              // somebody has replaced an answer
}

func newSchedule(t *testing.T, table string, seed uint64) *schedule {
	op, steps := refund, seed%2 == 1
	if steps {
		op = order
	}
	return &schedule{
		t: t, table: table, key: op.Key("acme", fmt.Sprintf("%s-%d", op.Name, seed)), steps: steps,
		noTx: seed%4 > 1, seed: seed,
		rand: rand.New(rand.NewPCG(seed, 13)), faults: map[string]int{}, changes: map[string]string{},
		people: map[string]int{},
	}
}

// n is a number from 0 to below max.
func (s *schedule) n(max int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(max)
}

// pause lets others go first.
func (s *schedule) pause(most int) { <-time.After(time.Duration(s.n(most*1000)) * time.Microsecond) }

// effect is the provider's: it happens while the lease that began so long ago still runs.
func (s *schedule) effect(began time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.Now().Sub(began) >= idem.DefaultLease {
		return false
	}
	s.effects++
	return true
}

// known is what the provider says.
func (s *schedule) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects > 0
}

// advance moves the clock. It waits for an effect that is just happening.
func (s *schedule) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.Advance(d)
}

// process is an engine over a network of its own.
type process struct {
	*idem.Engine
	wire *wire
}

// options of a store.
func (s *schedule) options() *dynamostore.Options {
	return &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, WithoutTransactions: s.noTx}
}

func (s *schedule) process() *process {
	w := s.wire(false)
	store, err := dynamostore.New(w.client, s.table, s.options())
	require.NoError(s.t, err)
	e, err := idem.New(store, &idem.Options{Now: s.clock.Now, ClaimBudget: time.Minute, FinishBudget: time.Minute})
	require.NoError(s.t, err)
	return &process{e, w}
}

// fate is what becomes of the first attempt.
type fate int

const (
	killedAfterEffect fate = iota
	killedBefore
	late
	lateWithoutEffect
	fates
)

// call is a call of the client's. The process of one with a fate stands still in its
// handler: until it is killed, or for a while.
func (s *schedule) call(p *process, f fate, running chan<- struct{}) {
	began := s.clock.Now()
	work := func(context.Context) (string, error) {
		if f != killedBefore && f != lateWithoutEffect && !s.effect(began) {
			return "", context.DeadlineExceeded
		}
		if running != nil {
			close(running)
		}
		switch f {
		case killedAfterEffect, killedBefore:
			p.wire.kill()
			select {} // until the test's process ends
		case late:
			s.pause(60)
		case lateWithoutEffect:
			s.pause(60)
			if s.n(2) == 0 {
				return "", idem.NotExecuted(errors.New("the provider is down"))
			}
			if !s.effect(began) {
				return "", context.DeadlineExceeded
			}
		}
		return receipt, nil
	}
	got, err := idem.Do(context.Background(), p.Engine, s.key, 1, func(ctx context.Context, _ int) (string, error) {
		if s.steps {
			return idem.Step(ctx, "refund", work, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
		}
		return work(ctx)
	})
	if err := p.Flush(context.Background()); err != nil {
		s.t.Errorf("seed %d: %v", s.seed, err)
	}
	var recorded *idem.RecordedError
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.answers = append(s.answers, got)
	case errors.As(err, &recorded):
		s.answers = append(s.answers, recorded.Message)
	}
}

// none is the fate of a call that just runs.
const none = fates

func (s *schedule) reconciler(w *wire) *reconcile.Reconciler {
	q, err := dynamostore.NewAdminStore(w.client, s.table, s.options())
	require.NoError(s.t, err)
	r, err := reconcile.New(q, &reconcile.Options{Now: s.clock.Now})
	require.NoError(s.t, err)
	return r
}

// sweeper asks a provider that knows, and does not always answer.
func (s *schedule) sweeper(r *reconcile.Reconciler, sure bool) *reconcile.Sweeper {
	op := reconcile.Operation{Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		known := s.known()
		s.pause(3)
		switch n := s.n(10); {
		case !sure && n < 2:
			return reconcile.StillUnknown(0), nil
		case !sure && n == 2:
			return reconcile.Answer{}, errors.New("no route to the provider")
		case !sure && n == 3:
			return reconcile.CannotBeKnown("the provider has lost its books"), nil
		case known:
			return reconcile.CompletedWith(receipt), nil
		}
		steps := map[string]reconcile.Answer{}
		for _, step := range q.Steps {
			if step.Begun {
				steps[step.Name] = reconcile.NotExecuted()
			}
		}
		if len(steps) > 0 {
			return reconcile.ContinueWith(steps), nil
		}
		return reconcile.NotExecuted(), nil
	}}
	refunds, orders := op, op
	refunds.Operation, orders.Operation = refund, order
	sw, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Concurrency: 2, Log: slog.New(slog.DiscardHandler),
		Escalate: func(_ context.Context, g reconcile.Escalation) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.people[g.Message]++
			return nil
		},
		Operations: []reconcile.Operation{refunds, orders},
	})
	require.NoError(s.t, err)
	return sw
}

// absent says that no step had an effect of which somebody must say what became.
func absent(rec *idem.Record) (steps map[string]reconcile.Answer) {
	for name, step := range rec.Steps {
		if step.Begun || rec.StepResolved(name) {
			steps = map[string]reconcile.Answer{name: reconcile.NotExecuted()} // there is one
		}
	}
	return steps
}

// webhook tells what the provider has done.
func (s *schedule) webhook(r *reconcile.Reconciler) {
	s.pause(60)
	if s.known() {
		s.refused(reconcile.Resolve(context.Background(), r, s.key, receipt,
			reconcile.Change{Actor: "webhook", Reason: "charge.refunded"}))
	}
}

// operator looks at a question, asks the provider, and says what is right; sometimes
// instead of what was said before.
func (s *schedule) operator(r *reconcile.Reconciler) {
	s.pause(60)
	ctx := context.Background()
	rec, err := r.Lookup(ctx, s.key.ID())
	require.NoError(s.t, err)
	if rec == nil || !rec.Lapsed(s.clock.Now(), idem.DefaultMargin) {
		return
	}
	known := s.known()
	s.pause(5)
	res := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}, Attempt: rec.Attempt}
	switch n := s.n(4); {
	case n == 0: // refunded by hand, or declined
	case known:
		out, err := reconcile.Encode(receipt)
		require.NoError(s.t, err)
		res.To, res.Failure, res.Result = idem.Completed, nil, &out
	default:
		res.To, res.Failure, res.Steps = idem.Released, nil, absent(rec)
	}
	by := reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}
	if s.steps { // which say of the record that was looked at
		by.IfWrite = rec.Write
	}
	if res.Replace = s.n(4) == 0; res.Replace {
		by.IfWrite = rec.Write
		s.mu.Lock()
		s.again = true
		s.mu.Unlock()
	}
	s.refused(r.Resolve(ctx, s.key.ID(), res, by))
}

// refused are the answers that somebody who was not the first may get.
func (s *schedule) refused(err error) {
	for _, may := range []error{reconcile.ErrNotUnknown, reconcile.ErrTooEarly, reconcile.ErrNotFound,
		reconcile.ErrChanged} {
		if errors.Is(err, may) {
			return
		}
	}
	require.NoError(s.t, err)
}
