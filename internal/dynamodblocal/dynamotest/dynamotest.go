// Package dynamotest gives tests a DynamoDB Local.
package dynamotest

import (
	"context"
	"sync"
	"testing"

	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/internal/dynamodblocal"
)

// One server for the whole test process. It is not closed: it ends with the
// process, which is the only moment when no test can want it any more.
var shared = sync.OnceValues(func() (*dynamodblocal.Server, error) {
	return dynamodblocal.Start(context.Background(), nil)
})

// Endpoint returns the URL of a DynamoDB Local that all tests of the process
// share, so each test should use a table of its own with a random name. It is the one of
// IDEM_DYNAMODB_ENDPOINT if that is set; otherwise one is provisioned at the first call and
// ends with the process.
//
// If none can be provisioned, the test is skipped with the reason, or fails if
// IDEM_REQUIRE_DYNAMODB is 1. Call it from the test's own goroutine; several tests may call
// it at once.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	return childtest.Need(tb, "DynamoDB Local", shared).Endpoint()
}
