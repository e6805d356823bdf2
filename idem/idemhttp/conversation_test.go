package idemhttp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A client over HTTP/2 that waits for an answer before it sends more has its conversation.
func TestAConversationGoesOnInShadow(t *testing.T) {
	c, seen := inShadow(t, memstore.New(), SingleTenant, nil)
	s := httptest.NewUnstartedServer(c.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, rc := bufio.NewReader(r.Body), http.NewResponseController(w)
		for line, err := "", rc.Flush(); err == nil; line, err = in.ReadString('\n') {
			_, _ = io.WriteString(w, line)
			_ = rc.Flush()
		}
	}), &MiddlewareOptions{Route: func(*http.Request) string { return "/payments" }}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	body, send := io.Pipe()
	ctx, leave := context.WithTimeout(t.Context(), 30*time.Second)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/payments", body)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", testKey)
	res, err := s.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	for _, line := range []string{"hello\n", "again\n"} {
		_, err = io.WriteString(send, line)
		require.NoError(t, err)
		got := make([]byte, len(line))
		_, err = io.ReadFull(res.Body, got)
		require.NoError(t, err)
		require.Equal(t, line, string(got))
	}
	require.NoError(t, send.Close())
	_, err = io.ReadAll(res.Body)
	require.NoError(t, err)
	s.Close() // the handler has returned
	require.Contains(t, seen.last(t, 1), "charge shadow_unobserved: idemhttp: a body over HTTP/2 without a length")
}

// sendsTokens is a handler in shadow that sends its token to a provider. It returns the tokens of
// the requests, and the last notice.
func sendsTokens(t *testing.T, o *Options, limit int64, requests ...*http.Request) (tokens []string, last string) {
	t.Helper()
	c, seen := inShadow(t, memstore.New(), SingleTenant, o)
	h := c.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		tokens = append(tokens, idem.Token(r.Context()))
	}), &MiddlewareOptions{Route: func(*http.Request) string { return "/payments" }, MaxRequest: limit})
	for _, r := range requests {
		answerOf(h, r)
	}
	return tokens, seen.last(t, len(requests))
}

// A retry in shadow has the token of its key, whatever becomes of its body: with another one the
// provider would take it for another payment.
func TestTheTokenInShadowIsThatOfTheKey(t *testing.T) {
	for name, tc := range map[string]struct {
		request func(*http.Request)
		limit   int64
		kind    string
	}{
		"HTTP/1 without a length": {func(r *http.Request) { r.ContentLength = -1 }, 0, "shadow_duplicate"},
		"HTTP/2 without a length": {func(r *http.Request) { r.ProtoMajor, r.ContentLength = 2, -1 }, 0, "shadow_unobserved"},
		"too large":               {func(*http.Request) {}, 1, "shadow_refused: request_too_large"},
		"broken off": {func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"am`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, 0, "shadow_refused: request_incomplete"},
		"not canonical": {func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"a":1,"a":2}`)) }, 0, "shadow_refused: request_not_canonical"},
	} {
		t.Run(name, func(t *testing.T) {
			retry := func() *http.Request {
				r := netRequest("POST", "/payments", `{"amount":1}`)
				tc.request(r)
				return r
			}
			tokens, last := sendsTokens(t, nil, tc.limit, retry(), retry())
			live := protocol.Token(charge.Key(idem.SingleTenant, testKey).ID(), "")
			require.Equal(t, []string{live, live}, tokens)
			require.Contains(t, last, tc.kind)
		})
	}
}

// Where nobody knows the key, two requests do not share a token: a key of the service's own may be
// made of the body.
func TestAnUnknownKeyInShadowHasATokenOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		o       *Options
		request func(*http.Request)
		last    string
	}{
		"of the service's own": {&Options{Key: KeyFrom(func(_ context.Context, r *Request) (string, error) { return "of " + string(r.Body), nil })}, func(*http.Request) {}, "shadow_unobserved"},
		"in the body":          {&Options{Key: KeyPointer("/id")}, func(*http.Request) {}, "shadow_unobserved"},
		"missing":              {nil, func(r *http.Request) { r.Header.Del("Idempotency-Key") }, "shadow_refused: idempotency_key_missing at POST /payments"},
		"malformed":            {nil, func(r *http.Request) { r.Header.Set("Idempotency-Key", "short") }, "shadow_refused: idempotency_key_invalid at POST /payments"},
	} {
		t.Run(name, func(t *testing.T) {
			payment := func(body string) *http.Request {
				r := netRequest("POST", "/payments", body)
				r.ProtoMajor, r.ContentLength = 2, -1
				tc.request(r)
				return r
			}
			tokens, last := sendsTokens(t, tc.o, 0, payment(`{"id":"8e03978e-40d5-43e8"}`), payment(`{"id":"8e03978e-40d5-43e9"}`))
			require.Len(t, tokens, 2)
			require.NotEqual(t, tokens[0], tokens[1])
			require.Contains(t, last, tc.last)
		})
	}
}
