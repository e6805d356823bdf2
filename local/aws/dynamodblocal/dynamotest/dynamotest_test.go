package dynamotest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/dynamodblocal"
)

// recorder notes how a test was ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (*recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	// As Fatalf does, nothing after it runs.
	panic(r)
}

func noServer() (*dynamodblocal.Server, error) { return nil, errors.New("install Java") }

func TestEndpointIsSharedAndAnswers(t *testing.T) {
	first := Endpoint(t)
	require.Equal(t, first, Endpoint(t))
	res, err := http.Get(first)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusBadRequest, res.StatusCode, "DynamoDB refuses a request without a signature")
}

func TestEndpointSkipsWithTheReason(t *testing.T) {
	t.Setenv(EnvRequire, "")
	r := &recorder{TB: t}
	require.Empty(t, endpoint(r, noServer))
	require.Contains(t, r.skipped, "install Java")
	require.Empty(t, r.failed)
}

func TestEndpointFailsWhereRequired(t *testing.T) {
	t.Setenv(EnvRequire, "1")
	r := &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { endpoint(r, noServer) })
	require.Contains(t, r.failed, "install Java")
	require.Empty(t, r.skipped)
}
