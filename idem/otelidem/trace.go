package otelidem

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
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
	attrs = append(attrs, attribute.String("idem.kind", string(n.Kind)), attribute.String("idem.operation", n.Operation),
		attribute.String("idem.record", n.ID))
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
	if kind, failed := errorOf(n); failed {
		span.SetAttributes(kind)
		span.SetStatus(codes.Error, failures[n.Kind])
	}
	span.End(trace.WithTimestamp(now))
}

// failures are the descriptions of what failed. The error's text is in none: it may be about
// persons.
var failures = map[notice.Kind]string{
	notice.Parked:   "the outcome is not known",
	notice.Executed: "the handler returned an error or panicked",
}

// errorOf is the attribute of what failed, and whether it did: the type of the handler's error.
// https://opentelemetry.io/docs/specs/semconv/general/recording-errors/
func errorOf(n *notice.Notice) (kind attribute.KeyValue, failed bool) {
	switch {
	case n.Kind == notice.Parked:
		return semconv.ErrorTypeKey.String(string(notice.Unknown)), true
	case n.Kind == notice.Executed && n.Err != nil:
		return semconv.ErrorType(n.Err), true
	}
	return kind, false
}
