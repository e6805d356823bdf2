package otelidem

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

// spans are the names of what has a duration.
var spans = map[string]string{
	schema.MetricClaimTime:   "idem.claim",
	schema.MetricHandlerTime: "idem.handler",
	schema.MetricFinishTime:  "idem.finish",
}

// trace adds the notice to the context's trace: as a span if it says how long it took, and
// as an event of the current span otherwise.
func (t *Telemetry) trace(ctx context.Context, n *notice.Notice) {
	now := time.Now()
	current := trace.SpanFromContext(ctx)
	if !current.IsRecording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 6)
	attrs = append(attrs, attribute.String("idem.kind", string(n.Kind)), attribute.String("idem.operation", n.Operation), attribute.String("idem.record", n.ID))
	if n.Attempt > 0 {
		attrs = append(attrs, attribute.Int("idem.attempt", n.Attempt))
	}
	if n.State != "" {
		attrs = append(attrs, attribute.String("idem.state", string(n.State)))
	}
	if n.Step != "" {
		attrs = append(attrs, attribute.String("idem.step", n.Step))
	}
	name, long := spans[metric.TimeOf(n)]
	if !long {
		current.AddEvent("idem."+string(n.Kind), trace.WithTimestamp(now), trace.WithAttributes(attrs...))
		return
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-n.Took)), trace.WithAttributes(attrs...))
	switch {
	case n.Kind == notice.Parked:
		span.SetStatus(codes.Error, "nobody knows the outcome")
	case n.Kind == notice.Executed && n.Err != nil:
		// Not its text, which may be about persons.
		span.SetStatus(codes.Error, "the handler returned an error or panicked")
	}
	span.End(trace.WithTimestamp(now))
}
