package idemlambda

import (
	"context"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// EventBridgeRetention is the default retention of an operation behind a bus.
// EventBridge tries to pass an event to its target for 24 hours
// (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-retry-policy.html),
// and Lambda keeps it up to 6 hours more. The rest is for the last retries.
//
// An event that is replayed from an archive under its old id is a repeat while its record
// is kept, and runs again after that. To have events run again sooner, replay them to a
// rule whose function has another operation.
const EventBridgeRetention = 36 * time.Hour

// EventBridgeHandler is a Lambda handler of a bus's events, for lambda.Start.
type EventBridgeHandler func(ctx context.Context, event events.EventBridgeEvent) error

// EventBridge makes an idempotent handler of the events of an EventBridge rule, including
// scheduled ones.
//
// EventBridge delivers at least once: in rare cases a rule runs more than once for a
// single event or scheduled time
// (https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-troubleshooting.html).
// Lambda takes the event asynchronously: after an error it invokes the function twice
// more, and then gives the event to the function's on-failure destination or
// dead-letter queue. A producer that puts an event twice gets two ids: if that
// matters, take the key from the detail with [EventBridgePointer].
//
// A nil key is [EventBridgeID]. In is decoded from the detail as [SQS] decodes a body,
// and the fingerprint is that of the detail; [EventBridgeEventOf] returns the whole event.
// [Reason] says what acknowledges. Everything else is returned as an error, so that the
// service delivers the event again. The retention is [EventBridgeRetention] if the
// operation has none. Mistakes in the set-up panic with a [*idem.ConfigError].
//
// Use [Async] for EventBridge Scheduler, whose payloads are your own. Put
// <aws.scheduler.execution-id> into the payload and take the key from it: it is the same
// in all retries.
func EventBridge[In any](engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.EventBridgeEvent],
	o *Options[events.EventBridgeEvent], fn func(context.Context, In) error) EventBridgeHandler {
	s := newSource(source[events.EventBridgeEvent]{
		what: "idemlambda.EventBridge", noun: "event", engine: engine,
		key: keyOr(key, EventBridgeID), op: withRetention(op, EventBridgeRetention),
		window: eventWindow("EventBridge", eventBridgeWindow),
		name:   func(e *events.EventBridgeEvent) string { return e.ID },
		opts:   optionsOf(o),
	}, eventBridgeBody, fn)
	return func(ctx context.Context, event events.EventBridgeEvent) error {
		return wholeEvent(s.deliver(ctx, []events.EventBridgeEvent{event}))
	}
}

func eventBridgeBody(e *events.EventBridgeEvent) ([]byte, error) { return e.Detail, nil }

// EventBridgeEventOf returns the event whose handler, key function or hook has the
// context, and false outside one.
func EventBridgeEventOf(ctx context.Context) (events.EventBridgeEvent, bool) {
	return recordOf[events.EventBridgeEvent](ctx)
}

// EventBridgeID takes the key from the event's source and id, which are the same in every
// delivery. The key of a scheduled event is its rule and time: a rule that runs twice for
// one time makes two events with different ids.
func EventBridgeID(_ context.Context, e *events.EventBridgeEvent) (tenant, value string, err error) {
	if e.Source == "aws.events" && e.DetailType == "Scheduled Event" && len(e.Resources) == 1 && !e.Time.IsZero() {
		return parts("event", [2]string{"source", e.Source}, [2]string{"resource", e.Resources[0]},
			[2]string{"time", e.Time.UTC().Format(time.RFC3339)})
	}
	return parts("event", [2]string{"source", e.Source}, [2]string{"id", e.ID})
}

// EventBridgePointer takes tenant and key from the event's detail, by the rules of
// [Pointer].
func EventBridgePointer(tenantPointer string, values ...string) RecordKeyFunc[events.EventBridgeEvent] {
	return inBody("EventBridgePointer", tenantPointer, values, eventBridgeBody)
}
