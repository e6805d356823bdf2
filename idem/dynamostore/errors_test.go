package dynamostore

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
)

// The real error bodies, through the real SDK.
func TestErrorBodies(t *testing.T) {
	for _, tc := range []struct {
		name               string
		code               int
		body               string
		maybe, again, down bool
	}{
		{"provisioned throughput", 400, throttled, false, true, true},
		{"throttling", 400, throttling, false, true, true},
		{"request limit", 400, requestLimit, false, true, true},
		{"too many requests", 429, ``, false, true, true},
		{"transaction conflict", 400, conflicting, false, true, false},
		{"internal", 500, internal, true, true, true},
		{"no body", 503, ``, true, true, true},
		{"a proxy's page", 502, `<html>Bad Gateway</html>`, true, true, true},
		{"cut short", 200, `{"Attributes":{"pk"`, true, true, false},
		{"access denied", 400, noAccess, false, false, false},
		{"validation", 400, invalid, false, false, false},
		{"no table", 400, noTable, false, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := &wire{fault: func(n int, _ string, _ *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				return answer(tc.code, tc.body), nil
			}}
			failed := isStoreError(t, over(w).Acquire(ctx, base, claim("k", "o1")), tc.maybe)
			require.Equal(t, tc.down, failed.Down)
			require.Equal(t, tc.down && tc.code < 500, failed.Throttled)
			require.Len(t, w.calls(), map[bool]int{true: 3, false: 1}[tc.again])
		})
	}
}

// No process listens: nothing was sent, so nothing is in doubt.
func TestRefusedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := &ending{Client: must(NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://" + addr})), end: cancel}
	failed := isStoreError(t, must(New(tries, "table", nil)).Acquire(ctx, base, claim("k", "o1")), false)
	require.ErrorContains(t, failed, "refused")
	require.Equal(t, 3, tries.n)
}

// ending is a client that ends the context after its third write.
type ending struct {
	Client
	end context.CancelFunc
	n   int
}

func (c *ending) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	out, err := c.Client.PutItem(ctx, in, o...)
	c.n++
	endAfter(3, c.n-1, c.end)
	return out, err
}

// A request that gets no answer is in doubt, and the caller's time is kept. How the tries share it,
// TestBudgetHolds shows.
func TestASilentEndpoint(t *testing.T) {
	w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	isStoreError(t, over(w).Acquire(ctx, base, claim("k", "o1")), true)
	require.NotEmpty(t, w.calls())
}
