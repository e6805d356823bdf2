package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/cache"
	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/internal/testmain"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "QUEUE_TEST_HELPER"

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: helperEnv, Main: helper}) }

// helper starts a server, says so, and waits to be killed.
func helper(string) error {
	srv, err := Start(context.Background(), nil)
	if err != nil {
		return err
	}
	fmt.Println(srv.process.PID(), srv.Endpoint())
	select {}
}

// installedCache is the user's cache, once the package is there. The test is skipped
// where it cannot be had, or fails if IDEM_REQUIRE_DYNAMODB is 1.
func installedCache(t *testing.T) string {
	t.Helper()
	childtest.Need(t, "queue server", install)
	folder, err := cache.Folder("")
	require.NoError(t, err)
	return folder
}

var install = sync.OnceValues(func() (string, error) {
	if _, err := findNode(context.Background()); err != nil {
		return "", err
	}
	return Package.Install(context.Background(), "", func(string, ...any) {})
})

// started is a server that ends with the test.
func started(t *testing.T) *Server {
	t.Helper()
	srv, err := Start(t.Context(), &Options{CacheDir: installedCache(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

func requireAnswers(t *testing.T, endpoint string) {
	t.Helper()
	_, err := NewClient(endpoint).ListQueues(t.Context(), &sqs.ListQueuesInput{})
	require.NoError(t, err)
}
