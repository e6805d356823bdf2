package cloud

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/iam"
)

// messages is a template with a function behind queues, which two topics send to.
const messages = `
Resources:
  Print:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 5}
  Events: {Type: AWS::SNS::Topic, Properties: {TopicName: events}}
  Everything:
    Type: AWS::SNS::Subscription
    Properties: {TopicArn: !Ref Events, Protocol: sqs, Endpoint: !GetAtt Audit.Arn}
  Large:
    Type: AWS::SNS::Subscription
    Properties:
      TopicArn: !Ref Events
      Protocol: sqs
      Endpoint: !GetAtt Orders.Arn
      RawMessageDelivery: true
      FilterPolicy: {kind: [order], cents: [{numeric: [">", 100]}]}
  Audit: {Type: AWS::SQS::Queue}
  Orders:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 5
      RedrivePolicy: '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": "2"}'
  Dead: {Type: AWS::SQS::Queue, Properties: {QueueName: dead}}
  Plain: {Type: AWS::SQS::Queue}
  FromPlain:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {FunctionName: !Ref Print, EventSourceArn: !GetAtt Plain.Arn}
  Ledger:
    Type: AWS::SNS::Topic
    Properties:
      TopicName: ledger.fifo
      FifoTopic: true
      Subscription: [{Protocol: sqs, Endpoint: !GetAtt Entries.Arn}]
  Entries:
    Type: AWS::SQS::Queue
    Properties:
      FifoQueue: true
      VisibilityTimeout: 5
      RedrivePolicy: {deadLetterTargetArn: !GetAtt DeadEntries.Arn, maxReceiveCount: 2}
  DeadEntries: {Type: AWS::SQS::Queue, Properties: {FifoQueue: true}}
  FromOrders:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {FunctionName: !Ref Print, EventSourceArn: !GetAtt Orders.Arn, BatchSize: "1",
      ScalingConfig: {MaximumConcurrency: "2"}, FunctionResponseTypes: [ReportBatchItemFailures]}
  FromEntries:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {FunctionName: !Ref Print, EventSourceArn: !GetAtt Entries.Arn, BatchSize: 1,
      FunctionResponseTypes: [ReportBatchItemFailures]}
`

// Messages to topics come to their queues, as the subscriptions say, and those that fail to the queues of dead letters.
func TestMessages(t *testing.T) {
	r, out := started(t, messages, Options{})
	m := r.Plan().Mappings
	require.Equal(t, [3]int{1, 1, 2}, [3]int{m[0].BatchSize, m[1].BatchSize, m[1].MaxConcurrency}, "as text too")
	require.Equal(t, []string{"Shop/FromPlain: without FunctionResponseTypes: ReportBatchItemFailures an error delivers " +
		"the whole batch again, and an item that the function names as failed is lost"}, r.Plan().Notes)
	topics := sns.New(sns.Options{BaseEndpoint: &r.Endpoints.Queues, Region: region, Credentials: own})
	publish := func(in *sns.PublishInput, topic string) {
		t.Helper()
		in.TopicArn = aws.String(iam.ARN("sns", topic))
		_, err := topics.Publish(t.Context(), in)
		require.NoError(t, err)
	}
	client := queue.NewClient(r.Endpoints.Queues)
	// received waits for a message.
	received := func(name string) string {
		t.Helper()
		body := ""
		require.Eventually(t, func() bool {
			got, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{WaitTimeSeconds: 1,
				QueueUrl: aws.String(r.Plan().QueueURL(name))})
			if err == nil && len(got.Messages) > 0 {
				body = *got.Messages[0].Body
			}
			return body != ""
		}, minute, tick, out)
		return body
	}
	order := func(kind, cents string) map[string]snstypes.MessageAttributeValue {
		return map[string]snstypes.MessageAttributeValue{
			"kind":  {DataType: aws.String("String"), StringValue: &kind},
			"cents": {DataType: aws.String("Number"), StringValue: &cents},
		}
	}
	publish(&sns.PublishInput{Message: aws.String("small"), MessageAttributes: order("order", "99")}, "events")
	require.Contains(t, received("Shop-Audit"), `"Message":"small"`)
	publish(&sns.PublishInput{Message: aws.String("large"), MessageAttributes: order("order", "101")}, "events")
	prints(t, out, `"body":"large"`)
	require.NotContains(t, out.String(), "small")

	publish(&sns.PublishInput{Message: aws.String("fail"), MessageAttributes: order("order", "102")}, "events")
	entry := func(body, id string) *sns.PublishInput {
		return &sns.PublishInput{Message: &body, MessageGroupId: aws.String("g"), MessageDeduplicationId: &id}
	}
	publish(entry("entry fail", "1"), "ledger.fifo")
	publish(entry("entry two", "2"), "ledger.fifo")
	publish(entry("entry two again", "2"), "ledger.fifo")
	require.Equal(t, "fail", received("dead"))
	require.Contains(t, received("Shop-DeadEntries.fifo"), `"Message":"entry fail"`)
	prints(t, out, "entry two")
	require.NotContains(t, out.String(), "entry two again")

	for _, name := range []string{"Shop-Plain", "Shop-Orders"} {
		sends(t, r, name, "name")
	}
	require.Equal(t, "name", received("dead"), "named as failed twice")
	held, err := queue.Held(t.Context(), client, r.Plan().QueueURL("Shop-Plain"))
	require.NoError(t, err)
	require.Zero(t, held, "naming it has no effect there")

	change := strings.NewReplacer(`">", 100`, `"<", 100`, "Endpoint: !GetAtt Audit.Arn", "Endpoint: !GetAtt Dead.Arn")
	require.NoError(t, rewrite(t, r, change.Replace(messages)))
	publish(&sns.PublishInput{Message: aws.String("medium"), MessageAttributes: order("order", "50")}, "events")
	prints(t, out, `"body":"medium"`)
	require.Contains(t, received("dead"), `"Message":"medium"`)
	held, err = queue.Held(t.Context(), client, r.Plan().QueueURL("Shop-Audit"))
	require.NoError(t, err)
	require.Equal(t, 3, held, "small, large and the one that fails, but not the medium one")
}

// What a template sets no longer goes back to its default.
func TestQueueAttributes(t *testing.T) {
	const queues = `
Resources:
  Dead: {Type: AWS::SQS::Queue, Properties: {FifoQueue: true}}
  Jobs:
    Type: AWS::SQS::Queue
    Properties:
      FifoQueue: true
      DeduplicationScope: messageGroup
      FifoThroughputLimit: perMessageGroupId
      VisibilityTimeout: 40
`
	const more = `      DelaySeconds: 600
      ContentBasedDeduplication: true
      MaximumMessageSize: 2048
      MessageRetentionPeriod: 60
      ReceiveMessageWaitTimeSeconds: 1
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 2}
`
	r, _ := started(t, queues+more, Options{})
	client := queue.NewClient(r.Endpoints.Queues)
	attributes := func(name string) map[string]string {
		t.Helper()
		got, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: aws.String(r.Plan().QueueURL(name)), AttributeNames: []types.QueueAttributeName{"All"}})
		require.NoError(t, err)
		return got.Attributes
	}
	before := attributes("Shop-Jobs.fifo")
	require.Equal(t, []string{"600", "40", "true"}, []string{before["DelaySeconds"], before["VisibilityTimeout"],
		before["ContentBasedDeduplication"]})
	require.NotEmpty(t, before["RedrivePolicy"])
	defaults := attributes("Shop-Dead.fifo")
	require.NoError(t, rewrite(t, r, queues))
	after := attributes("Shop-Jobs.fifo")
	for name, value := range queueDefaults {
		require.Equal(t, value, defaults[name], "the server's default of %s", name)
		if name == "VisibilityTimeout" {
			value = "40"
		}
		require.Equal(t, value, after[name], name)
	}
	require.NotContains(t, attributes("Shop-Dead.fifo"), "RedrivePolicy")
}

func TestMessagesThatAreRefused(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"Protocol: sqs, Endpoint: !GetAtt Audit.Arn", "Protocol: email, Endpoint: a@b"}://
		"Shop/Everything (AWS::SNS::Subscription): a subscription of email does not run here, only one of a queue",
		{"Endpoint: !GetAtt Audit.Arn", "Endpoint: arn:aws:sqs:a:b:none"}://
		"Shop/Everything: there is no queue none",
		{"TopicArn: !Ref Events, Protocol", "TopicArn: arn:aws:sns:a:b:none, Protocol"}://
		"Shop/Everything: there is no topic none",
		{`"maxReceiveCount": "2"`, `"maxReceiveCount": "two"`}://
		"Shop/Orders (AWS::SQS::Queue): RedrivePolicy: ",
		{"  Dead: {Type: AWS::SQS::Queue, Properties: {QueueName: dead}}", ""}://
		"Shop/Orders: there is no queue dead for its dead letters",
		{"Dead: {Type: AWS::SQS::Queue, Properties: {QueueName: dead}}",
			"Dead: {Type: AWS::SQS::Queue, Properties: {QueueName: Shop-Audit}}"}: //
		"two queues have the name Shop-Audit",
		{`MaximumConcurrency: "2"`, `MaximumConcurrency: "1"`}://
		"Shop/FromOrders: queuepoller: Options.MaxConcurrency 1 is not in [2, 1000]",
		{"BatchSize: 1,\n", "BatchSize: 1,\n      FilterCriteria: {Filters: [{Pattern: '{}'}]},\n"}://
		"Shop/FromEntries (AWS::Lambda::EventSourceMapping): filters of a queue's messages do not run here",
	} {
		require.Contains(t, messages, change[0])
		_, err := read(t, strings.Replace(messages, change[0], change[1], 1), nil)
		require.ErrorContains(t, err, want, change[1])
	}
}
