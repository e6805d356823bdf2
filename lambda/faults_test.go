package idemlambda

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/stretchr/testify/require"
)

// Two identical requests at the same moment: one execution.
func TestDuplicatesAtOnce(t *testing.T) {
	for name, d := range entryPoints {
		t.Run(name, func(t *testing.T) {
			started, release := make(chan struct{}), make(chan struct{})
			serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), func(context.Context) (*idemhttp.Response, error) {
				close(started) // a second execution panics
				<-release
				return &idemhttp.Response{Status: 201, Body: []byte("made")}, nil
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				res, err := serve(t.Context(), post())
				if err != nil || res.Status != 201 {
					t.Errorf("the first got %v %v", res, err)
				}
			})
			<-started
			res, err := serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 409, code: idemhttp.CodeInProgress}.check(t, res, idemhttp.IETF)
			require.Regexp(t, "^[1-5]$", wire(res)["retry-after"])
			close(release)
			wg.Wait()
			res, err = serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 201, body: "made", replay: true}.check(t, res, idemhttp.IETF)
		})
	}
}

// looking is a store that tells when a duplicate reads the record that it waits for.
type looking struct {
	idem.Store
	once sync.Once
	seen chan struct{}
}

func (s *looking) Get(ctx context.Context, id string) (*idem.Record, error) {
	s.once.Do(func() { close(s.seen) })
	return s.Store.Get(ctx, id)
}

// With waiting on, the duplicate gets what the first gets, byte for byte.
func TestDuplicatesWait(t *testing.T) {
	for name, d := range entryPoints {
		t.Run(name, func(t *testing.T) {
			store := &looking{Store: memory(), seen: make(chan struct{})}
			started, n := make(chan struct{}), 0
			engine, err := idem.New(store, &idem.Options{Wait: 20 * time.Second, Now: func() time.Time { return noon }})
			require.NoError(t, err)
			serve := d.serve(t, engine, idemhttp.AnyRoute(charge), func(context.Context) (*idemhttp.Response, error) {
				n++
				close(started)
				<-store.seen // the duplicate waits
				return &idemhttp.Response{Status: 201, Headers: map[string]string{"X-Own": "1"}, Body: []byte(`{"id":"ch_1"}`)}, nil
			})
			var first *idemhttp.Response
			var fault error
			var wg sync.WaitGroup
			wg.Go(func() { first, fault = serve(t.Context(), post()) })
			<-started
			second, err := serve(t.Context(), post())
			require.NoError(t, err)
			wg.Wait()
			require.NoError(t, fault)
			require.Equal(t, 1, n)
			require.Equal(t, 201, first.Status)
			require.Equal(t, "true", wire(second)["idempotency-replayed"])
			require.Equal(t, unmarked(wire(first)), unmarked(wire(second)))
			require.Equal(t, first.Body, second.Body)
			require.Equal(t, first.Status, second.Status)
		})
	}
}

// Two tenants, and two principals where keys are bound to them: the same key and
// body are two requests, and neither sees anything of the other's.
func TestStrangersNeverShareARecord(t *testing.T) {
	for name, d := range entryPoints {
		for who, change := range map[string]func(*request, string){
			"tenants":    func(r *request, name string) { r.tenant = name },
			"principals": func(r *request, name string) { r.principal = name },
		} {
			t.Run(name+"/"+who, func(t *testing.T) {
				n := 0
				next := func(context.Context) (*idemhttp.Response, error) {
					n++
					return &idemhttp.Response{Status: 201, Body: fmt.Appendf(nil, "secret of %d", n)}, nil
				}
				serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), next, d.bindPrincipal)
				send := func(who string, more ...func(*request)) *idemhttp.Response {
					more = append(more, func(r *request) {
						r.principal = "anna"
						change(r, who)
					})
					res, err := serve(t.Context(), post(more...))
					require.NoError(t, err)
					return res
				}
				for i, who := range []string{"one", "two"} {
					res := send(who)
					want{status: 201, body: fmt.Sprintf("secret of %d", i+1)}.check(t, res, idemhttp.IETF)
				}
				require.Equal(t, 2, n)
				for i, who := range []string{"one", "two"} {
					want{status: 201, body: fmt.Sprintf("secret of %d", i+1), replay: true}.check(t, send(who), idemhttp.IETF)
				}
				// Reuse is told to its owner alone.
				other := func(r *request) { r.body = `{"amount":1}` }
				want{status: 422, code: idemhttp.CodeKeyReused}.check(t, send("one", other), idemhttp.IETF)
				want{status: 201, body: "secret of 3"}.check(t, send("three", other), idemhttp.IETF)
			})
		}
	}
}

// Where keys are not bound, a tenant's principals share them.
func TestPrincipalsShareKeysByDefault(t *testing.T) {
	for name, d := range entryPoints {
		t.Run(name, func(t *testing.T) {
			serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), answering(201, "made"))
			for i, who := range []string{"anna", "ben"} {
				res, err := serve(t.Context(), post(func(r *request) { r.principal = who }))
				require.NoError(t, err)
				want{status: 201, body: "made", replay: i == 1}.check(t, res, idemhttp.IETF)
			}
		})
	}
}

// Errors and panics of the handler pass through every gateway as they are. A
// net/http handler has no errors, and its panics end the connection.
func TestFaultsOfTheHandlerPassThrough(t *testing.T) {
	for name, d := range entryPoints {
		t.Run(name, func(t *testing.T) {
			own := errors.New("own")
			overHTTP := strings.HasPrefix(name, "Middleware")
			if !overHTTP {
				serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), func(context.Context) (*idemhttp.Response, error) { return nil, own })
				_, err := serve(t.Context(), post())
				require.True(t, err == own)
			}
			serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), func(context.Context) (*idemhttp.Response, error) {
				panic(http.ErrAbortHandler)
			})
			if overHTTP {
				_, err := serve(t.Context(), post())
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = serve(t.Context(), post()) })
			}
			res, err := serve(t.Context(), post())
			require.NoError(t, err)
			want{status: 409, code: idemhttp.CodeOutcomeUnknown}.check(t, res, idemhttp.IETF)
		})
	}
}

// A replay is the first response, byte for byte, in every gateway.
func TestReplayIsFaithful(t *testing.T) {
	every := make([]byte, 0, 128)
	for i := range 128 {
		every = append(every, byte(i))
	}
	for name, d := range entryPoints {
		for what, given := range map[string]*idemhttp.Response{
			"text":   {Status: 200, Headers: map[string]string{"content-TYPE": "text/plain", "X-Html": "<&>"}, Body: every},
			"base64": {Status: 200, Base64: true, Body: []byte("AAEC/w==")},
			"multi":  {Status: 302, MultiHeaders: map[string][]string{"Vary": {"a", "b"}}, Headers: map[string]string{"Location": "/a"}, Body: []byte{}},
			"empty":  {Status: 204, Body: []byte{}},
			"large":  {Status: 200, Headers: map[string]string{"content-type": "text/html"}, Body: []byte(strings.Repeat("<p>x</p>", 1<<16))},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				serve := d.serve(t, newEngine(t, memory()), idemhttp.AnyRoute(charge), func(context.Context) (*idemhttp.Response, error) {
					c := *given
					c.Cookies = []string{"session=secret"}
					return &c, nil
				})
				live, err := serve(t.Context(), post())
				require.NoError(t, err)
				if live.Cookies != nil {
					require.Equal(t, []string{"session=secret"}, live.Cookies)
				}
				h := wire(live)
				for name, value := range wire(given) {
					require.Equal(t, value, h[name], name)
				}
				require.Equal(t, plain(given), plain(live))
				require.Equal(t, given.Status, live.Status)

				again, err := serve(t.Context(), post())
				require.NoError(t, err)
				require.Equal(t, "true", wire(again)["idempotency-replayed"])
				require.Nil(t, again.Cookies)
				require.Equal(t, unmarked(h), unmarked(wire(again)))
				require.Equal(t, live.Body, again.Body)
				require.Equal(t, live.Base64, again.Base64)
				require.Equal(t, live.Status, again.Status)
			})
		}
	}
}
