package sqsparking

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/queue/queuetest"
	"github.com/stretchr/testify/require"
)

// On real queues: the message arrives as it was, with the reason, and on a FIFO
// queue once.
func TestParksOnAServer(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queuetest.New(t, queuetest.Spec{FIFO: fifo})
		park := New(q.Client, q.URL)
		out := idemlambda.SQSOutcome{Record: message(), KeyID: "#fulfil#abc", Reason: idemlambda.ReasonFailed,
			Failure: &idem.Failure{Message: "no such article\x1b[0m", Type: "MissingError", Code: "E7"}}
		require.NoError(t, park(t.Context(), out))
		if fifo {
			require.NoError(t, park(t.Context(), out))
		}
		res, err := q.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.URL, WaitTimeSeconds: 20, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		require.Len(t, res.Messages, 1)
		m := res.Messages[0]
		require.Equal(t, out.Record.Body, *m.Body)
		require.Equal(t, attributes(&out), m.MessageAttributes)
		require.Equal(t, "no such article\uFFFD[0m", *m.MessageAttributes[FailureAttribute].StringValue)
		if !fifo {
			continue
		}
		require.Equal(t, "customer-17", m.Attributes["MessageGroupId"])
		_, err = q.Client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &q.URL, ReceiptHandle: m.ReceiptHandle})
		require.NoError(t, err)
		left, err := q.Client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: &q.URL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		require.NoError(t, err)
		require.Equal(t, "0", left.Attributes["ApproximateNumberOfMessages"])
	}
}

// A parking queue that is not there is an error: the message is not lost.
func TestParkingQueueThatIsNotThere(t *testing.T) {
	q := queuetest.New(t, queuetest.Spec{})
	park := New(q.Client, q.URL+"-gone")
	err := park(t.Context(), idemlambda.SQSOutcome{Record: message()})
	var gone *types.QueueDoesNotExist
	require.ErrorAs(t, err, &gone)
}
