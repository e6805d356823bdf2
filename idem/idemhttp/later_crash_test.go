package idemhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
)

const keyOfJune = "8e03978e-40d5-43e8-bc93-6894a57f9324"

// front is a process that accepts statements, with its workers behind a queue.
type front struct {
	*idemtest.Harness
	*testing.T
	runs atomic.Int32
}

func newFront(t *testing.T) *front { return &front{Harness: idemtest.New(t, nil), T: t} }

// ask sends a request, n times at once. What the process did not live to answer is nil.
func (f *front) ask(n int, method, path string) (answers []*idemhttp.Response) {
	f.Helper()
	for _, d := range idemtest.DeliverParallel(f.Harness, n, func(ctx context.Context, e *idem.Engine) (*idemhttp.Response, error) {
		c, err := idemhttp.New(e, idemhttp.Routes{"POST /statements": statement}, idemhttp.SingleTenant, &idemhttp.Options{
			Later: idemhttp.LaterRoutes{"POST /statements": {
				Status: "/statements/{id}",
				Enqueue: func(ctx context.Context, id string) error {
					dynamostore.TxOf(ctx).Publish("work", outbox.Message{Destination: "statements", Body: []byte(id)})
					return nil
				},
			}},
		})
		if err != nil {
			return nil, err
		}
		return c.Serve(ctx, &idemhttp.Request{
			Method: method, Path: path, Body: []byte(`{"month":"june"}`),
			Header: map[string][]string{"Content-Type": {"application/json"}, "Idempotency-Key": {keyOfJune}},
		}, nil)
	}) {
		answers = append(answers, d.Value)
	}
	return answers
}

// work delivers each message of the queue.
func (f *front) work() {
	for _, m := range f.Published() {
		idemtest.Deliver(f.Harness, 1, func(ctx context.Context, e *idem.Engine) (idem.Result[int], error) {
			return later.Work(ctx, e, statement, string(m.Body), func(_ context.Context, in map[string]string) (int, error) {
				f.runs.Add(1)
				return len(in["month"]), nil
			})
		})
	}
}

func (f *front) path(accepted *idemhttp.Response) string {
	f.Helper()
	var s idemhttp.LaterState
	require.NoError(f.T, json.Unmarshal(accepted.Body, &s))
	require.Equal(f.T, "statements/"+s.ID, accepted.Headers["Location"])
	return "/statements/" + s.ID
}

// Many send the same request at once: one message, one execution, one status.
func TestARequestIsAcceptedOnceHoweverOftenItIsSent(t *testing.T) {
	f := newFront(t)
	at := ""
	for _, a := range f.ask(16, "POST", "/statements") {
		require.NotNil(t, a)
		require.Equal(t, http.StatusAccepted, a.Status, string(a.Body))
		if at == "" {
			at = f.path(a)
		}
		require.Equal(t, at, f.path(a))
	}
	require.Len(t, f.Published(), 1)
	f.work()
	f.work()
	require.EqualValues(t, 1, f.runs.Load())
	for _, a := range f.ask(16, "GET", at) {
		require.Equal(t, "4", string(a.Body))
	}
}

// The process dies at any of its calls to the store, and starts again: what was answered with 202
// is found and comes to an end, and what was cancelled with 204 never runs.
func TestAnAcceptedRequestIsFoundWhateverDies(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, landed := range []bool{false, true} {
			for _, dying := range []string{"POST", "GET", "DELETE", "work"} {
				t.Run(fmt.Sprintf("%s, call %d, landed %t", dying, n, landed), func(t *testing.T) {
					f := newFront(t)
					var first, gone *idemhttp.Response
					if dying == "POST" {
						f.CrashAfter(n, landed)
						first = f.ask(1, "POST", "/statements")[0]
						f.Restart()
					}
					again := f.ask(1, "POST", "/statements")[0]
					require.NotNil(t, again)
					at := f.path(again)
					if first != nil && first.Status == http.StatusAccepted {
						require.Equal(t, at, f.path(first), "its 202 was sent")
					}
					f.CrashAfter(n, landed)
					switch dying {
					case "GET":
						f.ask(1, "GET", at)
					case "DELETE":
						gone = f.ask(1, "DELETE", at)[0]
					case "work":
						f.work()
					}
					f.Restart()
					f.Clock.Advance(30 * time.Minute) // leases are over
					f.work()
					end := f.ask(1, "GET", at)[0]
					require.NotNil(t, end)
					require.Len(t, f.Published(), 1)
					require.LessOrEqual(t, f.runs.Load(), int32(1))
					switch {
					case gone != nil && gone.Status == http.StatusNoContent:
						require.Zero(t, f.runs.Load())
						require.Contains(t, string(end.Body), idemhttp.CodeCancelled)
					case dying == "DELETE":
						require.Contains(t, []int{http.StatusOK, http.StatusConflict}, end.Status)
						require.Equal(t, end.Status == http.StatusOK, f.runs.Load() == 1)
					case dying == "work":
						// Nobody knows whether an attempt that died had begun.
						require.True(t, end.Status == http.StatusOK || strings.Contains(string(end.Body), string(idemhttp.CodeOutcomeUnknown)), string(end.Body))
					default:
						require.Equal(t, http.StatusOK, end.Status, string(end.Body))
						require.EqualValues(t, 1, f.runs.Load())
					}
				})
			}
		}
	}
}
