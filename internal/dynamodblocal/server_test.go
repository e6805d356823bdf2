package dynamodblocal

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeDynamoDB answers as DynamoDB does to a request it does not like.
func fakeDynamoDB(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Amzn-Requestid", "1")
	w.WriteHeader(http.StatusBadRequest)
}

func TestGivenEndpointIsUsedAndLeftAlone(t *testing.T) {
	isolate(t)
	running := httptest.NewServer(http.HandlerFunc(fakeDynamoDB))
	defer running.Close()
	for name, o := range map[string]*Options{
		"option":      {Endpoint: running.URL + "/"},
		"environment": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if o == nil {
				t.Setenv(EnvEndpoint, running.URL)
			}
			srv, err := Start(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, running.URL, srv.Endpoint())
			require.Contains(t, srv.Source(), "given endpoint")
			require.NoError(t, srv.Close())
			require.NoError(t, srv.Close())
			requireAnswers(t, running.URL)
		})
	}
}

func TestGivenEndpointThatDoesNotAnswerIsAnError(t *testing.T) {
	isolate(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for name, test := range map[string]struct{ url, want string }{
		"nothing there":     {closed.URL, "refused"},
		"something else":    {other.URL, "does not look like DynamoDB"},
		"no URL":            {"localhost:8000", "is not a URL like"},
		"a scheme too many": {"ftp://127.0.0.1:8000", "is not a URL like"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := Start(ctx, &Options{Endpoint: test.url})
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, EnvEndpoint)
		})
	}
}

func TestCancelledStartEndsEarly(t *testing.T) {
	isolate(t)
	silent := httptest.NewServer(http.NotFoundHandler())
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, &Options{Endpoint: silent.URL})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFolderWithoutDynamoDBLocalIsNamed(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	t.Setenv(EnvJarDir, dir)
	_, err := Start(t.Context(), nil)
	require.ErrorContains(t, err, jarName)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, EnvJarDir)

	require.NoError(t, os.WriteFile(filepath.Join(dir, jarName), nil, 0o644))
	_, err = Start(t.Context(), nil)
	require.ErrorContains(t, err, libName)
}
