package queuetest

import (
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/testenv/queue"
)

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
			taken = append(taken, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if len(taken) == 0 {
			continue
		}
		// A message that is not deleted is redelivered.
		if _, err := client.DeleteMessageBatch(tb.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: taken}); err != nil {
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
