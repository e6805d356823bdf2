package console

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

var refund = idem.Operation{Name: "refund", Values: idem.KeepValues}

type receipt struct {
	Number string `json:"number"`
}

// service is one whose table has a console.
type service struct {
	*story.Service
	t   *testing.T
	r   *reconcile.Reconciler
	url string
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{Service: story.New(t), t: t}
	s.r = s.Reconciler()
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

// question is a service with a refund whose outcome is unknown, whose attempt has ended, and a browser at its console.
func question(t *testing.T) (s *service, key idem.Key, b *tab) {
	t.Helper()
	s, key = start(t), refund.Key("acme", "r-1")
	s.Unknown(key)
	s.lapse()
	return s, key, open(t, s.url)
}

func (s *service) call(key idem.Key, fails error) (receipt, error) {
	return idem.Do(s.t.Context(), s.Engine, key, 1,
		func(context.Context, int) (receipt, error) { return receipt{}, fails })
}

// lapse lets leases end.
func (s *service) lapse() { s.happens("1m later") }

func (s *service) happens(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		s.Happens(line, nil)
	}
}

// busy leaves what a service has open after some hours.
func (s *service) busy() {
	s.t.Helper()
	s.happens("unknown: order/globex/t-1 order/globex/t-2 order/globex/t-3", "unknown after a step: invoice/initech/b-1",
		"26h later", "a sweep", "unknown: refund/acme/r-7 refund/globex/r-8",
		"100m later", "a sweep", "unknown: order/initech/t-9", "9m later")
}
