package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	refund  = idem.Operation{Name: "refund"}
	webhook = idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}
	// order calls several services and is declared as the documentation advises.
	order = idem.Operation{Name: "order", Repeat: idem.Repeatable}

	alice = reconcile.Change{Actor: "alice", Reason: "the provider's console says so"}

	errPlain = errors.New("the connection was cut")
)

// What engines without an observer log is what their tests make happen.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// rig is a service whose process can be killed, and what is swept after it.
type rig struct {
	*idemtest.Harness
	*reconcile.Reconciler
	t   *testing.T
	key idem.Key // of the record that a story is about

	owner     string       // of a killed claim, where a test needs it
	did       orderEffects // by the handlers of a story
	looked    string       // the write that alice has seen
	operation reconcile.Operation
	options   reconcile.SweepOptions
	sweeping  *reconcile.Sweeper // with the options; nil before the first sweep
	swept     reconcile.Report   // the latest one
	sending   func()             // what happens while operators are sent a question

	mu          sync.Mutex
	notices     []notice.Notice
	escalations []reconcile.Escalation
	questions   []reconcile.Question // that the provider was asked
	refuse      error                // of operators
}

func newRig(t *testing.T, op idem.Operation) *rig {
	t.Helper()
	r := &rig{Harness: idemtest.New(t, nil), t: t, key: op.Key("acme", "r-1"), sending: func() {}}
	r.operation.Operation = op
	r.Reconciler = r.over(r.Faults)
	return r
}

// over is a reconciler over another store.
func (r *rig) over(store reconcile.Store) *reconcile.Reconciler {
	r.t.Helper()
	rc, err := reconcile.New(store, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(r.t, err)
	return rc
}

func (r *rig) record() *idem.Record { return r.Record(r.key) }

// crash leaves the claim of a process that died in the handler, which calls r.Crash.
func (r *rig) crash(key idem.Key, h handler) {
	r.t.Helper()
	require.ErrorIs(r.t, r.deliver(key, h), idemtest.ErrCrashed)
}

// deliver runs the handler in a process of its own, which it may crash.
func (r *rig) deliver(key idem.Key, h handler) error {
	defer r.Restart()
	return idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, h)
	})[0].Err
}

// killed leaves a claim whose process died outside its steps.
func (r *rig) killed(key idem.Key) {
	r.t.Helper()
	r.crash(key, func(context.Context, int) (int, error) { r.Crash(); return 0, nil })
	require.Equal(r.t, idem.InProgress, r.Record(key).State)
}

// isDue reports whether a sweep would list the record. A sweep of hours comes every minute, and reads the 64
// shards in vain nearly each time.
func (r *rig) isDue() bool {
	due := r.record().Due
	return !due.IsZero() && !due.After(r.Clock.Now())
}

// lapse lets leases end.
func (r *rig) lapse() { r.Clock.Advance(idem.DefaultLease + idem.DefaultMargin + time.Second) }

// until lets the time come.
func (r *rig) until(at time.Time) { r.Clock.Advance(at.Sub(r.Clock.Now())) }

// call is a call by a client with the key.
func (r *rig) call(key idem.Key, h handler) (int, error) {
	return idem.Do(r.t.Context(), r.Engine, key, 1, h)
}

// end is a call whose attempt ends with the error.
func (r *rig) end(key idem.Key, err error) {
	r.t.Helper()
	_, got := r.call(key, func(context.Context, int) (int, error) { return 7, err })
	require.Equal(r.t, err == nil, got == nil)
}

// put puts a record into the store as it is.
func (r *rig) put(now time.Time, rec idem.Record) {
	r.t.Helper()
	require.NoError(r.t, r.Store.Acquire(r.t.Context(), now, protocol.Claim{Record: rec}))
}

// due leaves the claim of a process that has died, without playing it.
func (r *rig) due(key idem.Key, change ...func(*idem.Record)) {
	r.t.Helper()
	now := r.Clock.Now()
	rec := idem.Record{ID: key.ID(), State: protocol.InProgress, Owner: "o", Attempt: 1, Write: "w",
		LeaseUntil: now, Due: now, CreatedAt: now, UpdatedAt: now}
	for _, c := range change {
		c(&rec)
	}
	r.put(now, rec)
}

// called counts the calls of the store's method.
func (r *rig) called(method idemtest.Method) (n int) {
	for _, m := range r.Faults.Calls() {
		if m == method {
			n++
		}
	}
	return n
}

// sweeper has the options, and operators that take what they are sent.
func (r *rig) sweeper(o reconcile.SweepOptions) *reconcile.Sweeper {
	r.t.Helper()
	o.Escalate = func(_ context.Context, g reconcile.Escalation) error {
		r.mu.Lock()
		r.escalations = append(r.escalations, g)
		r.mu.Unlock()
		r.sending()
		return r.refuse
	}
	o.Observer = func(_ context.Context, n notice.Notice) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notices = append(r.notices, n)
	}
	o.Log = slog.New(slog.DiscardHandler)
	s, err := reconcile.NewSweeper(r.Reconciler, &o)
	require.NoError(r.t, err)
	return s
}

// probing is a sweeper that asks about refunds.
func (r *rig) probing(ask probe) *reconcile.Sweeper {
	return r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: refund, Probe: ask}}})
}

// report makes one sweep.
func (r *rig) report(s *reconcile.Sweeper) reconcile.Report {
	r.t.Helper()
	report, err := s.Sweep(r.t.Context())
	require.NoError(r.t, err)
	return report
}

// within makes one sweep, which ends within the time.
func (r *rig) within(d time.Duration, s *reconcile.Sweeper) reconcile.Report {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	report, err := s.Sweep(ctx)
	require.NoError(r.t, err)
	require.NoError(r.t, ctx.Err())
	return report
}

func kinds(report reconcile.Report) (all []notice.Kind) {
	for _, a := range report.Actions {
		all = append(all, a.Kind)
	}
	return all
}

// history has the changes of the record from outside.
func (r *rig) history(key idem.Key) []protocol.Audit {
	r.t.Helper()
	entries, err := r.History(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	return entries
}

// changes are the kinds of these.
func (r *rig) changes(key idem.Key) (all []protocol.Change) {
	r.t.Helper()
	for _, a := range r.history(key) {
		require.NotEmpty(r.t, a.Why)
		all = append(all, a.Change)
	}
	return all
}

func (r *rig) explain(key idem.Key) reconcile.Explanation {
	r.t.Helper()
	rec, err := r.Lookup(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	return r.Explain(rec)
}

// probe asks a provider.
type probe = func(context.Context, reconcile.Question) (reconcile.Answer, error)

// says is a probe that always answers the same.
func says(a reconcile.Answer) probe {
	return func(context.Context, reconcile.Question) (reconcile.Answer, error) { return a, nil }
}

// indexed is a store whose index answers so.
type indexed struct {
	reconcile.Store
	due func(context.Context, protocol.DueQuery) (protocol.DuePage, error)
}

func (s *indexed) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	return s.due(ctx, q)
}

// down is a store with a shard of the index that cannot be read; -1 for none.
func (r *rig) down(bad *int) *indexed {
	return &indexed{r.Faults, func(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
		if q.Shard == *bad {
			return protocol.DuePage{}, &idem.StoreError{Op: "Due", Err: errPlain}
		}
		return r.Faults.Due(ctx, q)
	}}
}
