// Package queuetest gives tests an SQS-compatible server.
package queuetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/internal/queue"
)

// One server for the whole test process. It is not closed: it ends with the
// process, which is the only moment when no test can want it any more.
var shared = sync.OnceValues(func() (*queue.Server, error) {
	return queue.Start(context.Background(), nil)
})

// Endpoint returns the URL of a queue server (SQS and SNS) that all tests of the
// process share, so tests should use queues of their own, with random names: see
// [New]. It is started at the first call and ends with the process.
//
// If no server can be started, the test is skipped with the reason, or fails if
// IDEM_REQUIRE_DYNAMODB is 1. Call it from the test's own goroutine; several tests may call
// it at once.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	return childtest.Need(tb, "queue server", shared).Endpoint()
}

// Client returns a client of the server at [Endpoint].
func Client(tb testing.TB) *sqs.Client {
	tb.Helper()
	return queue.NewClient(Endpoint(tb))
}

// Spec says what queue a test wants. Its name is random where it has none.
type Spec = queue.Spec

// Queue is a queue that [New] has made.
type Queue = queue.Queue

// New makes a queue and its dead-letter queue on the shared server. They are deleted at
// the test's end. As with [Endpoint], the test is skipped where there is no server.
func New(tb testing.TB, spec Spec) Queue {
	tb.Helper()
	spec.Name = cmp.Or(spec.Name, "q-"+rand.Text())
	q, err := queue.Create(tb.Context(), Client(tb), spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, url := range []string{q.URL, q.DeadURL} {
			// Best effort: the server ends with the tests.
			_, _ = q.Client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &url})
		}
	})
	return q
}
