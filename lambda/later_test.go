package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

// Behind every gateway: accepted, followed, run by a worker, and told to its tenant alone.
func TestAcceptedWorkIsFollowedBehindEveryGateway(t *testing.T) {
	statement := idem.Operation{Name: "statement"}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, memory())
			var handed []string
			ask := entry.serve(engine, idemhttp.Routes{"POST /statements": statement},
				func(context.Context) (*idemhttp.Response, error) {
					panic("the handler of accepted work ran")
				}, func(o *idemhttp.Options) {
					o.Later = idemhttp.LaterRoutes{"POST /statements": {Status: "/statements/{id}",
						Enqueue: func(_ context.Context, id string) error {
							handed = append(handed, id)
							return nil
						}}}
				})
			send := func(r request) *idemhttp.Response { return ask.must(t, r) }
			accept := func(key string) (id string) {
				r := post(header("Idempotency-Key", key), func(r *request) { r.path = "/statements" })
				first := send(r)
				require.Equal(t, 202, first.Status, string(first.Body))
				at := only(t, first, "Location")
				id, ok := strings.CutPrefix(at, "statements/")
				require.True(t, ok, at)
				require.Equal(t, "1", only(t, first, "Retry-After"))
				require.Equal(t, first.Body, send(r).Body)
				return id
			}
			follow := func(method, id, tenant string) *idemhttp.Response { return ask.follow(t, method, id, tenant) }
			work := func(end error) {
				worker := SQSWorker(engine, statement, nil, func(_ context.Context, in map[string]any) (int, error) {
					require.Equal(t, "EUR", in["currency"])
					return 3, end
				})
				res, err := worker(t.Context(),
					events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: handed[len(handed)-1]}}})
				require.NoError(t, err)
				require.Empty(t, res.BatchItemFailures, "a recorded failure is an outcome too")
			}

			done := accept("key-number-one-of-three")
			require.Len(t, handed, 1)
			var state idemhttp.LaterState
			waiting := follow("GET", done, "blue")
			require.Equal(t, 202, waiting.Status)
			require.NoError(t, json.Unmarshal(waiting.Body, &state))
			require.Equal(t, idemhttp.LaterState{State: idem.Pending, ID: done}, state)
			work(nil)
			told := follow("GET", done, "blue")
			require.Equal(t, 200, told.Status)
			require.Equal(t, "3", string(told.Body))
			head := follow("HEAD", done, "blue")
			require.Equal(t, 200, head.Status)
			require.Empty(t, head.Body)

			failed := accept("key-number-two-of-three")
			work(idem.Permanent(errors.New("no such account")))
			require.Equal(t, 500, follow("GET", failed, "blue").Status)

			gone := accept("key-number-three-of-three")
			require.Equal(t, 409, follow("DELETE", done, "blue").Status)
			none := follow("GET", strings.Repeat("A", 64), "blue")
			require.Equal(t, 404, none.Status)
			for _, r := range []*idemhttp.Response{follow("DELETE", gone, "green"), follow("GET", gone, "green"),
				follow("GET", "june", "blue")} {
				require.Equal(t, none, r)
			}
			require.Equal(t, 204, follow("DELETE", gone, "blue").Status)
			require.Equal(t, 409, follow("GET", gone, "blue").Status)
		})
	}
}

func (c client) must(t *testing.T, r request) *idemhttp.Response {
	t.Helper()
	res, err := c(t.Context(), r)
	require.NoError(t, err)
	return res
}

// follow asks for the status of a statement.
func (c client) follow(t *testing.T, method, id, tenant string) *idemhttp.Response {
	t.Helper()
	return c.must(t, request{method: method, path: "/statements/" + id, route: "/statements/{id}",
		header: map[string]string{}, tenant: tenant})
}

// only is the value of a header, in whichever map the gateway has it.
func only(t *testing.T, res *idemhttp.Response, name string) string {
	t.Helper()
	v := spread(res)[name]
	require.Len(t, v, 1, name)
	return v[0]
}
