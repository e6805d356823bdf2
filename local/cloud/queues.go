package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/aws/template"
)

// Queue is a queue of SQS.
type Queue struct {
	Name        string
	Attributes  map[string]string // without its dead letters
	DeadLetters string            // the queue that gets what was received too often; empty if there is none
	redrive     struct {
		DeadLetterTargetArn string
		MaxReceiveCount     number
	}
	of *resource
}

// Topic is a topic of SNS.
type Topic struct {
	Name string
	FIFO bool
}

// Subscription of a queue to a topic.
type Subscription struct {
	Topic, Queue string
	Attributes   map[string]string
	of           *resource
}

// attributes of a queue that the server takes as they are.
var queueAttributes = []string{"VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds", "MaximumMessageSize",
	"ReceiveMessageWaitTimeSeconds", "FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"}

// Attributes of a queue that does not set them.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html
var queueDefaults = map[string]string{
	"VisibilityTimeout": "30", "MessageRetentionPeriod": "345600", "DelaySeconds": "0",
	"MaximumMessageSize": "1048576", "ReceiveMessageWaitTimeSeconds": "0", "ContentBasedDeduplication": "false",
	"RedrivePolicy": ""}

func init() {
	kinds["AWS::SQS::Queue"] = kind{service: "sqs", name: "QueueName", ref: "QueueUrl", plan: planned(planQueue),
		suffix: fifo("FifoQueue"),
		more: func(r *resource, attribute string) string {
			name, err := r.name()
			if attribute != "QueueUrl" || err != nil {
				return ""
			}
			return r.stack.plan.QueueURL(name)
		},
		// The plan reads the attributes by itself.
		ignored: append(queueAttributes, "SqsManagedSseEnabled", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds",
			"RedriveAllowPolicy"),
	}
	kinds["AWS::SNS::Topic"] = kind{service: "sns", name: "TopicName", ref: "Arn", plan: planned(planTopic),
		suffix:  fifo("FifoTopic"),
		ignored: []string{"KmsMasterKeyId", "DisplayName", "TracingConfig", "DataProtectionPolicy", "SignatureVersion"}}
	kinds["AWS::SNS::Subscription"] = kind{service: "sns", ref: "Arn", plan: planned((*Plan).subscribe)}
}

// fifo is the end of the name of what is first in, first out.
func fifo(property string) func(*resource) string {
	return func(r *resource) string {
		if fmt.Sprint(r.Properties[property]) == "true" {
			return ".fifo"
		}
		return ""
	}
}

// QueueURL is the URL of a queue.
func (p *Plan) QueueURL(name string) string {
	return cmp.Or(p.options.Endpoints.Queues, notYet) + "/" + account + "/" + name
}

func planQueue(p *Plan, r *resource, is struct{ RedrivePolicy json.RawMessage }) error {
	q := Queue{Name: r.physical, Attributes: map[string]string{}, of: r}
	properties, _ := r.stack.scope.Properties(r.id) // which were read before
	for _, name := range queueAttributes {
		if v, ok := properties[name]; ok {
			q.Attributes[name] = text(v)
		}
	}
	policy, text := is.RedrivePolicy, ""
	if json.Unmarshal(policy, &text) == nil && text != "" { // JSON in a text
		policy = []byte(text)
	}
	if policy != nil {
		if err := json.Unmarshal(policy, &q.redrive); err != nil {
			return r.fail("RedrivePolicy: %w", err)
		}
	}
	q.DeadLetters = lastPart(q.redrive.DeadLetterTargetArn)
	p.Queues = append(p.Queues, q)
	return nil
}

func planTopic(p *Plan, r *resource, is struct {
	FifoTopic    flag
	Subscription []subscription
}) error {
	p.Topics = append(p.Topics, Topic{Name: r.physical, FIFO: bool(is.FifoTopic)})
	for _, s := range is.Subscription {
		s.TopicArn = r.physical
		if err := p.subscribe(r, s); err != nil {
			return err
		}
	}
	return nil
}

type subscription struct {
	TopicArn, Protocol, Endpoint, FilterPolicyScope string
	RawMessageDelivery                              flag
	FilterPolicy                                    json.RawMessage
}

func (p *Plan) subscribe(r *resource, s subscription) error {
	if s.Protocol != "sqs" {
		return r.fail("a subscription of %s does not run here, only one of a queue", s.Protocol)
	}
	to := Subscription{Topic: lastPart(s.TopicArn), Queue: lastPart(s.Endpoint), of: r,
		Attributes: map[string]string{"FilterPolicy": string(s.FilterPolicy), "FilterPolicyScope": s.FilterPolicyScope}}
	if s.RawMessageDelivery {
		to.Attributes["RawMessageDelivery"] = "true"
	}
	maps.DeleteFunc(to.Attributes, func(_, value string) bool { return value == "" })
	p.Subscriptions = append(p.Subscriptions, to)
	return nil
}

func text(v any) string {
	s, err := template.Text(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return s
}

// lastPart is what is behind the last colon of an ARN.
func lastPart(arn string) string { return arn[strings.LastIndex(arn, ":")+1:] }

// createQueues makes the queues, those for dead letters first, and the topics.
func (r *Running) createQueues(ctx context.Context, p *Plan) error {
	client := queue.NewClient(r.Endpoints.Queues)
	for _, last := range []bool{false, true} {
		for _, q := range p.Queues {
			if (q.DeadLetters != "") != last {
				continue
			}
			attributes := maps.Clone(q.Attributes)
			if last {
				attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`,
					iam.ARN("sqs", q.DeadLetters), q.redrive.MaxReceiveCount)
			}
			if err := makeQueue(ctx, client, q.Name, p.QueueURL(q.Name), attributes); err != nil {
				return fmt.Errorf("cannot create the queue %s: %w", q.Name, err)
			}
		}
	}
	topics := sns.New(sns.Options{BaseEndpoint: &r.Endpoints.Queues, Region: region, Credentials: own})
	for _, t := range p.Topics {
		in := &sns.CreateTopicInput{Name: &t.Name}
		if t.FIFO {
			in.Attributes = map[string]string{"FifoTopic": "true"}
		}
		if _, err := topics.CreateTopic(ctx, in); err != nil {
			return fmt.Errorf("cannot create the topic %s: %w", t.Name, err)
		}
	}
	return renew(r.subscriptions, p.Subscriptions, func(s Subscription) (func(), error) {
		made, err := topics.Subscribe(ctx, &sns.SubscribeInput{
			TopicArn: aws.String(iam.ARN("sns", s.Topic)), Protocol: aws.String("sqs"),
			Endpoint: aws.String(iam.ARN("sqs", s.Queue)), Attributes: s.Attributes, ReturnSubscriptionArn: true,
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.of, err)
		}
		return func() {
			// What goes wrong here does again with the next subscription of this queue, which says so.
			_, _ = topics.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: made.SubscriptionArn})
		}, nil
	})
}

// makeQueue creates a queue, or gives the one that is there these attributes, and the defaults of the others.
func makeQueue(ctx context.Context, client *sqs.Client, name, url string, attributes map[string]string) error {
	there, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if _, missing := errors.AsType[*types.QueueDoesNotExist](err); missing {
		_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		return err
	}
	if err != nil {
		return err
	}
	for key, value := range queueDefaults {
		_, wanted := attributes[key]
		if _, has := there.Attributes[key]; has && !wanted {
			attributes[key] = value
		}
	}
	for _, key := range []string{"FifoQueue", "DeduplicationScope", "FifoThroughputLimit"} {
		delete(attributes, key) // the server takes them only from CreateQueue, and the last two change nothing there
	}
	_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: attributes})
	return err
}
