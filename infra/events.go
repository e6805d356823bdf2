package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// EventSource is the service that invokes a function asynchronously. It decides how long an
// event may come again, and the library's default retention.
type EventSource string

// The sources of asynchronous events.
const (
	// FromCallers is a caller that does not wait, for idemlambda.Async.
	FromCallers EventSource = "callers"
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

const (
	// MaxEventAge is how long Lambda keeps an asynchronous invocation.
	// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
	MaxEventAge = 6 * time.Hour
	// EventBridgeAge is how long EventBridge tries to pass an event to Lambda, whose own
	// time comes after that.
	// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html
	EventBridgeAge = 24 * time.Hour
	// schedulerAge is the same time of EventBridge Scheduler.
	// https://docs.aws.amazon.com/scheduler/latest/APIReference/API_RetryPolicy.html
	schedulerAge = 24 * time.Hour
	// snsAge is the same time of SNS.
	// https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html
	snsAge = 23 * day

	// The default retentions, as in package idemlambda.
	DefaultAsyncRetention       = 36 * time.Hour
	DefaultEventBridgeRetention = 36 * time.Hour
	DefaultSNSRetention         = 24 * day
	DefaultS3Retention          = 48 * time.Hour
)

// eventSources has for each source how long it tries to pass an event to Lambda, whose own
// time comes after that, and the library's retention.
var eventSources = map[EventSource]struct {
	age, retention time.Duration
	name           string
}{
	FromCallers:     {0, DefaultAsyncRetention, ""},
	FromScheduler:   {schedulerAge, DefaultAsyncRetention, "EventBridge Scheduler"},
	FromEventBridge: {EventBridgeAge, DefaultEventBridgeRetention, "EventBridge"},
	FromSNS:         {snsAge, DefaultSNSRetention, "SNS"},
	FromS3:          {0, DefaultS3Retention, ""},
}

// EventsProps say how a function is invoked asynchronously: by SNS, S3, EventBridge
// or a caller that does not wait. Repeat is required.
type EventsProps struct {
	// Repeat is the declaration of the operation that events run.
	Repeat Repeat
	// Source sends the events. Empty means [FromEventBridge] if EventBridge is
	// set, else [FromCallers].
	Source EventSource
	// Retention of that operation, if its code sets one. Zero means the library's for
	// the source.
	Retention time.Duration
	// MaxAge is how long Lambda keeps an event that it cannot deliver, 1 minute to
	// 6 hours. Zero means [MaxEventAge].
	MaxAge time.Duration
	// NoRetries lets an event be tried only once instead of three times.
	NoRetries bool
	// EventBridge is how long rules try to pass their events to Lambda, up to 24
	// hours: the MaximumEventAge of their targets. For [FromEventBridge], where zero means
	// the default, [EventBridgeAge].
	EventBridge time.Duration

	// Failures is a queue for events that could not be handled. Nil creates one that
	// keeps them for 14 days.
	Failures awssqs.IQueue
	// NoFailures leaves the queue out. A warning says so.
	NoFailures bool
	// EncryptionKey is a customer's KMS key for the queue that is created. Nil means
	// SQS's own.
	EncryptionKey awskms.IKey
}

// OnEvents sets how the function is invoked asynchronously, and tells the function how long
// its source may deliver an event again. It returns the queue of the events that could not
// be handled, or nil if there is none. Call it once.
func (f *Function) OnEvents(props *EventsProps) awssqs.IQueue {
	p := EventsProps{}
	if props != nil {
		p = *props
	}
	for _, problem := range p.setDefaults() {
		refuse(f, "%s", problem)
	}
	source := eventSources[p.Source]
	window, from := p.MaxAge, "Lambda's time for asynchronous events"
	if p.Source == FromEventBridge {
		source.age = p.EventBridge
	}
	if source.age > 0 {
		window, from = window+source.age, source.name+"'s time for the delivery to Lambda, then "+from
	}
	checkRetention(f, p.Repeat, p.Retention, source.retention, window, from)
	f.AddEnvironment(jsii.String(schema.EnvEventRedelivery), jsii.String(seconds(window)), nil)
	queue := p.Failures
	switch {
	case p.NoFailures:
		queue = nil
		warn(f, "no-failures", "events that cannot be handled within %v are lost: leave NoFailures out", p.MaxAge)
	case queue == nil:
		queue = failureQueue(f, "Failures", p.EncryptionKey)
	}
	in := &awslambda.CfnEventInvokeConfigProps{
		FunctionName: f.FunctionName(), Qualifier: jsii.String("$LATEST"),
		MaximumEventAgeInSeconds: jsii.Number(p.MaxAge / time.Second),
	}
	in.MaximumRetryAttempts = jsii.Number(2)
	if p.NoRetries {
		in.MaximumRetryAttempts = jsii.Number(0)
	}
	if queue != nil {
		in.DestinationConfig = &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{Destination: queue.QueueArn()},
		}
	}
	config := awslambda.NewCfnEventInvokeConfig(f, jsii.String("Events"), in)
	if queue != nil {
		// Lambda refuses the destination until the role may send there.
		allow(f, nil, []string{*queue.QueueArn()}, "sqs:SendMessage").ApplyBefore(config)
		allowKey(queue.EncryptionMasterKey(), f)
	}
	return queue
}

func (p *EventsProps) setDefaults() (problems []string) {
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if p.Repeat != Repeatable && p.Repeat != NotRepeatable {
		invalid("Repeat is %q: say infra.Repeatable or infra.NotRepeatable, as the operation that events run does", p.Repeat)
	}
	if p.MaxAge == 0 {
		p.MaxAge = MaxEventAge
	}
	if p.MaxAge < time.Minute || p.MaxAge > MaxEventAge || p.MaxAge%time.Second != 0 {
		invalid("MaxAge is %v: use whole seconds from 1m to %v", p.MaxAge, MaxEventAge)
		p.MaxAge = MaxEventAge
	}
	if p.Source == "" {
		p.Source = FromCallers
		if p.EventBridge != 0 {
			p.Source = FromEventBridge
		}
	}
	if _, known := eventSources[p.Source]; !known {
		invalid("Source is %q: use infra.FromCallers, FromScheduler, FromEventBridge, FromSNS or FromS3", p.Source)
		p.Source = FromCallers
	}
	if p.Source == FromEventBridge && p.EventBridge == 0 {
		p.EventBridge = EventBridgeAge
	}
	if p.Source != FromEventBridge && p.EventBridge != 0 {
		invalid("EventBridge is %v and Source is %q: leave one of them out", p.EventBridge, p.Source)
		p.EventBridge = 0
	}
	if p.EventBridge != 0 && (p.EventBridge < time.Minute || p.EventBridge > EventBridgeAge) {
		invalid("EventBridge is %v: use 1m to %v, or zero for that", p.EventBridge, EventBridgeAge)
		p.EventBridge = EventBridgeAge
	}
	if p.NoFailures && p.Failures != nil {
		invalid("NoFailures is set beside Failures: leave one of them out")
	}
	return problems
}
