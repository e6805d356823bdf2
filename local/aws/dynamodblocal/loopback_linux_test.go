package dynamodblocal

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/child/childtest"
)

func TestListensOnLoopbackOnly(t *testing.T) {
	cache := provisionedCache(t)
	isolate(t)
	srv, err := Start(t.Context(), &Options{CacheDir: cache})
	require.NoError(t, err)
	defer srv.Close()
	u, err := url.Parse(srv.Endpoint())
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	childtest.RequireLoopbackOnly(t, srv.pid, port)
}
