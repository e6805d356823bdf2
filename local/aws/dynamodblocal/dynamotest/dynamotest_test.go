package dynamotest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEndpointIsSharedAndAnswers(t *testing.T) {
	first := Endpoint(t)
	require.Equal(t, first, Endpoint(t))
	res, err := http.Get(first)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusBadRequest, res.StatusCode, "DynamoDB refuses a request without a signature")
}
