package queuetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/queue"
)

// recorder notes how a test was ended instead of ending it.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (*recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.skipped = fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	// As Fatalf does, nothing after it runs.
	panic(r)
}

func noServer() (*queue.Server, error) { return nil, errors.New("install Node.js") }

func TestEndpointIsShared(t *testing.T) {
	require.Equal(t, Endpoint(t), Endpoint(t))
}

func TestEndpointSkipsWithTheReason(t *testing.T) {
	t.Setenv(EnvRequire, "")
	r := &recorder{TB: t}
	require.Empty(t, endpoint(r, noServer))
	require.Contains(t, r.skipped, "install Node.js")
	require.Empty(t, r.failed)
}

func TestEndpointFailsWhereRequired(t *testing.T) {
	t.Setenv(EnvRequire, "1")
	r := &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { endpoint(r, noServer) })
	require.Contains(t, r.failed, "install Node.js")
	require.Empty(t, r.skipped)
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
