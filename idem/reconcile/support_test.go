package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	t     *testing.T
	owner string // of the claim of a killed process, where a test needs it

	mu          sync.Mutex
	notices     []notice.Notice
	escalations []reconcile.Escalation
	refuse      error // of Operators
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Harness: idemtest.New(t, nil), t: t}
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

// crash leaves the claim of a process that died in the handler, which calls r.Crash.
func (r *rig) crash(key idem.Key, handler func(context.Context, int) (int, error)) {
	r.t.Helper()
	require.ErrorIs(r.t, r.deliver(key, handler), idemtest.ErrCrashed)
}

// deliver runs the handler in a process of its own, which it may crash.
func (r *rig) deliver(key idem.Key, handler func(context.Context, int) (int, error)) error {
	defer r.Restart()
	return idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, handler)
	})[0].Err
}

// ended is a rig with a refund whose attempt ended with the error.
func ended(t *testing.T, err error) (*rig, idem.Key) {
	t.Helper()
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.end(key, err)
	return r, key
}

// resolve is a resolution by alice that is taken.
func (r *rig) resolve(key idem.Key, res reconcile.Resolution) {
	r.t.Helper()
	require.NoError(r.t, r.Resolve(r.t.Context(), key.ID(), res, alice))
}

// renew is what the attempt does that has the claim.
func (r *rig) renew(rec *idem.Record, lease time.Duration) error {
	now := r.Clock.Now()
	return r.Store.Extend(r.t.Context(), now, protocol.Extension{
		ID: rec.ID, Owner: rec.Owner, Write: fmt.Sprint("beat ", now), LeaseUntil: now.Add(lease),
	})
}

// done is a step that is done, and how it is undone.
func (r *rig) done(ctx context.Context, name string, undo func() error) {
	r.t.Helper()
	_, err := idem.Step(ctx, name, func(context.Context) (string, error) { return name + " 7", nil },
		&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return undo() }})
	require.NoError(r.t, err)
}

func nothing() error { return nil }

// killed leaves a claim whose process died outside its steps.
func (r *rig) killed(key idem.Key) {
	r.t.Helper()
	r.crash(key, func(context.Context, int) (int, error) { r.Crash(); return 0, nil })
	require.Equal(r.t, idem.InProgress, r.Record(key).State)
}

// lapsed is a rig with a killed claim whose lease is over.
func lapsed(t *testing.T, op idem.Operation) (*rig, idem.Key) {
	t.Helper()
	r, key := newRig(t), op.Key("acme", "r-1")
	r.killed(key)
	r.lapse()
	return r, key
}

// crashCharging leaves an order whose process died in its at-most-once charge, after a step
// that has a compensation. Its lease is over.
func (r *rig) crashCharging(key idem.Key) {
	r.t.Helper()
	r.crash(key, shopping(new(orderEffects), r.Crash))
	r.lapse()
}

// interrupted is a rig with such an order.
func interrupted(t *testing.T) (*rig, idem.Key) {
	t.Helper()
	r, key := newRig(t), order.Key("acme", "o-1")
	r.crashCharging(key)
	return r, key
}

// call is a call by a client with the key.
func (r *rig) call(key idem.Key, fn func(context.Context, int) (int, error)) (int, error) {
	return idem.Do(r.t.Context(), r.Engine, key, 1, fn)
}

// gets checks that the call returns this.
func (r *rig) gets(key idem.Key, handler func(context.Context, int) (int, error), want int) {
	r.t.Helper()
	out, err := r.call(key, handler)
	require.NoError(r.t, err)
	require.Equal(r.t, want, out)
}

// ends checks that the call returns no error.
func (r *rig) ends(key idem.Key, handler func(context.Context, int) (int, error)) {
	r.t.Helper()
	_, err := r.call(key, handler)
	require.NoError(r.t, err)
}

// fails checks that the call returns the error, or one of the type that want points to; nil stands
// for any.
func (r *rig) fails(key idem.Key, handler func(context.Context, int) (int, error), want any) {
	r.t.Helper()
	_, err := r.call(key, handler)
	require.Error(r.t, err)
	switch want := want.(type) {
	case nil:
	case error:
		require.ErrorIs(r.t, err, want)
	default: // a pointer to an error's type
		require.ErrorAs(r.t, err, want)
	}
}

// owes checks that the resolution is refused because of what has been undone, or has not.
func (r *rig) owes(err error, want reconcile.NotUndoneError) {
	r.t.Helper()
	var refused *reconcile.NotUndoneError
	require.ErrorAs(r.t, err, &refused)
	require.Equal(r.t, want, *refused)
}

// unpaid is that of a failure over steps that have not been undone.
func unpaid(steps ...string) reconcile.NotUndoneError {
	return reconcile.NotUndoneError{To: idem.Failed, Steps: steps}
}

// put puts a record into the store as it is.
func (r *rig) put(now time.Time, rec idem.Record) {
	r.t.Helper()
	require.NoError(r.t, r.Store.Acquire(r.t.Context(), now, protocol.Claim{Record: rec}))
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

// lapse lets leases end.
func (r *rig) lapse() { r.Clock.Advance(idem.DefaultLease + idem.DefaultMargin + time.Second) }

// sweeper has the options, and operators that take what they are sent.
func (r *rig) sweeper(o reconcile.SweepOptions) *reconcile.Sweeper {
	r.t.Helper()
	if o.Escalate == nil {
		o.Escalate = func(_ context.Context, g reconcile.Escalation) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.escalations = append(r.escalations, g)
			return r.refuse
		}
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

// sweep makes one sweep, and returns what it did.
func (r *rig) sweep(s *reconcile.Sweeper) []notice.Kind {
	r.t.Helper()
	return kinds(r.report(s))
}

// sweeps makes so many sweeps, each after a pause.
func (r *rig) sweeps(s *reconcile.Sweeper, times int, pause time.Duration) {
	r.t.Helper()
	for range times {
		r.Clock.Advance(pause)
		r.sweep(s)
	}
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

// changes are those of the record from outside.
func (r *rig) changes(key idem.Key) (all []protocol.Change) {
	r.t.Helper()
	entries, err := r.History(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	for _, a := range entries {
		require.NotEmpty(r.t, a.Why)
		all = append(all, a.Change)
	}
	return all
}

// probe asks a provider.
type probe = func(context.Context, reconcile.Question) (reconcile.Answer, error)

// probing is a sweeper whose probe of the operation is this one.
func (r *rig) probing(op idem.Operation, ask probe) *reconcile.Sweeper {
	return r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: op, Probe: ask}}})
}

// asking is one of refunds.
func (r *rig) asking(ask probe) *reconcile.Sweeper { return r.probing(refund, ask) }

// says is a probe that always answers the same.
func says(a reconcile.Answer) probe {
	return func(context.Context, reconcile.Question) (reconcile.Answer, error) { return a, nil }
}

type receipt struct{ ID string }

// picky is a result whose own decoder panics at what it does not know.
type picky struct{ ID string }

func (p *picky) UnmarshalJSON(b []byte) error {
	var m map[string]string
	_ = json.Unmarshal(b, &m)
	p.ID = m["id"][:3]
	return nil
}

func (p picky) MarshalJSON() ([]byte, error) { return json.Marshal(map[string]string{"id": p.ID}) }

// coded is a handler's error with a code of its own.
type coded struct {
	error
	code string
}

func (c coded) ErrorCode() string { return c.code }
func (c coded) Unwrap() error     { return c.error }

// orderEffects counts what an order did.
type orderEffects struct {
	reserved, charged, shipped, returned, asked int
}

// shopping reserves, charges at most once, and ships; charging ends in died.
func shopping(s *orderEffects, died func()) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { s.reserved++; return 1, nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { s.returned++; return nil }})
		if err != nil {
			return 0, err
		}
		id, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { s.charged++; died(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(context.Context, time.Time) (int, error) { s.asked++; return 7, nil }})
		if err != nil {
			return 0, idem.PermanentStep(err)
		}
		return id, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
	}
}

// charge is a handler with the charge as its only step, whose result has the type T.
func charge[T any](s *orderEffects, result T) func(context.Context, int) (int, error) {
	return chargeWith(s, result, &idem.StepConfig[T]{Semantics: idem.AtMostOnce})
}

// refundable is a charge with a compensation.
func refundable[T any](s *orderEffects, result T) func(context.Context, int) (int, error) {
	return chargeWith(s, result, undoing[T](s))
}

func undoing[T any](s *orderEffects) *idem.StepConfig[T] {
	return &idem.StepConfig[T]{Semantics: idem.AtMostOnce,
		Compensate: func(context.Context, T) error { s.returned++; return nil }}
}

func chargeWith[T any](s *orderEffects, result T, conf *idem.StepConfig[T]) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "charge", func(context.Context) (T, error) { s.charged++; return result, nil }, conf)
		if err == nil {
			s.shipped++ // nothing of it is recorded
		}
		return s.shipped, err
	}
}
