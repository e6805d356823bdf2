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
	if c.n++; c.n == 3 {
		c.end()
	}
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
