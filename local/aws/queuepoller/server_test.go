package queuepoller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
)

// What fails stays invisible for the visibility time-out, is redelivered with its
// count, and ends in the dead-letter queue.
func TestFailuresAreRedeliveredAndEndInTheDeadLetterQueue(t *testing.T) {
	for name, c := range map[string]struct {
		report bool
		answer func(e fakeEvent) (string, error)
		dead   int
	}{
		"error": {false, func(fakeEvent) (string, error) { return "", errors.New("no") }, 3},
		"named": {true, func(e fakeEvent) (string, error) {
			for _, r := range e.Records {
				if r.Body == "bad" {
					return fmt.Sprintf(`{"batchItemFailures":[{"itemIdentifier":%q}]}`, r.MessageID), nil
				}
			}
			return "", nil
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queuetest.New(t, queuetest.Spec{MaxReceives: 2, Attributes: map[types.QueueAttributeName]string{
				types.QueueAttributeNameVisibilityTimeout: "1",
			}})
			_, err := q.Client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &q.URL, Entries: []types.SendMessageBatchRequestEntry{
				{Id: aws.String("1"), MessageBody: aws.String("good")},
				{Id: aws.String("2"), MessageBody: aws.String("bad")},
				{Id: aws.String("3"), MessageBody: aws.String("fine")},
			}})
			require.NoError(t, err)
			begun := time.Now()
			w := open(t, q.Client, q.URL, functionFunc(c.answer), Options{ReportBatchItemFailures: c.report})
			require.Eventually(t, func() bool { return queuetest.Held(t, q.Client, q.URL) == 0 }, time.Minute, 20*time.Millisecond)
			require.Equal(t, c.dead, queuetest.Held(t, q.Client, q.DeadURL))

			var received []string
			for _, d := range w.deliveries() {
				for _, m := range d.Messages {
					if *m.Body == "bad" {
						received = append(received, m.Attributes["ApproximateReceiveCount"])
					}
				}
			}
			require.Equal(t, []string{"1", "2"}, received)
			require.GreaterOrEqual(t, time.Since(begun), time.Second, "not before the visibility ends")
			require.Empty(t, w.trouble())
		})
	}
}
