package idemhttp

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// watching notes the callers' values that are claimed.
type watching struct {
	idem.Store
	values []string
}

func (w *watching) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	w.values = append(w.values, c.Record.Value)
	return w.Store.Acquire(ctx, now, c)
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
		watched := &watching{Store: memory()}
		c := contractFor(t, newEngine(t, watched), AnyRoute(charge), tenantInHeader)
		mux := http.NewServeMux()
		h := c.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
		for _, pattern := range []string{"/payments", "/transfers/{id}", "/"} {
			mux.Handle(pattern, h)
		}
		require.GreaterOrEqual(t, answerOf(mux, r).Code, 200)
		for _, value := range watched.values {
			require.Regexp(t, keyGrammar, value)
		}
	})
}
