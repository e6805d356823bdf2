package idemlambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/stretchr/testify/require"
)

// Behind every gateway: accepted, followed, run by a worker, and told to its tenant alone.
func TestAcceptedWorkIsFollowedBehindEveryGateway(t *testing.T) {
	statement := idem.Operation{Name: "statement"}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, memory())
			var handed []string
			ask := entry.serve(t, engine, idemhttp.Routes{"POST /statements": statement}, func(context.Context) (*idemhttp.Response, error) {
				panic("the handler of accepted work ran")
			}, func(o *idemhttp.Options) {
				o.Later = idemhttp.LaterRoutes{"POST /statements": {Status: "/statements/{id}", Enqueue: func(_ context.Context, id string) error {
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
				res, err := worker(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: handed[len(handed)-1]}}})
				require.NoError(t, err)
				require.Empty(t, res.BatchItemFailures, "a recorded failure is an outcome too")
			}

			done := accept("key-number-one-of-three")
			require.Len(t, handed, 1)
			var state idemhttp.LaterState
			waiting := follow("GET", done, "blue")
			require.Equal(t, 202, waiting.Status)
			require.NoError(t, json.Unmarshal(plain(waiting), &state))
			require.Equal(t, idemhttp.LaterState{State: idem.Pending, ID: done}, state)
			work(nil)
			told := follow("GET", done, "blue")
			require.Equal(t, 200, told.Status)
			require.Equal(t, "3", string(plain(told)))
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
			for _, r := range []*idemhttp.Response{follow("DELETE", gone, "green"), follow("GET", gone, "green"), follow("GET", "june", "blue")} {
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
	return c.must(t, request{method: method, path: "/statements/" + id, route: "/statements/{id}", header: map[string]string{}, tenant: tenant})
}

// only is the value of a header, in whichever map the gateway has it.
func only(t *testing.T, res *idemhttp.Response, name string) string {
	t.Helper()
	v := spread(res)[name]
	require.Len(t, v, 1, name)
	return v[0]
}

// Anyone who asks for what is not theirs, or does not exist, gets one answer, headers and all,
// behind every gateway: whatever there is under the id, in whichever state, and however it is asked for.
func TestStrangersAreAllToldTheSame(t *testing.T) {
	statement, report := idem.Operation{Name: "statement"}, idem.Operation{Name: "report"}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, memory())
			var handed string
			enqueue := func(_ context.Context, id string) error { handed = id; return nil }
			routes := idemhttp.Routes{"POST /statements": statement, "POST /reports": report, "POST /refunds": {Name: "refund"}}
			ask := entry.serve(t, engine, routes, func(context.Context) (*idemhttp.Response, error) {
				return &idemhttp.Response{Status: 201}, nil
			}, func(o *idemhttp.Options) {
				o.Later = idemhttp.LaterRoutes{
					"POST /statements": {Status: "/statements/{id}", Enqueue: enqueue}, "POST /reports": {Status: "/reports/{id}", Enqueue: enqueue},
				}
			})
			send := func(r request) *idemhttp.Response { return ask.must(t, r) }
			accept := func(path, key string) string {
				r := post(header("Idempotency-Key", "the-key-of-"+key), func(r *request) { r.path = path })
				res := send(r)
				require.Equal(t, 202, res.Status, string(res.Body))
				return strings.TrimPrefix(only(t, res, "Location"), strings.TrimPrefix(path, "/")+"/")
			}
			follow := func(method, id, tenant string) *idemhttp.Response { return ask.follow(t, method, id, tenant) }
			work := func(end func() error) {
				_, _ = later.Work(t.Context(), engine, statement, handed, func(context.Context, map[string]any) (int, error) { return 3, end() })
			}
			ids, own := map[string]string{}, map[string]*idemhttp.Response{}
			for state, end := range map[string]func() error{
				"completed": func() error { return nil }, "failed": func() error { return idem.Permanent(errors.New("no such account")) },
				"unknown": func() error { return errors.New("time-out") }, "released": func() error { return idem.NotExecuted(errors.New("busy")) },
			} {
				ids[state] = accept("/statements", state)
				work(end)
			}
			ids["pending"] = accept("/statements", "pending")
			ids["cancelled"] = accept("/statements", "cancelled")
			require.Equal(t, 204, follow("DELETE", ids["cancelled"], "blue").Status)
			for state, id := range ids {
				own[state] = follow("GET", id, "blue")
				require.NotEqual(t, 404, own[state].Status, state)
			}

			none := strings.Repeat("A", 64)
			guess := func(id string, at int) string {
				b, err := base64.RawURLEncoding.DecodeString(id)
				require.NoError(t, err)
				b[at] ^= 1
				return base64.RawURLEncoding.EncodeToString(b)
			}
			asked := map[string][2]string{"nothing, as a stranger": {none, "green"}, "of another operation": {accept("/reports", "report"), "blue"}}
			for state, id := range ids {
				asked[state+", of another tenant"] = [2]string{id, "green"}
				asked[state+", another key"] = [2]string{guess(id, 0), "blue"}
				asked[state+", another ticket"] = [2]string{guess(id, 47), "blue"}
				asked[state+", the ticket of another one"] = [2]string{id[:43] + ids["pending"][43:], "blue"}
				asked[state+", no ticket"] = [2]string{id[:43], "blue"}
				asked[state+", more of it"] = [2]string{id + "A", "blue"}
				asked[state+", its padding"] = [2]string{id + "=", "blue"}
				asked[state+", its capitals"] = [2]string{strings.ToUpper(id), "blue"}
			}
			delete(asked, "pending, the ticket of another one") // its own
			refund := post(header("Idempotency-Key", "the-key-of-a-refund"), func(r *request) { r.path = "/refunds" })
			require.Equal(t, 201, send(refund).Status)
			for key, of := range map[string]idem.Operation{"a-refund": routes["POST /refunds"], "pending": statement} {
				raw, err := base64.RawURLEncoding.DecodeString(of.Key("blue", "the-key-of-"+key).ID()[len("blue#"+of.Name+"#"):])
				require.NoError(t, err)
				for n, ticket := range [][]byte{make([]byte, 16), {}, make([]byte, 15)} {
					asked[fmt.Sprintf("the digest of %s and ticket %d", key, n)] = [2]string{base64.RawURLEncoding.EncodeToString(append(raw, ticket...)), "blue"}
				}
			}
			for _, id := range []string{"june", "the-key-of-pending", ".", "..", "~", "%00", "%2e%2e", strings.Repeat("x", 4000), "*", "null", handed[:4]} {
				asked["malformed "+id[:min(len(id), 20)]] = [2]string{id, "blue"}
			}
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				want := follow(method, none, "blue")
				require.Equal(t, 404, want.Status)
				require.Equal(t, method == "HEAD", len(want.Body) == 0)
				for what, a := range asked {
					if strings.HasPrefix(name, "Middleware") && strings.Contains(a[0], ".") {
						continue // a mux redirects these paths to clean ones
					}
					require.Equal(t, want, follow(method, a[0], a[1]), "%s %s", method, what)
				}
			}
			for state, id := range ids {
				require.Equal(t, own[state].Status, follow("GET", id, "blue").Status, "nothing has changed")
			}
		})
	}
}
