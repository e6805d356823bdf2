package idemhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// tenantInHeader stands for an authenticating middleware.
var tenantInHeader = FromRequest(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })

func netContract(t testing.TB, store idem.Store, change ...func(*Options)) *Contract {
	t.Helper()
	return contractOf(t, store, tenantInHeader, change...)
}

// netRequest is a request that the contract accepts.
func netRequest(method, url, body string) *http.Request {
	r := httptest.NewRequest(method, url, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", testKey)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tenant", "blue")
	return r
}

// answerOf serves a request without a network.
func answerOf(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// withErrorLog serves the request as a server does that logs there.
func withErrorLog(r *http.Request, to io.Writer) *http.Request {
	server := &http.Server{ErrorLog: log.New(to, "", 0)}
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server))
}

func responseOf(w *httptest.ResponseRecorder) *Response {
	res := &Response{Status: w.Code, Body: w.Body.Bytes()}
	for name := range w.Header() {
		res.setHeader(name, w.Header().Get(name))
	}
	return res
}

// counted is a handler that counts its runs.
func counted(n *int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		*n++
		w.WriteHeader(200)
	}
}

// mounted puts the handler under the contract at POST /payments.
func mounted(c *Contract, o *MiddlewareOptions, h http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/payments", c.Middleware(h, o))
	return mux
}

// A framework may answer after the middleware: its refusal must not be an empty 200.
func TestAHandlerMustAnswer(t *testing.T) {
	var logged bytes.Buffer
	n := 0
	h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("X-Later", "402")
	})
	w := answerOf(h, withErrorLog(netRequest("POST", "/payments", "{}"), &logged))
	require.Equal(t, 500, w.Code)
	require.Contains(t, logged.String(), "returned without an answer")
	w = answerOf(h, netRequest("POST", "/payments", "{}"))
	require.Equal(t, 409, w.Code)
	require.Contains(t, w.Body.String(), CodeOutcomeUnknown)
	require.Equal(t, 1, n)
}

// A client that goes away turns nothing into a failure, and neither does a deadline that is over: the handler
// goes on, its record is completed, and the retry gets the response.
func TestContextIsDetached(t *testing.T) {
	type key struct{}
	for name, leave := range map[string]time.Duration{"in the middle": time.Hour, "before": 0} {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "kept"), leave)
		defer cancel()
		h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			require.NoError(t, r.Context().Err(), name)
			_, ok := r.Context().Deadline()
			require.False(t, ok)
			require.Equal(t, "kept", r.Context().Value(key{}))
			w.WriteHeader(204)
		})
		require.Equal(t, 204, answerOf(h, netRequest("POST", "/payments", "{}").WithContext(ctx)).Code)
		again := answerOf(h, netRequest("POST", "/payments", "{}"))
		require.Equal(t, "true", again.Header().Get(HeaderReplayed), name)
	}
}

// A panic continues. Nothing that the handler has written is its answer: a framework that recovers may write
// one to the handler's writer, as echo does, or to its own, and writes none if it takes the handler's for sent.
func TestPanicsPassTheMiddleware(t *testing.T) {
	begins := func(w http.ResponseWriter) {
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "made")
	}
	apologise := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "sorry")
		w.(http.Flusher).Flush()
	}
	for name, c := range map[string]struct {
		handler, recovers func(w http.ResponseWriter)
		outside           bool // the framework writes to its own writer
		status            int  // 0 if the connection ends without an answer
		text              string
	}{
		"none recovers":                     {handler: func(http.ResponseWriter) {}},
		"none recovers from a begun answer": {handler: begins},
		"recovered": {handler: func(w http.ResponseWriter) { w.Header().Set("Location", "/1") }, recovers: apologise,
			status: 503, text: "sorry"},
		"recovered outside": {handler: func(http.ResponseWriter) {}, recovers: apologise, outside: true,
			status: 503, text: "sorry"},
		"recovered, a begun answer": {handler: begins, recovers: func(http.ResponseWriter) {}, status: 500},
		"recovered, a flushed answer": {handler: func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
			recovers: func(http.ResponseWriter) {}, status: 500},
	} {
		for _, given := range []any{"boom", http.ErrAbortHandler} {
			t.Run(fmt.Sprint(name, ", ", given), func(t *testing.T) {
				var theirs http.ResponseWriter
				contract := netContract(t, memory()).Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					theirs = w
					c.handler(w)
					panic(given)
				}), nil)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						p := recover()
						if p != nil && c.recovers == nil {
							panic(p)
						}
						if p == given && c.outside {
							c.recovers(w)
						} else if p == given {
							c.recovers(theirs)
						}
					}()
					contract.ServeHTTP(w, r)
				}))
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.Start()
				defer server.Close()
				sent := func() (*http.Response, error) {
					r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/payments", strings.NewReader("{}"))
					require.NoError(t, err)
					r.Header = netRequest("POST", "/payments", "").Header
					return server.Client().Transport.RoundTrip(r)
				}
				if res, err := sent(); c.status == 0 {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					text, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.NoError(t, res.Body.Close())
					require.Equal(t, c.status, res.StatusCode)
					require.Equal(t, c.text, string(text))
					require.Empty(t, res.Header.Get("Location"))
				}
				again, err := sent()
				require.NoError(t, err)
				require.NoError(t, again.Body.Close())
				require.Equal(t, 409, again.StatusCode)
			})
		}
	}
}

func TestRequestBodyLimit(t *testing.T) {
	n := 0
	h := mounted(netContract(t, memory()), &MiddlewareOptions{MaxRequest: 12}, counted(&n))
	require.Equal(t, 200, answerOf(h, netRequest("POST", "/payments", `{"amount":1}`)).Code)
	require.Equal(t, 1, n)
	chunked := netRequest("POST", "/payments", "")
	chunked.Body, chunked.ContentLength = io.NopCloser(strings.NewReader(`{"amount": 1}`)), -1
	for _, r := range []*http.Request{netRequest("POST", "/payments", `{"amount": 1}`), chunked} {
		w := answerOf(h, r)
		require.Equal(t, 413, w.Code)
		require.Equal(t, ProblemMediaType, w.Header().Get("Content-Type"))
		require.Contains(t, w.Body.String(), CodeRequestTooLarge)
		require.Contains(t, w.Body.String(), "more than 12 bytes")
	}
	require.Equal(t, 1, n)
	none := netRequest("POST", "/payments", "")
	none.Body = nil
	require.Equal(t, 422, answerOf(h, none).Code)
}

// Errors that no client can act on go to the log, or to the service's own function.
func TestErrorsOfTheMiddleware(t *testing.T) {
	own := errors.New("the directory of tenant crimson is down")
	c := contractOf(t, memory(), FromRequest(func(*http.Request) (string, error) { return "", own }))
	never := func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }
	var logged bytes.Buffer
	r := netRequest("POST", "/payments", "{}")
	w := answerOf(mounted(c, nil, never), withErrorLog(r, &logged))
	require.Equal(t, 500, w.Code)
	require.JSONEq(t, `{"type":"about:blank","title":"Internal Server Error","status":500,"retryable":false}`,
		w.Body.String())
	require.Equal(t, `idemhttp: "POST" "/payments": "`+own.Error()+"\"\n", logged.String())

	w = answerOf(mounted(c, &MiddlewareOptions{Error: func(w http.ResponseWriter, r *http.Request, err error) {
		require.True(t, err == own)
		w.WriteHeader(http.StatusBadGateway)
	}}, never), netRequest("POST", "/payments", "{}"))
	require.Equal(t, 502, w.Code)
}

// Another gateway's request has no net/http request to read.
func TestFromRequestOfAnotherGateway(t *testing.T) {
	_, err := contractOf(t, memory(), tenantInHeader).Serve(t.Context(), payment(), nil)
	require.ErrorContains(t, err, "reads requests of net/http, and this one is a <nil>")
	for _, tenant := range []string{"", idem.SingleTenant} {
		r := netRequest("POST", "/payments", "")
		r.Header.Set("X-Tenant", tenant)
		_, err = tenantInHeader(t.Context(), &Request{Source: r})
		require.ErrorIs(t, err, ErrTenantMissing)
	}
}

func TestMistakesOfTheMiddleware(t *testing.T) {
	c := netContract(t, memory())
	ok := http.NotFoundHandler()
	for want, f := range map[string]func(){
		"the handler is nil":  func() { c.Middleware(nil, nil) },
		"MaxRequest is -1":    func() { c.Middleware(ok, &MiddlewareOptions{MaxRequest: -1}) },
		"MaxResponse -2":      func() { c.Middleware(ok, &MiddlewareOptions{MaxResponse: -2}) },
		"the function is nil": func() { FromRequest(nil) },
	} {
		func() {
			defer func() {
				err, ok := recover().(*idem.ConfigError)
				require.True(t, ok)
				require.ErrorContains(t, err, want)
			}()
			f()
		}()
	}
}

// The template and its parameters come from the mux's pattern.
func TestRouteOfAPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		route        string
		parameters   map[string]string
	}{
		{"/payments", "/payments", "/payments", map[string]string{}},
		{"POST /payments", "/payments", "/payments", map[string]string{}},
		{"POST  example.com/payments/{id}", "/payments/7", "/payments/{id}", map[string]string{"id": "7"}},
		{"POST /payments/{id}/refunds/{n}", "/payments/a%2Fb/refunds/1", "/payments/{id}/refunds/{n}",
			map[string]string{"id": "a/b", "n": "1"}},
		{"/files/{path...}", "/files/a/b%20c", "/files/{path...}", map[string]string{"path": "a/b c"}},
		{"/exact/{$}", "/exact/", "/exact/{$}", map[string]string{}},
		{"/below/", "/below/a%2Fb", "/below/", map[string]string{"": "/below/a%2Fb"}},
		{"/", "/x", "/", map[string]string{"": "/x"}},
	} {
		var got *Request
		mux := http.NewServeMux()
		mux.HandleFunc(c.pattern, func(_ http.ResponseWriter, r *http.Request) {
			got = new(MiddlewareOptions).request(r, "")
		})
		mux.ServeHTTP(httptest.NewRecorder(), netRequest("POST", "http://example.com"+c.url+"?a=1&b=%2C&a=2", ""))
		require.NotNil(t, got, c.pattern)
		require.Equal(t, c.route, got.Route)
		require.Equal(t, c.parameters, got.PathParameters)
		require.Equal(t, c.url, got.Path)
		require.Equal(t, map[string][]string{"a": {"1", "2"}, "b": {","}}, got.Query)
	}
}

// Without a mux the path counts, and a router may tell its template.
func TestRouteWithoutAPattern(t *testing.T) {
	r := netRequest("POST", "/payments/7?a=%zz", "")
	got := new(MiddlewareOptions).request(r, "")
	require.Empty(t, got.Route)
	require.Equal(t, "/payments/7", got.Path)
	require.Empty(t, got.Query)
	require.Equal(t, "a=%zz", got.RawQuery)

	o := &MiddlewareOptions{Route: func(*http.Request) string { return "/payments/{id}" }}
	got = o.request(r, "")
	require.Equal(t, "/payments/{id}", got.Route)
	require.Equal(t, map[string]string{"": "/payments/7"}, got.PathParameters)
	o.Route = func(*http.Request) string { return "" }
	require.Nil(t, o.request(r, "").PathParameters)
}

// What the mux has no handler for is the mux's to answer.
func TestAroundAMuxUnknownPathsAreNotFound(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /payments/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /refunds", func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	h := netContract(t, memory()).Middleware(mux, nil)
	require.Equal(t, 404, answerOf(h, netRequest("POST", "/unknown", "{}")).Code)
	require.Equal(t, 405, answerOf(h, netRequest("POST", "/payments/1", "{}")).Code)
	undeclared := answerOf(h, netRequest("POST", "/refunds", "{}"))
	require.Equal(t, 500, undeclared.Code)
	require.Contains(t, undeclared.Body.String(), CodeUndeclared)
}

// Bytes that no client should send: no panic, always an answer, and whatever reaches the table
// matches the key's grammar.
func FuzzRequest(f *testing.F) {
	const key = "key-of-request-1234"
	f.Add("POST /payments?expand=a&expand=b HTTP/1.1\r\nHost: x\r\nX-Tenant: blue\r\nContent-Type: " +
		"application/json\r\nIdempotency-Key: " + key + "\r\nContent-Length: 12\r\n\r\n{\"amount\":1}")
	f.Add("POST /transfers/a%2Fb HTTP/1.1\r\nHost: x\r\nX-Tenant: blue\r\nidempotency-key: \"" + key +
		"\"\r\nX-Tag: a\r\nx-tag: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n")
	f.Add("PATCH http://x/payments HTTP/1.0\r\nHost: x\r\nX-Tenant: blue\r\nIdempotency-Key: " + key +
		"\r\nCookie: a=b; c=d\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		store := memory()
		c := contractFor(t, newEngine(t, store), AnyRoute(charge), tenantInHeader)
		mux := http.NewServeMux()
		h := c.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
		for _, pattern := range []string{"/payments", "/transfers/{id}", "/"} {
			mux.Handle(pattern, h)
		}
		require.GreaterOrEqual(t, answerOf(mux, r).Code, 200)
		for _, rec := range store.Records() {
			require.Regexp(t, keyGrammar, rec.Value)
		}
	})
}
