package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/stretchr/testify/require"
)

// Every row of the contract, in both profiles, through every gateway's adapter.
func TestContract(t *testing.T) {
	for name, entry := range entryPoints {
		var unshown []string
		if name == "ALB" {
			unshown = []string{contract.KeySentTwice} // the balancer passes on the last header only
		}
		t.Run(name, func(t *testing.T) {
			contracttest.InProcess(t, func(e *idem.Engine, o *idemhttp.Options, p *contracttest.Play) contracttest.Client {
				send := entry.open(t, e, contract.Routes(), o, func(ctx context.Context) (*idemhttp.Response, error) {
					a := p.Run()
					if err := a.Do(ctx); err != nil {
						return nil, err
					}
					res := &idemhttp.Response{Status: a.Status, Body: a.Body, Headers: map[string]string{}}
					for name := range a.Header {
						res.Headers[name] = a.Header.Get(name)
					}
					return res, nil
				})
				return func(t *testing.T, r contract.Request) (got contracttest.Reply) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					defer func() {
						if recover() != nil {
							got = contracttest.Reply{Failed: true}
						}
					}()
					got, _ = send(ctx, request{Request: r})
					return got
				}
			}, unshown...)
		})
	}
}

// Two tenants, and two principals where keys are bound to them: the same key and body are two requests, and neither
// sees anything of the other's.
func TestStrangersNeverShareARecord(t *testing.T) {
	for name, entry := range entryPoints {
		for kind, be := range map[string]func(*request, string){
			"tenants":    func(r *request, name string) { r.Tenant, r.principal = name, "anna" },
			"principals": func(r *request, name string) { r.principal = name },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				n := 0
				serve := entry.open(t, newEngine(t, memory()), idemhttp.AnyRoute(charge),
					&idemhttp.Options{Principal: entry.principal}, func(context.Context) (*idemhttp.Response, error) {
						n++
						return &idemhttp.Response{Status: 201, Body: fmt.Appendf(nil, "secret of %d", n)}, nil
					})
				send := func(who string, changes ...contract.Change) contracttest.Reply {
					r := post(changes...)
					be(&r, who)
					return serve.must(t, r)
				}
				for i, who := range []string{"one", "two", "one", "two"} {
					got := send(who)
					require.Equal(t, fmt.Sprintf("secret of %d", i%2+1), got.Body)
					require.Equal(t, i > 1, got.Header.Get(idemhttp.HeaderReplayed) == "true")
				}
				// Reuse is reported to its owner alone.
				other := contract.Body(`{"amount":1}`)
				contracttest.Refused(t, idemhttp.IETF, send("one", other), idemhttp.CodeKeyReused)
				require.Equal(t, "secret of 3", send("three", other).Body)
			})
		}
	}
}

// Behind every gateway: accepted, followed, run by a worker, cancelled, and shown to its tenant alone.
func TestAcceptedWorkIsFollowedBehindEveryGateway(t *testing.T) {
	statement := idem.Operation{Name: "statement"}
	for name, entry := range entryPoints {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, memory())
			handed := ""
			ask := entry.open(t, engine, idemhttp.Routes{"POST /statements": statement},
				&idemhttp.Options{Later: idemhttp.LaterRoutes{"POST /statements": {Status: "/statements/{id}",
					Enqueue: func(_ context.Context, id string) error { handed = id; return nil }}}},
				func(context.Context) (*idemhttp.Response, error) { panic("the handler of accepted work ran") })
			accept := func(key string) (id string) {
				r := post(contract.Header("Idempotency-Key", key), contract.Path("/statements"))
				first := ask.must(t, r)
				require.Equal(t, 202, first.Status, first.Body)
				require.Equal(t, []string{"1"}, first.Header.Values("Retry-After"))
				require.Equal(t, first.Body, ask.must(t, r).Body)
				at := first.Header.Values("Location")
				require.Len(t, at, 1)
				id, ok := strings.CutPrefix(at[0], "statements/")
				require.True(t, ok, at)
				return id
			}
			follow := func(method, id, tenant string, status int) contracttest.Reply {
				t.Helper()
				got := ask.must(t, request{route: "/statements/{id}",
					Request: contract.Request{Method: method, Path: "/statements/" + id, Tenant: tenant, Header: http.Header{}}})
				require.Equal(t, status, got.Status, got.Body)
				return got
			}

			done := accept("key-number-one-of-two")
			var state idemhttp.LaterState
			require.NoError(t, json.Unmarshal([]byte(follow("GET", done, "blue", 202).Body), &state))
			require.Equal(t, idemhttp.LaterState{State: idem.Pending, ID: done}, state)
			worker := SQSWorker(engine, statement, nil, func(_ context.Context, in map[string]any) (int, error) {
				require.Equal(t, "EUR", in["currency"])
				return 3, nil
			})
			res, err := worker(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m", Body: handed}}})
			require.NoError(t, err)
			require.Empty(t, res.BatchItemFailures)
			require.Equal(t, "3", follow("GET", done, "blue", 200).Body)
			require.Empty(t, follow("HEAD", done, "blue", 200).Body)
			follow("DELETE", done, "blue", 409)

			cancelled := accept("key-number-two-of-two")
			none := follow("GET", strings.Repeat("A", 64), "blue", 404)
			require.Equal(t, none, follow("DELETE", cancelled, "green", 404))
			require.Equal(t, none, follow("GET", cancelled, "green", 404))
			require.Equal(t, none, follow("GET", "june", "blue", 404))
			follow("DELETE", cancelled, "blue", 204)
			follow("GET", cancelled, "blue", 409)
		})
	}
}
