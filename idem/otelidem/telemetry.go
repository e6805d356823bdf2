package otelidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	scope = "github.com/idem-go/idempotency/idem/otelidem"

	// DefaultFlushTimeout bounds a flush: an exporter that hangs must not cost an invocation
	// its time.
	DefaultFlushTimeout = time.Second
)

// Options of telemetry. The zero value, and nil, mean the defaults.
type Options struct {
	// MeterProvider and TracerProvider get the metrics and the spans. Nil means OpenTelemetry's
	// global ones, as they are at the time of New.
	MeterProvider  otelmetric.MeterProvider
	TracerProvider trace.TracerProvider
	// FlushTimeout bounds [Telemetry.Flush]. Zero means [DefaultFlushTimeout].
	FlushTimeout time.Duration
}

// Telemetry makes metrics and spans of notices. It is safe for concurrent use: make
// one per process.
type Telemetry struct {
	tracer      trace.Tracer
	flushers    []flusher
	timeout     time.Duration
	instruments []instrument // by place in metric.All
	operations  sync.Map     // string → otelmetric.MeasurementOption
}

// flusher is a provider of OpenTelemetry's SDK.
type flusher interface {
	ForceFlush(ctx context.Context) error
}

// instrument is one of these.
type instrument struct {
	counter   otelmetric.Int64Counter
	sum       otelmetric.Float64Counter
	gauge     otelmetric.Int64Gauge
	histogram otelmetric.Float64Histogram
}

// New returns telemetry. The errors are an [*idem.ConfigError], or those of a meter that does
// not make an instrument.
func New(o *Options) (*Telemetry, error) {
	o = cmp.Or(o, &Options{})
	if o.FlushTimeout < 0 {
		return nil, &idem.ConfigError{What: "otelidem",
			Problem: fmt.Sprintf("FlushTimeout is %v: it cannot be negative", o.FlushTimeout)}
	}
	meters := cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	traces := cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	t := &Telemetry{tracer: traces.Tracer(scope), timeout: cmp.Or(o.FlushTimeout, DefaultFlushTimeout)}
	for _, p := range []any{traces, meters} {
		if f, ok := p.(flusher); ok {
			t.flushers = append(t.flushers, f)
		}
	}
	meter := meters.Meter(scope)
	for _, m := range metric.All {
		var i instrument
		var err error
		switch m.Kind {
		case metric.Count:
			i.counter, err = meter.Int64Counter("idem."+m.Name, otelmetric.WithUnit("{"+m.Of+"}"))
		case metric.Units:
			i.sum, err = meter.Float64Counter("idem."+m.Name, otelmetric.WithUnit("{"+m.Of+"}"))
		case metric.Level:
			i.gauge, err = meter.Int64Gauge("idem."+m.Name, otelmetric.WithUnit("{"+m.Of+"}"))
		case metric.Age:
			i.gauge, err = meter.Int64Gauge("idem."+m.Name, otelmetric.WithUnit("s"))
		case metric.Time:
			i.histogram, err = meter.Float64Histogram(spans[m.Name]+".duration", otelmetric.WithUnit("s"),
				otelmetric.WithExplicitBucketBoundaries(buckets...))
		case metric.Share:
			i.histogram, err = meter.Float64Histogram("idem."+m.Name, otelmetric.WithUnit(m.Of),
				otelmetric.WithExplicitBucketBoundaries(0))
		}
		if err != nil {
			return nil, fmt.Errorf("otelidem: %s: %w", m.Name, err)
		}
		t.instruments = append(t.instruments, i)
	}
	return t, nil
}

// buckets are those that OpenTelemetry recommends for durations in seconds, and two more for
// long handlers.
// https://opentelemetry.io/docs/specs/semconv/http/http-metrics/
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60}

// of is the attribute set of the operation, without one if it is empty.
func (t *Telemetry) of(operation string) otelmetric.MeasurementOption {
	if set, ok := t.operations.Load(operation); ok {
		return set.(otelmetric.MeasurementOption)
	}
	set := attribute.NewSet()
	if operation != "" {
		set = attribute.NewSet(attribute.String("idem.operation", operation))
	}
	with := otelmetric.WithAttributeSet(set)
	t.operations.Store(operation, with)
	return with
}

// Observe counts a notice and adds it to the context's trace. It is an [idem.Observer], for
// engines and sweepers. Kinds that package schema has no metric for are in traces alone.
func (t *Telemetry) Observe(ctx context.Context, n notice.Notice) {
	if i, ok := metric.Number(string(n.Kind)); ok {
		t.instruments[i].counter.Add(ctx, 1, t.of(n.Operation))
	}
	if i, ok := metric.Number(metric.TimeOf(&n)); ok {
		h := t.instruments[i].histogram
		if kind, failed := errorOf(&n); failed {
			h.Record(ctx, n.Took.Seconds(), t.of(n.Operation), otelmetric.WithAttributes(kind))
		} else {
			h.Record(ctx, n.Took.Seconds(), t.of(n.Operation))
		}
	}
	if percent, called := metric.Duplicate(&n); called {
		t.instruments[duplicate].histogram.Record(ctx, percent, t.of(n.Operation))
	}
	t.trace(ctx, &n)
}

// duplicate is the place in metric.All.
var duplicate, _ = metric.Number(schema.MetricDuplicate)

// Add adds counts by their names in package schema, such as those of a report, for the
// operation; empty means none. A level or an age replaces the one before. Names that package
// schema does not have are ignored.
func (t *Telemetry) Add(ctx context.Context, operation string, counts iter.Seq2[string, int]) {
	for name, n := range counts {
		i, ok := metric.Number(name)
		if !ok {
			continue
		}
		switch metric.All[i].Kind {
		case metric.Count:
			t.instruments[i].counter.Add(ctx, int64(n), t.of(operation))
		case metric.Units:
			t.instruments[i].sum.Add(ctx, float64(n), t.of(operation))
		case metric.Level, metric.Age:
			t.instruments[i].gauge.Record(ctx, int64(n), t.of(operation))
		}
	}
}

// Units adds write and read units of DynamoDB for the operation; empty means none. It is for
// dynamostore.MeterCapacity.
func (t *Telemetry) Units(ctx context.Context, operation string, write, read float64) {
	for name, n := range map[string]float64{schema.MetricWriteUnits: write, schema.MetricReadUnits: read} {
		if i, ok := metric.Number(name); ok && n > 0 {
			t.instruments[i].sum.Add(ctx, n, t.of(operation))
		}
	}
}

// Flush has the providers export what they have, if they are those of OpenTelemetry's SDK,
// within [Options.FlushTimeout].
func (t *Telemetry) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	failed := make([]error, len(t.flushers))
	var g sync.WaitGroup
	for i, f := range t.flushers {
		g.Go(func() { failed[i] = f.ForceFlush(ctx) })
	}
	g.Wait()
	return errors.Join(failed...)
}

// Handler is a handler of aws-lambda-go (its lambda.Handler).
type Handler interface {
	Invoke(ctx context.Context, payload []byte) ([]byte, error)
}

// Wrap returns a handler that invokes h and then flushes, also after a panic. An invocation that
// lasts until [Options.FlushTimeout] before its deadline, at which Lambda kills the process, or
// until an eighth of its time is left, flushes then too. A flush that fails is logged. A wrapper that
// begins the invocation's span belongs inside, so that its span is over before the flush.
func (t *Telemetry) Wrap(h Handler) Handler { return wrapped{t, h} }

type wrapped struct {
	t *Telemetry
	h Handler
}

func (w wrapped) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		defer time.AfterFunc(left-min(w.t.timeout, left/8), func() { w.flush(ctx) }).Stop()
	}
	defer w.flush(ctx)
	return w.h.Invoke(ctx, payload)
}

func (w wrapped) flush(ctx context.Context) {
	if err := w.t.Flush(ctx); err != nil {
		slog.WarnContext(ctx, "idem: telemetry could not be flushed", "error", err)
	}
}
