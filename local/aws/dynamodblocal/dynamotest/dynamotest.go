// Package dynamotest gives tests a DynamoDB Local.
package dynamotest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/idem-go/idempotency/local/aws/dynamodblocal"
)

// EnvRequire set to 1 turns a test that would be skipped for want of DynamoDB
// Local into a failed one.
const EnvRequire = "IDEM_REQUIRE_DYNAMODB"

// One server for the whole test process. It is not closed: it ends with the
// process, which is the only moment when no test can want it any more.
var shared = sync.OnceValues(func() (*dynamodblocal.Server, error) {
	return dynamodblocal.Start(context.Background(), nil)
})

// Endpoint returns the URL of a DynamoDB Local that all tests of the process
// share, so tests should use a table each, with a random name. It is the one of
// IDEM_DYNAMODB_ENDPOINT if that is set; else one is provisioned at the first
// call and ends with the process.
//
// Where none can be provisioned the test is skipped, with the reason, or fails
// if IDEM_REQUIRE_DYNAMODB is 1. Call it from the test's own goroutine; several
// tests may call it at once.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	return endpoint(tb, shared)
}

func endpoint(tb testing.TB, start func() (*dynamodblocal.Server, error)) string {
	tb.Helper()
	srv, err := start()
	if err == nil {
		return srv.Endpoint()
	}
	if os.Getenv(EnvRequire) == "1" {
		tb.Fatalf("%s=1 and there is no DynamoDB Local: %v", EnvRequire, err)
	}
	tb.Skipf("no DynamoDB Local (with %s=1 this is a failure): %v", EnvRequire, err)
	return ""
}
