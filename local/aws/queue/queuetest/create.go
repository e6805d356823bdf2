package queuetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Spec says what queue a test wants. The zero value is a standard queue with
// the visibility time-out of SQS, 30 s, and no dead-letter queue.
type Spec struct {
	// FIFO makes a FIFO queue, whose dead-letter queue is one too.
	FIFO bool
	// MaxReceives makes a dead-letter queue that takes a message after so many
	// receives. Zero makes none.
	MaxReceives int
	// Attributes are further attributes of the queue, not of its dead-letter
	// queue.
	Attributes map[types.QueueAttributeName]string
}

// Queue is a queue that [New] has made.
type Queue struct {
	Client *sqs.Client
	// URL and ARN of the queue.
	URL, ARN string
	// DeadURL is the URL of its dead-letter queue, empty if it has none.
	DeadURL string
}

// New makes a queue with a random name, and its dead-letter queue, on the shared
// server. They are deleted at the test's end. As with [Endpoint], the test is
// skipped where there is no server.
func New(tb testing.TB, spec Spec) Queue {
	tb.Helper()
	q := Queue{Client: Client(tb)}
	name, suffix := "q-"+rand.Text(), ""
	attributes := map[types.QueueAttributeName]string{}
	if spec.FIFO {
		suffix = ".fifo"
		attributes[types.QueueAttributeNameFifoQueue] = "true"
	}
	if spec.MaxReceives > 0 {
		var arn string
		q.DeadURL, arn = create(tb, q.Client, name+"-dead"+suffix, maps.Clone(attributes))
		policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": arn, "maxReceiveCount": spec.MaxReceives})
		if err != nil {
			tb.Fatal(err)
		}
		attributes[types.QueueAttributeNameRedrivePolicy] = string(policy)
	}
	maps.Copy(attributes, spec.Attributes)
	q.URL, q.ARN = create(tb, q.Client, name+suffix, attributes)
	return q
}

func create(tb testing.TB, client *sqs.Client, name string, attributes map[types.QueueAttributeName]string) (url, arn string) {
	tb.Helper()
	ctx := tb.Context()
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName:  aws.String(name),
		Attributes: stringKeys(attributes),
	})
	if err != nil {
		tb.Fatalf("make the queue %s: %v", name, err)
	}
	url = aws.ToString(made.QueueUrl)
	tb.Cleanup(func() {
		// Best effort: the server ends with the tests.
		_, _ = client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: aws.String(url)})
	})
	got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		tb.Fatalf("ask for the ARN of %s: %v", name, err)
	}
	return url, got.Attributes[string(types.QueueAttributeNameQueueArn)]
}

func stringKeys(attributes map[types.QueueAttributeName]string) map[string]string {
	out := make(map[string]string, len(attributes))
	for name, value := range attributes {
		out[string(name)] = value
	}
	return out
}
