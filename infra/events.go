package infra

import (
	"cmp"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// EventSource is the service that invokes a function asynchronously. It decides how long an
// event may come again: the library compares that with the operation's retention at start-up.
type EventSource string

// The sources of asynchronous events.
const (
	// DirectInvoke is a caller that does not wait, for idemlambda.Async.
	DirectInvoke EventSource = "direct"
	// FromScheduler is EventBridge Scheduler, for idemlambda.Async: it tries for a day
	// to pass its payload to Lambda.
	FromScheduler EventSource = "scheduler"
	// FromEventBridge is a rule of a bus, for idemlambda.EventBridge.
	FromEventBridge EventSource = "eventbridge"
	// FromSNS is a topic, for idemlambda.SNS.
	FromSNS EventSource = "sns"
	// FromS3 is a bucket, for idemlambda.S3.
	FromS3 EventSource = "s3"
)

// maxEventAge is how long Lambda keeps an asynchronous invocation.
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
const maxEventAge = 6 * time.Hour

// eventSources has for each source how long it tries to pass an event to Lambda, whose own
// time comes after that.
//   - https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html
//   - https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html
//   - https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html
var eventSources = map[EventSource]time.Duration{
	DirectInvoke:    0,
	FromScheduler:   24 * time.Hour,
	FromEventBridge: 24 * time.Hour,
	FromSNS:         23 * day,
	FromS3:          0,
}

// EventsProps say how a function is invoked asynchronously. The zero value, and nil, mean the
// defaults.
type EventsProps struct {
	// Source sends the events. Empty means [DirectInvoke].
	Source EventSource
	// Failures is a queue for events that could not be handled. Nil creates one that
	// keeps them for 14 days; with less than seven FailuresOld is not raised.
	Failures awssqs.IQueue
	// EncryptionKey is a customer's KMS key for the queue that is created. Nil means
	// SQS's own.
	EncryptionKey awskms.IKey
}

// OnEvents sets how the function is invoked asynchronously, and tells the function how long
// its source may deliver an event again. It returns the queue of the events that could not
// be handled. Call it once, and before [NewMonitoring], which then watches the queue.
func (f *Function) OnEvents(props *EventsProps) awssqs.IQueue {
	p := valueOf(props)
	p.Source = cmp.Or(p.Source, DirectInvoke)
	age, known := eventSources[p.Source]
	if !known {
		refuse(f, "Source is %q: use infra.DirectInvoke, FromScheduler, FromEventBridge, FromSNS or FromS3", p.Source)
	}
	f.AddEnvironment(jsii.String(schema.EnvEventRedelivery), jsii.String(seconds(age+maxEventAge)), nil)
	queue := p.Failures
	if queue == nil {
		queue = failureQueue(f, "Failures", p.EncryptionKey)
	}
	f.failures = queue
	config := awslambda.NewCfnEventInvokeConfig(f, jsii.String("Events"), &awslambda.CfnEventInvokeConfigProps{
		FunctionName: f.FunctionName(), Qualifier: jsii.String("$LATEST"),
		MaximumEventAgeInSeconds: jsii.Number(maxEventAge / time.Second), MaximumRetryAttempts: jsii.Number(2),
		DestinationConfig: &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{Destination: queue.QueueArn()},
		},
	})
	// Lambda refuses the destination until the role may send there.
	allow(f, nil, []string{*queue.QueueArn()}, "sqs:SendMessage").ApplyBefore(config)
	allowKey(queue.EncryptionMasterKey(), f, config)
	return queue
}
