// Package story is a service whose records are in the states that operators meet, for tests of what they see and do.
package story

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// The operations of the service.
var (
	Refund  = idem.Operation{Name: "refund", Retention: 30 * 24 * time.Hour}
	Payment = idem.Operation{Name: "payment"} // over HTTP
	Order   = idem.Operation{Name: "order"}   // in steps
	Invoice = idem.Operation{Name: "invoice", Repeat: idem.Repeatable, Values: idem.KeepValues}
	Trial   = idem.Operation{Name: "trial", Shadow: true}
)

// ErrCut is an error after which the outcome is unknown.
var ErrCut = errors.New("the connection to the provider was cut")

// Service is one in a test. Its clock shows 9 o'clock.
type Service struct {
	*idemtest.Harness
	t *testing.T
}

// New returns a service without records.
func New(t *testing.T) *Service {
	s := &Service{Harness: idemtest.New(t, nil), t: t}
	s.Clock.Advance(time.Until(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)))
	return s
}

// Key is the key that a text such as refund/acme/r-1 names, by operation, tenant and value. A tenant may be empty.
func Key(text string) idem.Key {
	part := strings.SplitN(text, "/", 3)
	for _, op := range []idem.Operation{Refund, Payment, Order, Invoice, Trial} {
		if op.Name == part[0] {
			tenant := part[1]
			if tenant == "" {
				tenant = idem.SingleTenant
			}
			return op.Key(tenant, part[2])
		}
	}
	panic("no operation of the service: " + text)
}

// End has the handler end with the error, or with a result.
func (s *Service) End(key idem.Key, err error) {
	s.t.Helper()
	_, got := idem.Do(s.t.Context(), s.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		if err == ErrCut {
			require.NoError(s.t, idem.SetReference(ctx, "re_"+strings.Trim(key.Tenant(), idem.SingleTenant)))
		}
		return 7, err
	})
	require.Equal(s.t, err != nil, got != nil, "%v", got)
}

// Unknown leaves attempts whose outcome is unknown, with a reference.
func (s *Service) Unknown(keys ...idem.Key) {
	s.t.Helper()
	for _, key := range keys {
		s.End(key, ErrCut)
	}
}

// Died leaves a claim whose process died in the handler, which calls [idemtest.Harness.Crash].
func (s *Service) Died(key idem.Key, handler func(context.Context, int) (int, error)) {
	s.t.Helper()
	d := idemtest.Deliver(s.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, handler)
	})
	require.ErrorIs(s.t, d[0].Err, idemtest.ErrCrashed)
	s.Restart()
}

// Interrupted leaves an order whose process died in its charge.
func (s *Service) Interrupted(key idem.Key) { s.Died(key, order(s.Crash, func() {})) }

// order is the handler of orders: it charges and ships, each at most once.
func order(charge, ship func()) func(context.Context, int) (int, error) {
	once := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
	return func(ctx context.Context, _ int) (int, error) {
		charged, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { charge(); return 7, nil }, once)
		if err != nil {
			return 0, err
		}
		_, err = idem.Step(ctx, "ship", func(context.Context) (int, error) { ship(); return 1, nil }, once)
		return charged, err
	}
}

// Undoing leaves a claim whose process died while it undid the second of two steps.
func (s *Service) Undoing(key idem.Key) {
	s.t.Helper()
	s.Died(key, func(ctx context.Context, _ int) (int, error) {
		s.Step(ctx, "reserve", s.Crash)
		s.Step(ctx, "pack", func() {})
		return 0, idem.Permanent(errors.New("declined"))
	})
}

// Step is one that is done, and how it is undone.
func (s *Service) Step(ctx context.Context, name string, undo func()) {
	s.t.Helper()
	_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 1, nil },
		&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undo(); return nil }})
	require.NoError(s.t, err)
}

// Payments is the contract of payments. Of a principal there are its own.
func (s *Service) Payments(principal string) *idemhttp.Contract {
	s.t.Helper()
	o := &idemhttp.Options{}
	if principal != "" {
		o.Principal = func(context.Context, *idemhttp.Request) (string, error) { return principal, nil }
	}
	c, err := idemhttp.New(s.Engine, idemhttp.AnyRoute(Payment), idemhttp.SingleTenant, o)
	require.NoError(s.t, err)
	return c
}

// Pay is a request for a payment, which the handler answers with a 502.
func (s *Service) Pay(key, principal string, did func(context.Context)) *idemhttp.Response {
	s.t.Helper()
	res, err := s.Payments(principal).Serve(s.t.Context(), &idemhttp.Request{
		Method: "POST", Path: "/payments", Route: "/payments", Body: []byte(`{"amount":1}`),
		Header: map[string][]string{"Idempotency-Key": {key}, "Content-Type": {"application/json"}},
	}, func(ctx context.Context) (*idemhttp.Response, error) {
		did(ctx)
		return &idemhttp.Response{Status: 502}, nil
	})
	require.NoError(s.t, err)
	return res
}

// Reconciler is one over the service's store, with its faults.
func (s *Service) Reconciler() *reconcile.Reconciler {
	s.t.Helper()
	r, err := reconcile.New(s.Faults, &reconcile.Options{Now: s.Clock.Now})
	require.NoError(s.t, err)
	return r
}

// Resolve is what bob decides.
func (s *Service) Resolve(id string, to idem.State) {
	s.t.Helper()
	res := reconcile.Resolution{To: to}
	if to == idem.Failed {
		res.Failure = &idem.Failure{Message: "declined"}
	}
	require.NoError(s.t, s.Reconciler().Resolve(s.t.Context(), id, res,
		reconcile.Change{Actor: "bob", Reason: "the provider says so"}))
}
