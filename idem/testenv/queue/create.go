package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Spec says what queue is wanted. Without more than a name it is a standard queue with
// the visibility time-out of SQS, 30 s, and no dead-letter queue.
type Spec struct {
	// Name of the queue, without ".fifo"; that of its dead-letter queue ends with "-dead".
	Name string
	// FIFO makes a FIFO queue, whose dead-letter queue is one too.
	FIFO bool
	// MaxReceives makes a dead-letter queue that takes a message after so many
	// receives. Zero makes none.
	MaxReceives int
	// Attributes are further attributes of the queue, not of its dead-letter
	// queue.
	Attributes map[types.QueueAttributeName]string
}

// Queue is a queue that [Create] has made.
type Queue struct {
	Client *sqs.Client
	// URL and ARN of the queue.
	URL, ARN string
	// DeadURL is the URL of its dead-letter queue, empty if it has none.
	DeadURL string
}

// NewClient returns a client of the server at the endpoint.
func NewClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", ""),
	})
}

// Create makes a queue and its dead-letter queue.
func Create(ctx context.Context, client *sqs.Client, spec Spec) (q Queue, err error) {
	q.Client = client
	suffix, attributes := "", map[string]string{}
	if spec.FIFO {
		suffix, attributes[string(types.QueueAttributeNameFifoQueue)] = ".fifo", "true"
	}
	if spec.MaxReceives > 0 {
		var arn string
		if q.DeadURL, arn, err = q.create(ctx, spec.Name+"-dead"+suffix, maps.Clone(attributes)); err != nil {
			return q, err
		}
		policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": arn, "maxReceiveCount": spec.MaxReceives})
		if err != nil {
			return q, err
		}
		attributes[string(types.QueueAttributeNameRedrivePolicy)] = string(policy)
	}
	for name, value := range spec.Attributes {
		attributes[string(name)] = value
	}
	q.URL, q.ARN, err = q.create(ctx, spec.Name+suffix, attributes)
	return q, err
}

func (q Queue) create(ctx context.Context, name string, attributes map[string]string) (url, arn string, err error) {
	made, err := q.Client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return "", "", fmt.Errorf("cannot create the queue %s: %w", name, err)
	}
	got, err := q.Client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: made.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return "", "", fmt.Errorf("cannot ask for the ARN of the queue %s: %w", name, err)
	}
	return *made.QueueUrl, got.Attributes[string(types.QueueAttributeNameQueueArn)], nil
}

// Held counts the messages that a queue holds: visible, hidden and delayed ones.
func Held(ctx context.Context, client *sqs.Client, url string) (n int, err error) {
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
	got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, fmt.Errorf("ask what %s holds: %w", url, err)
	}
	for _, name := range names {
		count, err := strconv.Atoi(got.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("ask what %s holds: %s: %w", url, name, err)
		}
		n += count
	}
	return n, nil
}
