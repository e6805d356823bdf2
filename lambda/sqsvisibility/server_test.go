package sqsvisibility

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

// receive takes messages until there are n, as a function gets them.
func receive(t *testing.T, q queuetest.Queue, n int) (all []idemlambda.SQSDelivery) {
	t.Helper()
	for len(all) < n {
		res, err := q.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		require.NotEmpty(t, res.Messages, "the queue gives no more")
		for _, m := range res.Messages {
			all = append(all, idemlambda.SQSDelivery{Event: &events.SQSMessage{
				MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes,
				EventSourceARN: q.ARN,
			}})
		}
	}
	return all
}

// On a real queue: messages that would be hidden for ten minutes are redelivered when
// the lease is over, and others do not.
func TestHidesOnAServer(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			const n = 12
			q, _ := queuetest.Full(t, fifo, n+1)
			back := receive(t, q, n+1)
			sooner := map[string]bool{}
			for i := range back[:n] {
				back[i].Reason, back[i].LeaseUntil = idemlambda.ReasonInFlight, time.Now()
				sooner[back[i].Event.Body] = true
			}
			back[n].Reason = idemlambda.ReasonReleased
			var log bytes.Buffer
			New(q.Client, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})(t.Context(), back)
			require.Empty(t, log.String())
			for _, again := range receive(t, q, n) {
				require.True(t, sooner[again.Event.Body])
				require.Equal(t, "2", again.Event.Attributes["ApproximateReceiveCount"])
			}
		})
	}
}
