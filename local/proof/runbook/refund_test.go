package runbook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// provider makes a refund and then keeps its answer to itself, also to a sweep that asks.
type provider struct {
	mu      sync.Mutex
	refunds []string // the callers' names for them
	got     chan struct{}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.Error(w, "closed for maintenance", http.StatusServiceUnavailable)
		return
	}
	p.mu.Lock()
	p.refunds = append(p.refunds, r.Header.Get("Merchant-Reference"))
	p.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the caller has disconnected
	p.got <- struct{}{}
	<-r.Context().Done()
}

// start starts an example function.
func start(t *testing.T, name string, timeout time.Duration, output io.Writer, env ...string) *runtime.Pool {
	t.Helper()
	return rig.Start(t, table(t), dynamotest.Endpoint(t), runtime.Function{
		Path: testmain.Program(t, "../../../lambda/functions/"+name), Timeout: timeout, Env: env,
	}, &runtime.Options{Output: output})
}

// The whole story: the process of a refund dies after the provider has got the request; the
// provider tells the sweep nothing; an alarm calls a person, who follows the page; and the
// customer's retry gets the receipt, of the one refund that there is.
func TestACrashedRefundIsSettledWithTheRunbooksCommands(t *testing.T) {
	r, s := newReader(t), newScene(t, 0)
	atProvider := &provider{got: make(chan struct{}, 9)}
	server := httptest.NewServer(atProvider)
	t.Cleanup(server.Close)
	var said bytes.Buffer // by the sweeper
	escalations := queuetest.New(t, queuetest.Spec{})
	payments := start(t, "payments", 2*time.Second, nil, "PROVIDER_URL="+server.URL, "PAYMENTS_TENANT=none")
	sweeper := start(t, "refundsweeper", 20*time.Second, &said, "PROVIDER_URL="+server.URL, "ESCALATE_AFTER=1ms",
		"AWS_ENDPOINT_URL_SQS="+queuetest.Endpoint(t), schema.EnvSweepEscalations+"="+escalations.URL)

	in := events.APIGatewayV2HTTPRequest{
		RouteKey: "POST /refunds", RawPath: "/refunds", Body: `{"amount":100,"currency":"EUR"}`,
		Headers: map[string]string{"idempotency-key": "refund-of-order-4711", "content-type": "application/json"},
	}
	in.RequestContext.HTTP.Method = http.MethodPost
	event, err := json.Marshal(in)
	require.NoError(t, err)
	// A request that DynamoDB Local is too slow for is sent again, as by any client.
	ask := func() (out events.APIGatewayV2HTTPResponse) {
		for out.StatusCode == 0 || out.StatusCode == http.StatusServiceUnavailable {
			answer, err := payments.Call(t.Context(), event)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(answer, &out))
		}
		return out
	}

	// The crash.
	dead := make(chan runtime.Result, 1)
	send := func() {
		result, _ := payments.Invoke(context.Background(), event, nil)
		dead <- result
	}
	go send()
	for reached := false; !reached; {
		select {
		case <-atProvider.got:
			reached = true
		case refused := <-dead:
			require.Contains(t, string(refused.Payload), `"statusCode":503`)
			go send()
		}
	}
	require.NoError(t, payments.Kill(payments.InFlight()[0].PID))
	require.True(t, (<-dead).Killed)
	retry := ask()
	require.Equal(t, http.StatusConflict, retry.StatusCode)
	require.Contains(t, retry.Body, "idempotency_key_in_progress")

	// The sweeps, until one escalates it, which raises the alarms.
	require.Eventually(t, func() bool {
		_, err := sweeper.Call(t.Context(), []byte(`{}`))
		require.NoError(t, err)
		return queuetest.Held(t, queuetest.Client(t), escalations.URL) > 0
	}, time.Minute, 500*time.Millisecond)
	sweeper.Close()
	require.Regexp(t, `"Namespace":"`+schema.MetricNamespace+`","Dimensions":\[\["`+schema.DimensionService+`"\].*"`+
		schema.DimensionService+`":"refundsweeper".*"`+schema.MetricEscalated+`":1\b`, said.String(),
		"which raises Escalated")
	retry = ask()
	require.Equal(t, http.StatusConflict, retry.StatusCode)
	require.Contains(t, retry.Body, "outcome_unknown")

	// The person, who knows only the page, and takes the record's id from the list.
	shown := r.follow(blockOf(t, "Escalated", 0), "")
	id := refund.Key(idem.SingleTenant, "refund-of-order-4711").ID()
	require.Contains(t, shown, id)
	shown = r.follow(blockOf(t, "Settling", 0), id)
	require.Len(t, atProvider.refunds, 1)
	require.Contains(t, shown, atProvider.refunds[0], "the token, by which the provider knows the refund")
	require.Contains(t, shown, "outcome_unknown")
	r.follow(blockOf(t, "Settling", 1), id) // the provider's console has refund re_1

	// The customer.
	for range 2 {
		retry = ask()
		require.Equal(t, http.StatusCreated, retry.StatusCode)
		require.JSONEq(t, `{"id":"re_1","amount":100,"currency":"EUR"}`, retry.Body)
		require.Equal(t, "application/json", retry.Headers["Content-Type"])
		require.Equal(t, "true", retry.Headers["Idempotency-Replayed"])
	}
	require.Len(t, atProvider.refunds, 1, "one refund")
	require.NotContains(t, r.follow(blockOf(t, "Escalated", 0), ""), id, "nothing is left")
	history, err := s.reconciler().History(t.Context(), id)
	require.NoError(t, err)
	who := map[protocol.Change]string{} // idemctl's clock has seconds: in the same one its entry may come first
	for _, a := range history {
		who[a.Change] = a.Who
	}
	require.Equal(t, "alice", who[protocol.ChangeResolved])
	require.Equal(t, "refundsweeper", who[protocol.ChangeEscalated], "the sweep's changes are there too")
}
