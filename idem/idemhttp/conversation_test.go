package idemhttp

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/memstore"
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
	require.Contains(t, seen.last(t, 1), "charge shadow_refused: idemhttp: a body over HTTP/2 without a length")
}
