package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// loginRoutes have an operation, and a route that is left alone.
func loginRoutes(shadow bool) Routes {
	op, open := charge, Unprotected
	op.Shadow, open.Shadow = shadow, shadow
	return Routes{"POST /payments": op, "POST /login": open}
}

// Whatever a request of the route has or lacks: the handler's own answer is the answer, nothing is
// recorded, nothing is reported, and the request runs again when it is sent again.
func TestUnprotectedRequestsAreLeftAlone(t *testing.T) {
	own := errors.New("own")
	for name, change := range map[string]func(*Request){
		"key":            func(*Request) {},
		"no key":         func(r *Request) { delete(r.Header, "idempotency-key") },
		"two keys":       func(r *Request) { r.Header["idempotency-key"] = []string{testKey, testKey} },
		"no tenant":      func(r *Request) { r.Identity = Identity{} },
		"ambiguous body": func(r *Request) { r.Body = []byte(`{"a":1,"a":2}`) },
		"path alone":     func(r *Request) { r.Route = "" },
		"method's case":  func(r *Request) { r.Method = "post" },
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				store, seen := memory(), new(told)
				e, err := idem.New(store, &idem.Options{Observer: seen.observe})
				require.NoError(t, err)
				c := contractFor(t, e, loginRoutes(shadow), func(context.Context, *Request) (string, error) {
					panic("the tenant of an unprotected request")
				})
				r, n, given := payment(func(r *Request) { r.Route, r.Path = "/login", "/login" }, change), 0, created()
				require.False(t, c.Shadow(r))
				for range 2 {
					res, err := c.Serve(t.Context(), r, func(ctx context.Context) (*Response, error) {
						_, under := idem.InfoOf(ctx)
						require.False(t, under, "a claim")
						n++
						return given, own
					})
					require.True(t, err == own)
					require.Same(t, given, res)
				}
				require.Equal(t, 2, n)
				require.Empty(t, store.Records())
				require.Empty(t, seen.all)
			})
		}
	}
}

// The handler gets the very request and writer, with a body that was not touched. So does that of a method that
// needs no key.
func TestMiddlewareLeavesUnprotectedRequestsAlone(t *testing.T) {
	for name, o := range map[string]*MiddlewareOptions{
		"default":      nil,
		"small bodies": {MaxRequest: 1},
		"own router":   {Route: func(r *http.Request) string { return r.URL.Path }},
		"its panic":    {Route: func(*http.Request) string { panic("no route") }},
		"an identity":  {Identity: func(*http.Request) Identity { panic("no identity") }},
	} {
		for _, shadow := range []bool{false, true} {
			for _, method := range []string{"POST", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
				t.Run(name+" "+method, func(t *testing.T) {
					r := netRequest(method, "/login", "")
					r.Body, r.ContentLength = http.NoBody, 4
					if method == "POST" {
						r.Body = io.NopCloser(iotest.ErrReader(errors.New("the contract has read the body")))
					}
					e := newEngine(t, memory())
					w, ran := httptest.NewRecorder(), false
					contractFor(t, e, loginRoutes(shadow), SingleTenant).Middleware(
						http.HandlerFunc(func(gotW http.ResponseWriter, gotR *http.Request) {
							require.True(t, gotW == w && gotR == r)
							ran = true
						}), o).ServeHTTP(w, r)
					require.True(t, ran)
				})
			}
		}
	}
}

// A router may decode a path. What it passes to the handler of a protected route runs once.
func TestUnprotectedTemplatesTakeNoOtherSpelling(t *testing.T) {
	routes := Routes{
		"POST /files/upload": charge, "POST /files/{name}": Unprotected,
	}
	for path, row := range map[string]struct {
		handler     string // the mux's
		unprotected bool
	}{
		"/files/upload":   {handler: "/files/upload"},
		"/files/%75pload": {handler: "/files/upload"},
		"/files/photo":    {"/files/{name}", true},
		"/files/100%25":   {"/files/{name}", true},
		"/files/%2525":    {"/files/{name}", true},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(path, " ", shadow), func(t *testing.T) {
				mux, n, seen := http.NewServeMux(), 0, ""
				for name := range routes {
					mux.HandleFunc(name, func(w http.ResponseWriter, r *http.Request) {
						n, seen = n+1, templateOf(r.Pattern)
						w.WriteHeader(http.StatusCreated)
					})
				}
				declared := Routes{}
				for name, op := range routes {
					op.Shadow = shadow
					declared[name] = op
				}
				store := memory()
				h := contractFor(t, newEngine(t, store), declared, SingleTenant).Middleware(mux, nil)
				for range 2 {
					require.Equal(t, http.StatusCreated, answerOf(h, netRequest("POST", path, `{"a":1}`)).Code)
				}
				require.Equal(t, row.handler, seen)
				if row.unprotected {
					require.Empty(t, store.Records())
				}
				if row.unprotected || shadow {
					require.Equal(t, 2, n)
					return
				}
				require.Equal(t, 1, n)
				bare := netRequest("POST", path, `{"a":1}`)
				bare.Header.Del("Idempotency-Key")
				require.Equal(t, CodeKeyMissing, problemIn(t, responseOf(answerOf(h, bare))).Code)
			})
		}
	}
}

// The mark is no operation that anything could run, in shadow or not.
func TestUnprotectedIsNotExecuted(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		op := Unprotected
		op.Shadow = shadow
		e, n := newEngine(t, memstore.New()), 0
		_, err := idem.Do(t.Context(), e, op.Key("t", "k"), 1, func(context.Context, int) (int, error) { n++; return 1, nil })
		var config *idem.ConfigError
		require.ErrorAs(t, err, &config)
		require.ErrorContains(t, err, "idemhttp.Unprotected is only for the routes of a contract")
		require.Zero(t, n)
	}
}
