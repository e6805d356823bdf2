package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	refund   = idem.Operation{Name: "refund", Values: idem.KeepValues}
	transfer = idem.Operation{Name: "transfer"}
	booking  = idem.Operation{Name: "booking", Repeat: idem.Repeatable}

	errCut = errors.New("POST https://provider.example/refunds: the connection was cut")
)

type receipt struct {
	Number string `json:"number"`
}

// service makes refunds and other things; its table has a console.
type service struct {
	*idemtest.Harness
	t   *testing.T
	r   *reconcile.Reconciler
	url string
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{Harness: idemtest.New(t, nil), t: t}
	var err error
	s.r, err = reconcile.New(s.Store, &reconcile.Options{Now: s.Clock.Now})
	require.NoError(t, err)
	h, err := console.New(s.r, &console.Options{Who: console.ThisMachine("alice"), Now: s.Clock.Now,
		Poll: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(h)
	server.Config.BaseContext = nil
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.url = server.URL
	return s
}

// question is a service with a refund of which nobody knows, whose attempt has ended, and a
// browser at its console.
func question(t *testing.T) (s *service, key idem.Key, b *tab) {
	t.Helper()
	s, key = start(t), refund.Key("acme", "r-1")
	s.cut(key)
	s.lapse()
	return s, key, open(t, s.url)
}

// crash lets the process die in the handler.
func (s *service) crash(key idem.Key) {
	s.t.Helper()
	d := idemtest.Deliver(s.Harness, 1, func(ctx context.Context, e *idem.Engine) (receipt, error) {
		return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (receipt, error) {
			if err := idem.SetReference(ctx, "re_1042"); err != nil {
				return receipt{}, err
			}
			s.Crash()
			return receipt{}, nil
		})
	})
	require.ErrorIs(s.t, d[0].Err, idemtest.ErrCrashed)
	s.Restart()
}

// interrupt lets the process die in an order's charge, which runs at most once.
func (s *service) interrupt(key idem.Key) {
	s.t.Helper()
	d := idemtest.Deliver(s.Harness, 1,
		func(ctx context.Context, _ *idem.Engine) (int, error) { return s.order(ctx, key, s.Crash) })
	require.ErrorIs(s.t, d[0].Err, idemtest.ErrCrashed)
	s.Restart()
	s.lapse()
}

func (s *service) order(ctx context.Context, key idem.Key, charge func()) (int, error) {
	return idem.Do(ctx, s.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(context.Context) (int, error) { charge(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
	})
}

// cut lets the connection to the provider break.
func (s *service) cut(key idem.Key) {
	s.t.Helper()
	_, err := s.call(key, errCut)
	require.Error(s.t, err)
}

func (s *service) call(key idem.Key, fails error) (receipt, error) {
	return idem.Do(s.t.Context(), s.Engine, key, 1,
		func(context.Context, int) (receipt, error) { return receipt{}, fails })
}

// request leaves a question of an HTTP route, and returns what a retry gets.
func (s *service) request() (id string, retry func() *idemhttp.Response) {
	s.t.Helper()
	contract, err := idemhttp.New(s.Engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	require.NoError(s.t, err)
	call := func() (*idemhttp.Response, error) {
		return contract.Serve(s.t.Context(), &idemhttp.Request{
			Method: "POST", Path: "/refunds", Route: "/refunds", Body: []byte("{}"),
			Header: map[string][]string{"Idempotency-Key": {"refund-0000000000001"}, "Content-Type": {"application/json"}},
		}, func(context.Context) (*idemhttp.Response, error) { return nil, errCut })
	}
	_, err = call()
	require.ErrorIs(s.t, err, errCut)
	s.lapse()
	return refund.Key(idem.SingleTenant, "refund-0000000000001").ID(), func() *idemhttp.Response {
		res, err := call()
		require.NoError(s.t, err)
		return res
	}
}

// lapse lets leases end.
func (s *service) lapse() { s.Clock.Advance(idem.DefaultLease + idem.DefaultMargin + time.Second) }

// sweep makes one sweep, which nobody can be asked in.
func (s *service) sweep() {
	s.t.Helper()
	sweeper, err := reconcile.NewSweeper(s.r, &reconcile.SweepOptions{Log: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	_, err = sweeper.Sweep(s.t.Context())
	require.NoError(s.t, err)
}

// busy leaves what a service has open after some hours.
func (s *service) busy() {
	s.t.Helper()
	for _, n := range []string{"t-1", "t-2", "t-3"} {
		s.cut(transfer.Key("globex", n))
	}
	_, err := idem.Do(s.t.Context(), s.Engine, booking.Key("initech", "b-1"),
		1, func(ctx context.Context, _ int) (receipt, error) {
			if _, err := idem.Step(ctx, "seat", func(context.Context) (string, error) { return "12A", nil }, nil); err != nil {
				return receipt{}, err
			}
			return receipt{}, errCut
		})
	require.Error(s.t, err)
	s.Clock.Advance(26 * time.Hour)
	s.sweep()
	s.cut(refund.Key("acme", "r-7"))
	s.cut(refund.Key("globex", "r-8"))
	s.Clock.Advance(100 * time.Minute)
	s.sweep()
	s.cut(transfer.Key("initech", "t-9"))
	s.Clock.Advance(9 * time.Minute)
}
