// Package queuetest gives tests an SQS-compatible server.
package queuetest

import (
	"context"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/local/aws/child/childtest"
	"github.com/idem-go/idempotency/local/aws/queue"
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
// Where none can be had the test is skipped, with the reason, or fails if
// IDEM_REQUIRE_DYNAMODB is 1. Call it from the test's own goroutine; several
// tests may call it at once.
func Endpoint(tb testing.TB) string {
	tb.Helper()
	return childtest.Need(tb, "queue server", shared).Endpoint()
}

// Client returns a client of the server at [Endpoint].
func Client(tb testing.TB) *sqs.Client {
	tb.Helper()
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(Endpoint(tb)),
		Region:       "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "idemlocal", SecretAccessKey: "idemlocal"}, nil
		}),
	})
}
