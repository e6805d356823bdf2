package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// rig is the payments function's contract, the sweeper, and a provider.
type rig struct {
	*idemtest.Harness
	client  provider
	sweeper *reconcile.Sweeper
	ran     int
}

func newRig(t *testing.T, answer http.HandlerFunc) *rig {
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	r := &rig{Harness: idemtest.New(t, nil), client: provider{srv.URL}}
	known, err := operations(r.Engine, r.client, time.Hour)
	require.NoError(t, err)
	reconciler, err := reconcile.New(r.Store, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(t, err)
	r.sweeper, err = reconcile.NewSweeper(reconciler, &reconcile.SweepOptions{Operations: known})
	require.NoError(t, err)
	return r
}

// serve sends the client's request; the handler refunds, and dies if die is set.
func (r *rig) serve(t *testing.T, die bool) (*idemhttp.Response, error) {
	contract, err := idemhttp.New(r.Engine, idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	require.NoError(t, err)
	request := &idemhttp.Request{
		Method: "POST", Path: "/refunds", Route: "/refunds", Body: []byte(`{"amount":100,"currency":"EUR"}`),
		Header: map[string][]string{"Idempotency-Key": {"key-0123456789abc"}, "Content-Type": {"application/json"}},
	}
	return contract.Serve(t.Context(), request, func(ctx context.Context) (*idemhttp.Response, error) {
		r.ran++
		sent, err := http.NewRequestWithContext(ctx, http.MethodPost, r.client.url+"/refunds", nil)
		require.NoError(t, err)
		sent.Header.Set("Merchant-Reference", idem.Token(ctx))
		res, err := http.DefaultClient.Do(sent)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if die {
			r.Crash()
		}
		return &idemhttp.Response{Status: http.StatusCreated, Body: []byte("{}")}, nil
	})
}

// retry is what the client gets that sends the request again after its process died and the sweep has been there.
func (r *rig) retry(t *testing.T) *idemhttp.Response {
	_, _ = r.serve(t, true) // no process learns of it
	r.Restart()
	r.Clock.Advance(time.Minute)
	_, err := r.sweeper.Sweep(t.Context())
	require.NoError(t, err)
	res, err := r.serve(t, false)
	require.NoError(t, err)
	return res
}

func TestRefundThatTheProviderHas(t *testing.T) {
	made := ""
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			made = req.Header.Get("Merchant-Reference")
		} else if req.URL.Query().Get("reference") != made {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(`{"id":"re_1","amount":100,"currency":"EUR"}`))
	})
	res := r.retry(t)
	require.Equal(t, http.StatusCreated, res.Status)
	require.Equal(t, `{"id":"re_1","amount":100,"currency":"EUR"}`, string(res.Body), "as the handler would have answered")
	require.Equal(t, "true", res.Headers[idemhttp.HeaderReplayed])
	require.Equal(t, 1, r.ran)
}

// Where the provider has not got the refund, nothing happened the first time. One that does not answer
// is asked until the question is a person's.
func TestRefundThatTheProviderHasNot(t *testing.T) {
	for status, want := range map[int]struct{ answer, ran, escalated int }{
		http.StatusNotFound:           {http.StatusCreated, 2, 0},
		http.StatusServiceUnavailable: {http.StatusConflict, 1, 1},
	} {
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodGet {
				w.WriteHeader(status)
				return
			}
			_, _ = w.Write([]byte(`{"id":"re_1"}`))
		})
		res := r.retry(t)
		require.Equal(t, want.answer, res.Status)
		require.Equal(t, want.answer == http.StatusConflict, strings.Contains(string(res.Body), "outcome_unknown"))
		require.Equal(t, want.ran, r.ran)
		r.Clock.Advance(time.Hour)
		report, err := r.sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, want.escalated, report.Escalated)
	}
}

func TestEscalateAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"": reconcile.DefaultProbeAge, "30m": 30 * time.Minute} {
		age, err := escalateAfter(text)
		require.NoError(t, err)
		require.Equal(t, want, age)
	}
	for _, text := range []string{"30", "-1m", "0s", "soon"} {
		_, err := escalateAfter(text)
		require.ErrorContains(t, err, "use a positive duration", text)
	}
}
