package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	ordersQueue = "orders"
	deadOrders  = "orders-dead"
	// queueVisibility is six times the function's time-out, as Lambda's guide
	// advises.
	queueVisibility = 6 * functionTimeout
	// maxReceives is the least that it advises.
	maxReceives = 5
)

func newSQS(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
		}),
	})
}

// queues are the orders' queue and its dead-letter queue.
type queues struct {
	client           *sqs.Client
	url, arn         string
	deadURL, deadARN string
}

func createQueues(ctx context.Context, endpoint string) (q queues, err error) {
	q.client = newSQS(endpoint)
	if q.deadURL, q.deadARN, err = q.create(ctx, deadOrders, nil); err != nil {
		return q, err
	}
	policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": q.deadARN, "maxReceiveCount": maxReceives})
	if err != nil {
		return q, err
	}
	q.url, q.arn, err = q.create(ctx, ordersQueue, map[string]string{
		string(types.QueueAttributeNameRedrivePolicy):     string(policy),
		string(types.QueueAttributeNameVisibilityTimeout): seconds(queueVisibility),
	})
	return q, err
}

func (q queues) create(ctx context.Context, name string, attributes map[string]string) (url, arn string, err error) {
	made, err := q.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return "", "", fmt.Errorf("cannot create the queue %s: %w", name, err)
	}
	got, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: made.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		return "", "", fmt.Errorf("cannot ask for the ARN of the queue %s: %w", name, err)
	}
	return *made.QueueUrl, got.Attributes[string(types.QueueAttributeNameQueueArn)], nil
}

// send puts a message with string attributes into the orders' queue.
func (q queues) send(ctx context.Context, body string, attributes map[string]string) (id string, err error) {
	in := &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	for name, value := range attributes {
		in.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	out, err := q.client.SendMessage(ctx, in)
	if err != nil {
		return "", err
	}
	return *out.MessageId, nil
}

// depth counts the messages of a queue, those that somebody works on too.
func (q queues) depth(ctx context.Context, url string) (int, error) {
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	}
	got, err := q.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, name := range names {
		n, err := strconv.Atoi(got.Attributes[string(name)])
		if err != nil {
			return 0, fmt.Errorf("the queue server gave no %s", name)
		}
		sum += n
	}
	return sum, nil
}

func (q queues) purge(ctx context.Context, url string) error {
	_, err := q.client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &url})
	return err
}
