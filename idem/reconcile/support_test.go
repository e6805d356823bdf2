package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
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

// rig is a service whose process can be killed, and what is swept after it.
type rig struct {
	*idemtest.Harness
	t *testing.T

	mu          sync.Mutex
	notices     []notice.Notice
	escalations []reconcile.Escalation
	refuse      error // of People
}

func newRig(t *testing.T) *rig { return &rig{Harness: idemtest.New(t, nil), t: t} }

// killed leaves a claim whose process died in its handler.
func (r *rig) killed(key idem.Key) {
	r.t.Helper()
	d := idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, func(context.Context, int) (int, error) {
			r.Crash()
			return 0, nil
		})
	})
	require.ErrorIs(r.t, d[0].Err, idemtest.ErrCrashed)
	r.Restart()
	require.Equal(r.t, idem.InProgress, r.Record(key).State)
}

// call is a call by a client with the key.
func (r *rig) call(key idem.Key, fn func(context.Context, int) (int, error)) (int, error) {
	return idem.Do(r.t.Context(), r.Engine, key, 1, fn)
}

// lapse lets leases end.
func (r *rig) lapse() { r.Clock.Advance(idem.DefaultLease + idem.DefaultMargin + time.Second) }

func (r *rig) reconciler() *reconcile.Reconciler {
	rc, err := reconcile.New(r.Faults, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(r.t, err)
	return rc
}

// sweeper has the options, and people that take what they are sent.
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
	s, err := reconcile.NewSweeper(r.reconciler(), &o)
	require.NoError(r.t, err)
	return s
}

// sweep makes one sweep, and returns what it did.
func (r *rig) sweep(s *reconcile.Sweeper) []notice.Kind {
	r.t.Helper()
	report, err := s.Sweep(r.t.Context())
	require.NoError(r.t, err)
	return kinds(report)
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
	entries, err := r.reconciler().History(r.t.Context(), key.ID())
	require.NoError(r.t, err)
	for _, a := range entries {
		require.NotEmpty(r.t, a.Why)
		all = append(all, a.Change)
	}
	return all
}

// asking is a sweeper whose probe of refunds is this one.
func (r *rig) asking(probe func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error)) *reconcile.Sweeper {
	return r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: refund, Probe: probe}}})
}

// says is a probe that always answers the same.
func says(a reconcile.Answer) func(context.Context, reconcile.Question) (reconcile.Answer, error) {
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
