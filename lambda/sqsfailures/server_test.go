package sqsfailures

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

// On real queues: the message arrives as it was, with the reason, and on a FIFO
// queue once.
func TestForwardsOnAServer(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queuetest.New(t, queuetest.Spec{FIFO: fifo})
		forward := New(q.Client, q.URL)
		out := idemlambda.SQSDelivery{Event: message(), RecordID: "#fulfil#abc", Reason: idemlambda.ReasonFailed,
			Failure: &idem.Failure{Message: "no such article\x1b[0m \xff", Type: "MissingError"}}
		require.NoError(t, forward(t.Context(), out))
		if fifo {
			require.NoError(t, forward(t.Context(), out))
		}
		all := queuetest.Drain(t, q.Client, q.URL)
		require.Len(t, all, 1)
		m := all[0]
		require.Equal(t, out.Event.Body, *m.Body)
		require.Equal(t, map[string]types.MessageAttributeValue{
			"idempotency-key":    text("k1"),
			"priority":           {DataType: aws.String("Number.int"), StringValue: aws.String("5")},
			"trace":              {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}},
			FailureAttribute:     text("no such article\uFFFD[0m \uFFFD"),
			FailureTypeAttribute: text("MissingError"),
			RecordAttribute:      text("#fulfil#abc"),
			QueueAttribute:       text(source),
			MessageAttribute:     text("m1"),
		}, m.MessageAttributes)
		require.Equal(t, map[bool]string{true: "customer-17"}[fifo], m.Attributes["MessageGroupId"])
	}
}

// A failure queue that is not there is an error: the message is not lost.
func TestFailureQueueThatIsNotThere(t *testing.T) {
	q := queuetest.New(t, queuetest.Spec{})
	forward := New(q.Client, q.URL+"-gone")
	err := forward(t.Context(), idemlambda.SQSDelivery{Event: message()})
	var gone *types.QueueDoesNotExist
	require.ErrorAs(t, err, &gone)
}
