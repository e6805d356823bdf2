package sqsfailures

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/internal/queue/queuetest"
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
			Failure: &idem.Failure{Message: "no such article\x1b[0m", Type: "MissingError", Code: "E7"}}
		require.NoError(t, forward(t.Context(), out))
		if fifo {
			require.NoError(t, forward(t.Context(), out))
		}
		all := queuetest.Drain(t, q.Client, q.URL)
		require.Len(t, all, 1)
		m := all[0]
		require.Equal(t, out.Event.Body, *m.Body)
		require.Equal(t, attributes(&out, maxMessage), m.MessageAttributes)
		require.Equal(t, "no such article\uFFFD[0m", *m.MessageAttributes[FailureAttribute].StringValue)
		if fifo {
			require.Equal(t, "customer-17", m.Attributes["MessageGroupId"])
		}
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
