package queuetest

import (
	"encoding/json"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

func TestEndpointIsShared(t *testing.T) {
	require.Equal(t, Endpoint(t), Endpoint(t))
}

func TestNewMakesWhatIsAskedFor(t *testing.T) {
	plain := New(t, Spec{})
	require.Empty(t, plain.DeadURL)
	require.NotContains(t, attributes(t, plain.Client, plain.URL), "RedrivePolicy")

	q := New(t, Spec{FIFO: true, MaxReceives: 3, Attributes: map[types.QueueAttributeName]string{
		types.QueueAttributeNameVisibilityTimeout: "2",
	}})
	got := attributes(t, q.Client, q.URL)
	require.Equal(t, q.ARN, got["QueueArn"])
	require.Equal(t, "true", got["FifoQueue"])
	require.Equal(t, "2", got["VisibilityTimeout"])
	dead := attributes(t, q.Client, q.DeadURL)
	require.Equal(t, "true", dead["FifoQueue"])
	require.Equal(t, "30", dead["VisibilityTimeout"])
	var policy struct {
		DeadLetterTargetArn string
		MaxReceiveCount     int
	}
	require.NoError(t, json.Unmarshal([]byte(got["RedrivePolicy"]), &policy))
	require.Equal(t, dead["QueueArn"], policy.DeadLetterTargetArn)
	require.Equal(t, 3, policy.MaxReceiveCount)
}

func attributes(t *testing.T, client *sqs.Client, url string) map[string]string {
	t.Helper()
	got, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	require.NoError(t, err)
	return got.Attributes
}
