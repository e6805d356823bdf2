// Package queuetest gives tests an SQS-compatible server.
package queuetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/queue"
)

// One server for the whole test process. It is not closed: it ends with the
// process, which is the only moment when no test can want it any more.
var shared = sync.OnceValues(func() (*child.Server, error) {
	return queue.Start(context.Background(), "", "", func(string, ...any) {})
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

// Full makes a queue that hides for ten minutes, and sends it so many messages, in a FIFO queue each of
// a group of its own. It returns their bodies.
func Full(tb testing.TB, fifo bool, messages int) (q Queue, bodies []string) {
	tb.Helper()
	q = New(tb, Spec{FIFO: fifo, Attributes: map[types.QueueAttributeName]string{
		types.QueueAttributeNameVisibilityTimeout: "600",
	}})
	for i := range messages {
		body := strconv.Itoa(i)
		in := &sqs.SendMessageInput{QueueUrl: &q.URL, MessageBody: &body}
		if fifo {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String("g"+body), aws.String("d"+body)
		}
		if _, err := q.Client.SendMessage(tb.Context(), in); err != nil {
			tb.Fatalf("send to %s: %v", q.URL, err)
		}
		bodies = append(bodies, body)
	}
	return q, bodies
}

// hidden is for how many seconds [Drain] hides what it receives.
const hidden = 2

// Drain empties a queue. It returns each message once, with all attributes, in the order of
// their first receives. It returns when the queue has no visible, hidden or delayed
// messages.
//
// A queue delivers at least once: a receive whose reply is lost has hidden messages that
// no consumer has seen. They are redelivered, so one reply without messages is not the end. Do
// not receive from the queue elsewhere at the same time: Drain waits for hidden messages.
func Drain(tb testing.TB, client *sqs.Client, url string) (all []types.Message) {
	tb.Helper()
	seen := map[string]bool{}
	for Held(tb, client, url) > 0 {
		got, err := client.ReceiveMessage(tb.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, VisibilityTimeout: hidden,
			MessageAttributeNames:       []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			tb.Fatalf("receive from %s: %v", url, err)
		}
		var taken []types.DeleteMessageBatchRequestEntry
		for i, m := range got.Messages {
			if id := aws.ToString(m.MessageId); !seen[id] {
				seen[id] = true
				all = append(all, m)
			}
			taken = append(taken, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)),
				ReceiptHandle: m.ReceiptHandle})
		}
		if len(taken) == 0 {
			continue
		}
		// A message that is not deleted is redelivered.
		if _, err := client.DeleteMessageBatch(tb.Context(),
			&sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: taken}); err != nil {
			tb.Fatalf("delete from %s: %v", url, err)
		}
	}
	return all
}

// Held counts a queue's messages: visible, hidden and delayed ones.
func Held(tb testing.TB, client *sqs.Client, url string) int {
	tb.Helper()
	n, err := queue.Held(tb.Context(), client, url)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
