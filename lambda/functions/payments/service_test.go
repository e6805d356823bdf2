package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// provided is the deployed handler over an in-memory store, and a provider that answers so.
func provided(t *testing.T, answer http.HandlerFunc) func(route, key, body string) (response, error) {
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return function(t, srv.URL)
}

func function(t *testing.T, url string) func(route, key, body string) (response, error) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	s := &service{provider: provider{url}}
	handler, err := s.behind(engine, "http", "none")
	require.NoError(t, err)
	h := handler.(idemlambda.HTTPAPIHandler)
	return func(route, key, body string) (response, error) {
		r := request{RouteKey: route, Body: body, Headers: map[string]string{
			"idempotency-key": key, "content-type": "application/json",
		}}
		r.RequestContext.HTTP.Method = "POST"
		return h(context.Background(), r)
	}
}

const good = `{"amount": 100, "currency": "EUR"}`

func TestProviderGetsTheTokenWhereItTakesOne(t *testing.T) {
	var keys []string
	call := provided(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.URL.Path+" "+r.Header.Get("Idempotency-Key")+" "+r.Header.Get("Merchant-Reference"))
		_, _ = w.Write([]byte(`{"id": "ch_1"}`))
	})
	for range 2 {
		for _, route := range []string{"POST /payments", "POST /refunds"} {
			res, err := call(route, "key-0123456789abc", good)
			require.NoError(t, err)
			require.Equal(t, 201, res.StatusCode)
		}
	}
	require.Len(t, keys, 2, "each ran once")
	require.Regexp(t, `^/charges [0-9a-f-]{36} $`, keys[0])
	require.Regexp(t, `^/refunds  [0-9a-f-]{36}$`, keys[1], "a name to ask for it by, and no key")
}

func TestDeclinedIsRecorded(t *testing.T) {
	asked := 0
	call := provided(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusPaymentRequired)
	})
	for range 2 {
		res, err := call("POST /refunds", "key-0123456789abc", good)
		require.NoError(t, err)
		require.Equal(t, 402, res.StatusCode)
	}
	require.Equal(t, 1, asked)
}

// A refused connection excludes a refund; a broken answer does not.
func TestWhatARefundMayTryAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	call := function(t, "http://"+addr)
	for range 2 {
		_, err := call("POST /refunds", "key-0123456789abc", good)
		var dial *net.OpError
		require.True(t, errors.As(err, &dial), "ran, and was refused again: %v", err)
	}

	call = provided(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = call("POST /refunds", "key-0123456789abc", good)
	require.Error(t, err)
	res, err := call("POST /refunds", "key-0123456789abc", good)
	require.NoError(t, err)
	require.Equal(t, 409, res.StatusCode)
	require.Contains(t, res.Body, "outcome_unknown")
}

func TestBadRequestsAreNotRecorded(t *testing.T) {
	call := function(t, "http://127.0.0.1:1")
	for _, route := range []string{"POST /payments", "POST /refunds"} {
		for range 2 {
			res, err := call(route, "key-0123456789abc", `{}`)
			require.NoError(t, err)
			require.Equal(t, 400, res.StatusCode)
			require.NotContains(t, res.Headers, idemhttp.HeaderReplayed)
		}
	}
}

// The provider has made the refund and redirects to it. That there is no connection to where it leads says
// nothing about the refund.
func TestARedirectAfterARefundDoesNotRepeatIt(t *testing.T) {
	refunds := 0
	call := provided(t, func(w http.ResponseWriter, _ *http.Request) {
		refunds++
		w.Header().Set("Location", "http://127.0.0.1:1/refunds/re_1")
		w.WriteHeader(http.StatusSeeOther)
	})
	for range 2 {
		_, _ = call("POST /refunds", "key-0123456789abc", good)
	}
	require.Equal(t, 1, refunds)
}
