package idemhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// What the request was sent to counts as a whole, also what the gateway or a mux has
// taken off and what cannot be decoded.
func TestWhatTellsRequestsApart(t *testing.T) {
	for name, c := range map[string]struct {
		first, second func(*Request)
	}{
		"stages":               {func(r *Request) { r.Stage = "test" }, func(r *Request) { r.Stage = "prod" }},
		"prefixes":             {func(r *Request) { r.Prefix = "/accounts/1" }, func(r *Request) { r.Prefix = "/accounts/2" }},
		"a prefix for a stage": {func(r *Request) { r.Prefix = "test" }, func(r *Request) { r.Stage = "test" }},
		"queries in no form":   {func(r *Request) { r.RawQuery = "a=%zz" }, func(r *Request) { r.RawQuery = "a=%zy" }},
		"one that has a form":  {func(r *Request) { r.RawQuery = "a=%zz" }, func(r *Request) { r.Query = map[string][]string{"": {"a=%zz"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			contract, n := newContract(t, memory()), 0
			require.Equal(t, 201, serve(t, contract, payment(c.first), counting(&n, created())).Status)
			require.Equal(t, "true", serve(t, contract, payment(c.first), counting(&n, created())).Headers[HeaderReplayed])
			require.Equal(t, 422, serve(t, contract, payment(c.second), counting(&n, created())).Status)
			require.Equal(t, 1, n)
		})
	}
}

func TestPrefixOfThePath(t *testing.T) {
	for _, c := range []struct{ sent, seen, want string }{
		{"/payments?a=1", "/payments", ""},
		{"/accounts/7/payments", "/payments", "/accounts/7"},
		{"/accounts/a%2Fb/payments", "/payments", "/accounts/a%2Fb"},
		{"/v1/payments", "/rewritten", "/v1/payments"},
		{"http://example.com/payments?a=1", "/payments", ""},
		{"*", "/payments", "*"},
		{"", "/payments", ""},
	} {
		r := netRequest("POST", c.seen, "{}")
		r.RequestURI = c.sent
		require.Equal(t, c.want, new(MiddlewareOptions).request(r, nil).Prefix, c.sent)
	}
}

// Two accounts under one mux are two requests, although the handlers see one path.
func TestStrippedPrefixCounts(t *testing.T) {
	inner := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	outer := http.NewServeMux()
	for _, account := range []string{"/accounts/alice", "/accounts/bob"} {
		outer.Handle(account+"/", http.StripPrefix(account, inner))
	}
	for account, want := range map[string]int{"alice": 201, "bob": 422} {
		require.Equal(t, 201, answerOf(outer, netRequest("POST", "/accounts/alice/payments", "{}")).Code)
		require.Equal(t, want, answerOf(outer, netRequest("POST", "/accounts/"+account+"/payments", "{}")).Code)
	}
}

// Two hosts that a mux tells apart are two, and one behind several names is one.
func TestTheHostCountsWhereThePatternNamesIt(t *testing.T) {
	contract := netContract(t, memory())
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST alice.example/payments", "bob.example/payments", "POST\t/payments"} {
		mux.Handle(pattern, contract.Middleware(done, nil))
	}
	pay := func(host string) int {
		r := netRequest("POST", "/payments", "{}")
		r.Host = host
		return answerOf(mux, r).Code
	}
	require.Equal(t, []int{201, 201, 422, 422}, []int{pay("alice.example"), pay("alice.example:8443"), pay("bob.example"), pay("carol.example")})
	contract = netContract(t, memory())
	mux = http.NewServeMux()
	mux.Handle("POST /payments", contract.Middleware(done, nil))
	require.Equal(t, []int{201, 201}, []int{pay("api.example"), pay("www.api.example")})
}

// So they are where the mux is inside.
func TestTheHostCountsWhereAMuxInsideNamesIt(t *testing.T) {
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	mux := http.NewServeMux()
	for _, pattern := range []string{"alice.example/payments", "POST bob.example/payments", "/payments"} {
		mux.Handle(pattern, done)
	}
	outside := netContract(t, memory()).Middleware(mux, nil)
	for _, c := range []struct {
		host string
		want int
	}{{"alice.example", 201}, {"alice.example:443", 201}, {"bob.example", 422}, {"carol.example", 422}} {
		r := netRequest("POST", "/payments", "{}")
		r.Host = c.host
		require.Equal(t, c.want, answerOf(outside, r).Code, c.host)
	}
}

// A body that something has read before is never taken for an empty or a shorter
// one, whatever announced it.
func TestBodiesReadBeforeAreRefused(t *testing.T) {
	var refused error
	ran := 0
	inner := mounted(netContract(t, memory()), &MiddlewareOptions{Error: func(w http.ResponseWriter, _ *http.Request, err error) {
		refused = err
		w.WriteHeader(http.StatusInternalServerError)
	}}, func(w http.ResponseWriter, r *http.Request) { ran++ })
	read := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, int64(read))
		inner.ServeHTTP(w, r)
	}))
	defer server.Close()
	send := func(body io.Reader) int {
		req, err := http.NewRequest("POST", server.URL+"/payments", body)
		require.NoError(t, err)
		req.Header = netRequest("POST", "/", "").Header
		req.Header.Set("Idempotency-Key", fmt.Sprintf("a-key-of-its-own-%d", ran))
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	const body = `{"to":"alice"}`
	chunked := func() io.Reader { return io.MultiReader(strings.NewReader(body)) }
	for _, c := range []struct {
		read int
		body io.Reader
		want int
	}{
		{0, strings.NewReader(body), 200},
		{0, chunked(), 200},
		{0, nil, 200},
		{1, nil, 200},
		{1, strings.NewReader(body), 500},
		{len(body) - 1, strings.NewReader(body), 500},
		{len(body), strings.NewReader(body), 500},
		{len(body), chunked(), 500},
	} {
		before := ran
		read, refused = c.read, nil
		require.Equal(t, c.want, send(c.body))
		if c.want == 200 {
			require.Equal(t, before+1, ran)
			require.NoError(t, refused)
			continue
		}
		require.Equal(t, before, ran)
		require.ErrorContains(t, refused, "was read before Contract.Middleware")
	}
}

// What decompresses a body outside may leave its length behind: a longer body has all
// of it, and a shorter one looks like a part.
func TestBodiesPutBackWithAnotherLength(t *testing.T) {
	inner := mounted(netContract(t, memory()), &MiddlewareOptions{Error: func(w http.ResponseWriter, _ *http.Request, err error) {
		require.ErrorContains(t, err, "put the body back with its ContentLength")
		w.WriteHeader(500)
	}}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body) // memory
	})
	const body = `{"to":"alice"}`
	for length, want := range map[int64]int{int64(len(body)) - 5: 200, int64(len(body)): 200, -1: 200, int64(len(body)) + 5: 500} {
		r := netRequest("POST", "/payments", body)
		r.ContentLength = length
		w := answerOf(inner, r)
		require.Equal(t, want, w.Code, length)
		if want == 200 {
			require.Equal(t, body, w.Body.String())
		}
	}
}

// A handler's redirect that keeps method and body has done nothing: the request
// goes on with its key.
func TestRedirectsKeepTheKeyFree(t *testing.T) {
	for _, code := range []int{307, 308} {
		made := 0
		c, err := New(newEngine(t, memory()), AnyRoute(transfer), SingleTenant, nil)
		require.NoError(t, err)
		server := httptest.NewServer(c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/payments" {
				http.Redirect(w, r, "/payments/", code)
				return
			}
			made++
			w.WriteHeader(201)
		}), nil))
		status, body := newTrial(t, nil, nil).do(t, request(t, "POST", server.URL+"/payments", "{}"))
		require.Equal(t, 201, status, body)
		require.Equal(t, 1, made)
		server.Close()
	}
}

// What a client chose is quoted in the log: one request, one line.
func TestLogLinesAreQuoted(t *testing.T) {
	var out strings.Builder
	c := contractOf(t, memory(), func(_ context.Context, r *Request) (string, error) {
		return "", fmt.Errorf("bad token %s", r.Header["Authorization"][0])
	})
	c.routes = map[route]idem.Operation{{}: charge}
	r := netRequest("POST", "/payments%0aidemhttp:%20admin%1b[31m", "{}")
	r.Header["Authorization"] = []string{"x\nidemhttp: forged"}
	w := answerOf(c.Middleware(http.NotFoundHandler(), nil), withErrorLog(r, &out))
	require.Equal(t, 500, w.Code)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "\x1b")
}
