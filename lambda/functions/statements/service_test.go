package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// reports is a provider of reports that cannot read the first ones.
type reports struct {
	keys       map[string]bool
	orders     int
	reads      int
	unreadable int
}

func (p *reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /reports":
		p.orders++
		p.keys[r.Header.Get("Idempotency-Key")] = true
		_, _ = w.Write([]byte(`{"id": "r 1"}`))
	case "GET /reports/r 1":
		if p.reads++; p.reads <= p.unreadable {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"text": "in June"}`))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// function is the worker, and what is accepted for it.
type function struct {
	t       *testing.T
	engine  *idem.Engine
	worker  idemlambda.SQSHandler
	reasons []idemlambda.Reason
}

func newFunction(t *testing.T, reports *reports) *function {
	reports.keys = map[string]bool{}
	srv := httptest.NewServer(reports)
	t.Cleanup(srv.Close)
	f := &function{t: t, engine: idemtest.New(t, nil).Engine}
	f.worker = idemlambda.SQSWorker(f.engine, operation,
		&idemlambda.SQSOptions{OnOutcome: func(_ context.Context, d idemlambda.SQSDelivery) {
			f.reasons = append(f.reasons, d.Reason)
		}}, (&service{provider{srv.URL}}).make)
	return f
}

// accept records the work, as the payments function does, and returns the message that brings it.
func (f *function) accept(in any) (message string) {
	f.t.Helper()
	_, err := later.Accept[statement](f.t.Context(), f.engine, operation.Key("acme", "statement-1"), in,
		func(_ context.Context, id string) error {
			message = id
			return nil
		})
	require.NoError(f.t, err)
	return message
}

// outcome is what a client gets that asks.
func (f *function) outcome(in any) (idem.Result[statement], error) {
	f.t.Helper()
	return later.Accept[statement](f.t.Context(), f.engine, operation.Key("acme", "statement-1"), in, nil)
}

// deliver brings the worker the message.
func (f *function) deliver(body string) idemlambda.Reason {
	f.t.Helper()
	_, err := f.worker(f.t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: rand.Text(), Body: body}}})
	require.NoError(f.t, err)
	return f.reasons[len(f.reasons)-1]
}

// The first attempt orders the report and cannot read it. The next one reads the same report.
func TestAStatementIsMadeOfOneReport(t *testing.T) {
	p := &reports{unreadable: 1}
	f := newFunction(t, p)
	june := request{"june", 1}
	message := f.accept(june)
	require.Equal(t, idemlambda.ReasonReleased, f.deliver(message))
	require.Equal(t, idemlambda.ReasonExecuted, f.deliver(message))
	require.Equal(t, idemlambda.ReasonReplayed, f.deliver(message), "a message that comes again is acknowledged")
	require.Equal(t, []int{1, 2}, []int{p.orders, p.reads})
	require.Len(t, p.keys, 1)
	require.NotContains(t, p.keys, "")
	got, err := f.outcome(june)
	require.NoError(t, err)
	require.Equal(t, statement{"r 1", "in June"}, got.Value)
}

// What is wrong with the request is a failure with the code that the payments function knows.
func TestAStatementThatCannotBeMadeFails(t *testing.T) {
	for name, in := range map[string]request{
		"no size": {Reference: "june"}, "no reference": {Kilobytes: 1}, "too long": {"june", 1025},
	} {
		t.Run(name, func(t *testing.T) {
			p := &reports{}
			f := newFunction(t, p)
			require.Equal(t, idemlambda.ReasonFailed, f.deliver(f.accept(in)))
			_, err := f.outcome(in)
			var failed *idem.RecordedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "bad_request", failed.Code)
			require.Contains(t, failed.Message, "kilobytes from 1 to 1024")
			require.Zero(t, p.orders)
		})
	}
}

// A size that is no number is a mistake that another version may understand: it stays accepted.
func TestAStatementThatCannotBeReadWaits(t *testing.T) {
	p := &reports{}
	f := newFunction(t, p)
	in := map[string]any{"reference": "june", "kilobytes": "a dozen"}
	require.False(t, f.deliver(f.accept(in)).Acknowledges())
	got, err := f.outcome(in)
	require.NoError(t, err)
	require.NotEmpty(t, got.Outcome.StatusID)
	require.Zero(t, p.orders)
}
