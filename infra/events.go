package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
)

const (
	// DefaultRetention is an operation's that names none, as in package idem.
	DefaultRetention = 24 * time.Hour
	// MaxEventAge is how long Lambda keeps an asynchronous invocation.
	// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
	MaxEventAge = 6 * time.Hour
	// EventBridgeAge is how long EventBridge tries to hand an event to Lambda, which
	// then has its own time.
	// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html
	EventBridgeAge = 24 * time.Hour
)

// EventsProps say how a function is invoked asynchronously: by SNS, S3, EventBridge
// or a caller that does not wait. Repeat is required.
type EventsProps struct {
	// Repeat is the declaration of the operation that events run.
	Repeat Repeat
	// Retention of that operation, if its code sets one. Zero means
	// [DefaultRetention], as in the library.
	Retention time.Duration
	// MaxAge is how long Lambda keeps an event that it cannot hand over, 1 minute to
	// 6 hours. Zero means [MaxEventAge].
	MaxAge time.Duration
	// NoRetries has a failed event tried once instead of three times.
	NoRetries bool
	// EventBridge is how long rules try to hand their events to Lambda, up to 24
	// hours: the MaximumEventAge of their targets. [EventBridgeAge] is their default.
	// Zero means that no events come through EventBridge.
	EventBridge time.Duration

	// Failures is a queue for what could not be handled. Nil creates one that keeps
	// it for 14 days.
	Failures awssqs.IQueue
	// NoFailures leaves the queue out. A warning says so.
	NoFailures bool
	// EncryptionKey is a customer's KMS key for the queue that is created. Nil means
	// SQS's own.
	EncryptionKey awskms.IKey
}

// OnEvents sets how the function is invoked asynchronously. It returns the queue
// of what could not be handled, nil if there is none. Call it once.
func (f *Function) OnEvents(props *EventsProps) awssqs.IQueue {
	p := EventsProps{}
	if props != nil {
		p = *props
	}
	for _, problem := range p.settle() {
		refuse(f, "%s", problem)
	}
	window, from := p.MaxAge, "Lambda's time for asynchronous events"
	if p.EventBridge > 0 {
		window, from = window+p.EventBridge, "EventBridge's time for the delivery to Lambda, then "+from
	}
	checkRetention(f, p.Repeat, p.Retention, DefaultRetention, window, from)
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
		// Lambda refuses the destination as long as the role may not send there.
		allow(f, nil, []string{*queue.QueueArn()}, "sqs:SendMessage").ApplyBefore(config)
		allowKey(queue.EncryptionMasterKey(), f)
	}
	return queue
}

func (p *EventsProps) settle() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if p.Repeat != Repeatable && p.Repeat != NotRepeatable {
		bad("Repeat is %q: say infra.Repeatable or infra.NotRepeatable, as the operation that events run does", p.Repeat)
	}
	if p.MaxAge == 0 {
		p.MaxAge = MaxEventAge
	}
	if p.MaxAge < time.Minute || p.MaxAge > MaxEventAge || p.MaxAge%time.Second != 0 {
		bad("MaxAge is %v: use whole seconds from 1m to %v", p.MaxAge, MaxEventAge)
		p.MaxAge = MaxEventAge
	}
	if p.EventBridge != 0 && (p.EventBridge < time.Minute || p.EventBridge > EventBridgeAge) {
		bad("EventBridge is %v: use 1m to %v, or zero if no events come that way", p.EventBridge, EventBridgeAge)
		p.EventBridge = EventBridgeAge
	}
	if p.NoFailures && p.Failures != nil {
		bad("NoFailures is set beside Failures: leave one of them out")
	}
	return problems
}
