package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		require.Equal(t, c.want, new(MiddlewareOptions).request(r, "").Prefix, c.sent)
	}
}

// Two paths under one template are two requests, however the middleware is mounted, and so are two accounts under
// one mux, although the handlers see one path, and two hosts that a mux tells apart, around the middleware or
// inside of it. One host behind several names is one.
func TestTwoPlacesAreTwoRequests(t *testing.T) {
	transfers := []string{"/transfers/7", "/transfers/7", "/transfers/8"}
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) })
	wrapped := func(c *Contract) http.Handler { return c.Middleware(done, nil) }
	plain := func(*Contract) http.Handler { return done }
	mux := func(handler func(*Contract) http.Handler, patterns ...string) func(*Contract) http.Handler {
		return func(c *Contract) http.Handler {
			m := http.NewServeMux()
			for _, pattern := range patterns {
				m.Handle(pattern, handler(c))
			}
			return m
		}
	}
	for name, tc := range map[string]struct {
		handler func(*Contract) http.Handler
		urls    []string // the first two are one request
		want    []int
	}{
		"paths, inside": {mux(wrapped, "POST /transfers/{id}"), transfers, []int{201, 201, 422}},
		"paths, around": {func(c *Contract) http.Handler {
			return c.Middleware(mux(plain, "POST /transfers/{id}")(c), nil)
		}, transfers, []int{201, 201, 422}},
		"paths of another router": {func(c *Contract) http.Handler {
			return c.Middleware(done, &MiddlewareOptions{Route: func(*http.Request) string { return "/transfers/{id}" }})
		}, transfers, []int{201, 201, 422}},
		"paths, no router": {wrapped, transfers, []int{201, 201, 422}},
		"prefixes": {func(c *Contract) http.Handler {
			outer := http.NewServeMux()
			for _, account := range []string{"/accounts/alice", "/accounts/bob"} {
				outer.Handle(account+"/", http.StripPrefix(account, mux(wrapped, "/payments")(c)))
			}
			return outer
		}, []string{"/accounts/alice/payments", "/accounts/alice/payments", "/accounts/bob/payments"}, []int{201, 201, 422}},
		"hosts of patterns": {mux(wrapped, "POST alice.example/payments", "bob.example/payments", "POST\t/payments"),
			[]string{"http://alice.example/payments", "http://alice.example:8443/payments", "http://bob.example/payments",
				"http://carol.example/payments"}, []int{201, 201, 422, 422}},
		"hosts of a mux inside": {func(c *Contract) http.Handler {
			inside := mux(plain, "alice.example/payments", "POST bob.example/payments", "/payments")
			return c.Middleware(inside(c), nil)
		}, []string{"http://alice.example/payments", "http://alice.example:443/payments", "http://bob.example/payments",
			"http://carol.example/payments"}, []int{201, 201, 422, 422}},
		"names of one host": {mux(wrapped, "POST /payments"),
			[]string{"http://api.example/payments", "http://www.api.example/payments"}, []int{201, 201}},
	} {
		h := tc.handler(netContract(t, memory()))
		for i, url := range tc.urls {
			w := answerOf(h, netRequest("POST", url, "{}"))
			require.Equal(t, tc.want[i], w.Code, "%s: %s", name, url)
			require.Equal(t, i == 1, w.Header().Get(HeaderReplayed) == "true", "%s: %s", name, url)
		}
	}
}

// What a client chose is quoted in the log: one request, one line.
func TestLogLinesAreQuoted(t *testing.T) {
	var out strings.Builder
	c := contractFor(t, newEngine(t, memory()), AnyRoute(charge), func(_ context.Context, r *Request) (string, error) {
		return "", fmt.Errorf("bad token %s", r.Header["Authorization"][0])
	})
	r := netRequest("POST", "/payments%0aidemhttp:%20admin%1b[31m", "{}")
	r.Header["Authorization"] = []string{"x\nidemhttp: forged"}
	w := answerOf(c.Middleware(http.NotFoundHandler(), nil), withErrorLog(r, &out))
	require.Equal(t, 500, w.Code)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.NotContains(t, out.String(), "\x1b")
}

// A body that was read in part before is never taken for a shorter one: different requests would then be the same.
// What decompresses a body outside may leave its length behind: a longer body has all of it.
func TestBodiesThatWereReadBefore(t *testing.T) {
	const body = "to=alice"
	read := func(n int64) func(*http.Request) {
		return func(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, n) }
	}
	length := func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
	for name, c := range map[string]struct {
		body   string
		before func(*http.Request)
		want   int
	}{
		"nothing":          {body, read(0), 200},
		"of nothing":       {"", read(1), 200},
		"a byte":           {body, read(1), 500},
		"all but one":      {body, read(int64(len(body)) - 1), 500},
		"all":              {body, read(int64(len(body))), 500},
		"all, chunked":     {body, func(r *http.Request) { read(100)(r); r.ContentLength = -1 }, 500},
		"as a form":        {body, func(r *http.Request) { r.ContentLength = -1; _ = r.ParseForm() }, 500},
		"a shorter length": {body, length(int64(len(body)) - 5), 200},
		"no length":        {body, length(-1), 200},
		"a longer length":  {body, length(int64(len(body)) + 5), 500},
	} {
		t.Run(name, func(t *testing.T) {
			var got []byte
			var refused error
			h := mounted(netContract(t, memory()),
				&MiddlewareOptions{Error: func(w http.ResponseWriter, _ *http.Request, err error) {
					refused = err
					w.WriteHeader(500)
				}}, func(w http.ResponseWriter, r *http.Request) {
					got, _ = io.ReadAll(r.Body)
					require.Equal(t, int64(len(got)), r.ContentLength)
					w.WriteHeader(200)
				})
			r := netRequest("POST", "/payments", c.body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			c.before(r)
			require.Equal(t, c.want, answerOf(h, r).Code)
			if c.want == 200 {
				require.Equal(t, c.body, string(got))
				return
			}
			require.Nil(t, got, "the handler ran")
			require.ErrorContains(t, refused, "was read before Contract.Middleware")
		})
	}
}

// A template whose parameters the gateway does not tell: the path tells two
// resources apart, wherever the parameter stands.
func TestResourcesWithoutParameters(t *testing.T) {
	for _, c := range []struct {
		route, one, two string
		parameters      map[string]string
	}{
		{"/payments/{id}/refunds", "/payments/7/refunds", "/payments/8/refunds", nil},
		{"/a/{x}/b/{y}", "/a/1/b/2", "/a/1/b/3", map[string]string{"x": "1"}},
		{"/files/{rest+}", "/files/a/b", "/files/a/c", map[string]string{}},
		{"/files/{rest...}", "/files/a/b", "/files/a/c", map[string]string{"rest": ""}},
	} {
		contract := contractFor(t, newEngine(t, memory()), AnyRoute(charge), SingleTenant)
		n := 0
		at := func(path string) *Response {
			return serve(t, contract, payment(func(r *Request) {
				r.Route, r.Path, r.PathParameters = c.route, path, c.parameters
			}), counting(&n, created()))
		}
		require.Equal(t, 201, at(c.one).Status)
		require.Equal(t, 422, at(c.two).Status, c.route)
		require.Equal(t, "true", at(c.one).Headers[HeaderReplayed])
		require.Equal(t, 1, n)
	}
	// Where the parameters tell all, how the path is spelled does not count.
	whole := payment(func(r *Request) { r.Route, r.PathParameters = "/p/{id}", map[string]string{"id": "7"} })
	require.Equal(t, whole.PathParameters, whole.parameters())
}

// Functions for the identity and the route find no body, and one for the key has its own: none is taken from the
// handler. The contract's functions find the identity.
func TestFunctionsTakeNoBodyFromTheHandler(t *testing.T) {
	const sent = `{"a":1}`
	read := func(r *http.Request) string {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(body)
	}
	for shadow, want := range map[bool]int{false: 3, true: 4} {
		runs := 0
		c := contractFor(t, newEngine(t, memory()), loginRoutes(shadow), IAMAccount, func(o *Options) {
			o.Key = KeyFrom(func(_ context.Context, r *Request) (string, error) {
				require.Equal(t, sent, read(r.Source.(*http.Request)))
				return testKey, nil
			})
		})
		h := c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			require.Equal(t, sent, read(r))
			w.WriteHeader(http.StatusNoContent)
		}), &MiddlewareOptions{
			Identity: func(r *http.Request) Identity {
				require.Empty(t, read(r))
				return Identity{AccountID: r.Header.Get("X-Tenant")}
			},
			Route: func(r *http.Request) string {
				require.Empty(t, read(r))
				return r.URL.Path
			},
		})
		for _, to := range []string{"blue /payments", "green /payments", "blue /payments", "blue /login"} {
			tenant, path, _ := strings.Cut(to, " ")
			r := netRequest("POST", path, sent)
			r.Header.Set("X-Tenant", tenant)
			require.Equal(t, http.StatusNoContent, answerOf(h, r).Code)
		}
		require.Equal(t, want, runs)
	}
}

// A mux's redirect to a clean path must not take the key that the client sends along to it.
func TestRedirectOfTheMuxTakesNoKey(t *testing.T) {
	mux := http.NewServeMux()
	n := 0
	mux.HandleFunc("/payments/", func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(201) })
	c := contractFor(t, newEngine(t, memory()), AnyRoute(charge), SingleTenant)
	h := c.Middleware(mux, nil)
	for range 2 {
		first := answerOf(h, netRequest("POST", "/payments", `{}`))
		require.Contains(t, []int{301, 307, 308}, first.Code)
		require.Equal(t, "/payments/", first.Header().Get("Location"))
		require.Equal(t, 201, answerOf(h, netRequest("POST", "/payments/", `{}`)).Code)
	}
	require.Equal(t, 1, n)
}

// Transports of others may leave out the body, or everything: nothing panics.
func TestTransportsThatLeaveThingsOut(t *testing.T) {
	n := 0
	c := newTrial(t, answering(func(*http.Request) (*http.Response, error) {
		n++
		return &http.Response{StatusCode: []int{503, 201}[min(n, 2)-1], Header: http.Header{}}, nil
	}), nil)
	code, _ := c.do(t, request(t, "POST", "http://service.test/", "order"))
	require.Equal(t, 201, code)
	require.Equal(t, 2, n)

	n = 0
	c = newTrial(t, answering(func(*http.Request) (*http.Response, error) {
		n++
		return nil, nil
	}), nil)
	_, err := c.Do(request(t, "POST", "http://service.test/", "order"))
	var sent *SendError
	require.True(t, errors.As(err, &sent))
	require.NotEmpty(t, sent.Key)
	require.Equal(t, DefaultMaxAttempts, n)
}
