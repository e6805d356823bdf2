package otelidem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/otelidem"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	refund = idem.Operation{Name: "refund"}
)

// collector is a user's providers, in memory.
type collector struct {
	reader *sdkmetric.ManualReader
	meters *sdkmetric.MeterProvider
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
}

func newCollector() *collector {
	c := &collector{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	c.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))
	c.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c.spans))
	return c
}

func (c *collector) telemetry(t *testing.T) *otelidem.Telemetry {
	o, err := otelidem.New(&otelidem.Options{MeterProvider: c.meters, TracerProvider: c.traces})
	require.NoError(t, err)
	return o
}

// numbers are the metrics by name and operation; of a histogram, its count and sum.
func (c *collector) numbers(t *testing.T) map[string]any {
	var all metricdata.ResourceMetrics
	require.NoError(t, c.reader.Collect(t.Context(), &all))
	found := map[string]any{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				require.True(t, data.IsMonotonic)
				require.Regexp(t, `^\{[a-z]+\}$`, m.Unit)
				values(found, m.Name, data.DataPoints)
			case metricdata.Sum[float64]:
				require.True(t, data.IsMonotonic)
				require.Equal(t, "{unit}", m.Unit)
				values(found, m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				values(found, m.Name, data.DataPoints)
			case metricdata.Histogram[float64]:
				require.Contains(t, []string{"s", "%"}, m.Unit)
				for _, p := range data.DataPoints {
					found[m.Name+of(p.Attributes)] = fmt.Sprintf("%d: %v %s", p.Count, p.Sum, m.Unit)
				}
			default:
				require.Fail(t, "unexpected", "%T", data)
			}
		}
	}
	return found
}

func values[N int64 | float64](found map[string]any, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		found[name+of(p.Attributes)] = p.Value
	}
}

// of is what a point is about.
func of(attrs attribute.Set) string {
	operation, _ := attrs.Value("idem.operation")
	if failure, ok := attrs.Value("error.type"); ok {
		return " " + operation.AsString() + " " + failure.AsString()
	}
	return " " + operation.AsString()
}

func call(ctx context.Context, e *idem.Engine, op idem.Operation, err error) {
	_, _ = idem.Do(ctx, e, op.Key("acme", "k"), 1, func(context.Context, int) (int, error) {
		time.Sleep(1500 * time.Millisecond)
		return 1, err
	})
}

func TestMetricsAndSpansOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollector()
		h := idemtest.New(t, nil)
		for range 2 {
			h.Faults.Next(idemtest.Acquire, slow)
		}
		e, err := idem.New(h.Faults, &idem.Options{Observer: c.telemetry(t).Observe})
		require.NoError(t, err)
		ctx, span := c.traces.Tracer("user").Start(t.Context(), "POST /payments")
		began := time.Now()
		call(ctx, e, charge, nil)
		call(ctx, e, charge, nil)
		call(ctx, e, refund, errors.New("the provider said something about Alice"))
		span.End()

		require.Equal(t, map[string]any{
			"idem.claimed charge": int64(1), "idem.executed charge": int64(1), "idem.completed charge": int64(1),
			"idem.replayed charge": int64(1), "idem.duplicate charge": "2: 100 %",
			"idem.claim.duration charge": "1: 0.25 s", "idem.handler.duration charge": "1: 1.5 s",
			"idem.claimed refund": int64(1), "idem.executed refund": int64(1), "idem.parked refund": int64(1),
			"idem.duplicate refund":                            "1: 0 %",
			"idem.handler.duration refund *errors.errorString": "1: 1.5 s",
		}, c.numbers(t))

		ended := c.spans.Ended()
		var names []string
		for _, s := range ended {
			names = append(names, s.Name())
			if s.Name() != "POST /payments" {
				require.Equal(t, span.SpanContext().SpanID(), s.Parent().SpanID())
				require.Equal(t, span.SpanContext().TraceID(), s.SpanContext().TraceID())
			}
			require.NotContains(t, fmt.Sprint(s.Attributes(), s.Status(), s.Events()), "Alice")
		}
		require.Equal(t, []string{"idem.claim", "idem.handler", "idem.handler", "POST /payments"}, names[:4])
		require.Equal(t, began, ended[0].StartTime())
		require.Equal(t, 250*time.Millisecond, ended[0].EndTime().Sub(ended[0].StartTime()))
		require.Equal(t, ended[0].EndTime(), ended[1].StartTime())
		require.Equal(t, 1500*time.Millisecond, ended[1].EndTime().Sub(ended[1].StartTime()))
		require.Equal(t, codes.Unset, ended[1].Status().Code)
		require.Equal(t, codes.Error, ended[2].Status().Code)
		require.Contains(t, ended[2].Attributes(), attribute.String("error.type", "*errors.errorString"))
		var events []string
		for _, e := range ended[3].Events() {
			events = append(events, e.Name)
		}
		require.Contains(t, events, "idem.replayed")
	})
}

// What is not in a trace makes no traces of its own.
func TestACallOutsideATraceHasNoSpans(t *testing.T) {
	c := newCollector()
	e, err := idem.New(memstore.New(), &idem.Options{Observer: c.telemetry(t).Observe})
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), e, charge.Key("acme", "k"), 1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Empty(t, c.spans.Ended())
	require.Equal(t, int64(1), c.numbers(t)["idem.completed charge"])
}

func TestEveryMetricIsMade(t *testing.T) {
	c := newCollector()
	o := c.telemetry(t)
	o.Add(t.Context(), "charge", func(yield func(string, int) bool) {
		for _, m := range metric.All {
			if !yield(m.Name, 7) {
				return
			}
		}
		yield("none", 1)
	})
	for _, kind := range []notice.Kind{notice.Claimed, notice.Executed, notice.Completed, "of a later release"} {
		o.Observe(t.Context(), notice.Notice{Kind: kind, Operation: "charge", Took: time.Second})
	}
	numbers := c.numbers(t)
	require.Len(t, numbers, len(metric.All))
	require.Equal(t, int64(7), numbers["idem.sweep_left charge"])
}

// Units are fractions, as DynamoDB counts them. What was neither written nor read has no number.
func TestUnits(t *testing.T) {
	c := newCollector()
	o := c.telemetry(t)
	o.Units(t.Context(), "charge", 3, 0)
	require.Equal(t, map[string]any{"idem.write_units charge": 3.0}, c.numbers(t))
	o.Units(t.Context(), "charge", 1, 25.5)
	o.Units(t.Context(), "refund", 0.5, 0)
	require.Equal(t, map[string]any{
		"idem.write_units charge": 4.0, "idem.read_units charge": 25.5, "idem.write_units refund": 0.5,
	}, c.numbers(t))
}

// A gauge keeps its last value: an operation whose last question is settled must say 0, or its alarm never ends.
func TestTheGaugesOfAnOperationGoBackToZero(t *testing.T) {
	h, c := idemtest.New(t, nil), newCollector()
	o := c.telemetry(t)
	r, err := reconcile.New(h.Faults, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	key := idem.Operation{Name: "refund"}.Key("acme", "1")
	_, err = idem.Do(t.Context(), h.Engine, key, 1,
		func(context.Context, int) (int, error) { return 0, context.DeadlineExceeded })
	require.Error(t, err)
	count := func(fails error) []any {
		open, err := r.OpenQuestions(t.Context())
		require.ErrorIs(t, err, fails)
		for _, q := range open[1:] {
			o.Add(t.Context(), q.Operation, q.Counts())
		}
		got := c.numbers(t)
		return []any{got["idem.open refund"], got["idem.oldest_open refund"]}
	}
	h.Clock.Advance(time.Minute)
	require.Equal(t, []any{int64(1), int64(60)}, count(nil))
	require.NoError(t, r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Completed},
		reconcile.Change{Actor: "alice", Reason: "re_1"}))
	h.Faults.Always(idemtest.Refuse, idemtest.Due)
	require.Equal(t, []any{int64(1), int64(60)}, count(idem.ErrStoreUnavailable),
		"what cannot be read is not said to be nothing")
	h.Faults.Heal()
	require.Equal(t, []any{int64(0), int64(0)}, count(nil))
}

// handler is a lambda.Handler.
type handler func(context.Context, []byte) ([]byte, error)

func (h handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) { return h(ctx, payload) }

// exporter counts what reaches it, and may hang.
type exporter struct {
	spans int
	hangs bool
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	e.spans += len(spans)
	return nil
}

func (*exporter) Shutdown(context.Context) error { return nil }

// traced is a wrapped handler with a span in each invocation, which returns what it is given.
func traced(t *testing.T, e *exporter, does func(payload string)) otelidem.Handler {
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e, sdktrace.WithBatchTimeout(time.Hour)))
	t.Cleanup(func() { _ = traces.Shutdown(context.Background()) })
	o, err := otelidem.New(&otelidem.Options{MeterProvider: newCollector().meters, TracerProvider: traces})
	require.NoError(t, err)
	return o.Wrap(handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		_, span := traces.Tracer("user").Start(ctx, "POST /payments")
		span.End()
		does(string(payload))
		return payload, nil
	}))
}

// Lambda freezes the process after an invocation: what is not exported by then waits for the next one, or is lost.
func TestAnInvocationEndsWithAFlush(t *testing.T) {
	e := &exporter{}
	h := traced(t, e, func(payload string) {
		if payload == "panic" {
			panic("boom")
		}
	})
	got, err := h.Invoke(t.Context(), []byte("answer"))
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	require.Equal(t, 1, e.spans)
	require.PanicsWithValue(t, "boom", func() { _, _ = h.Invoke(t.Context(), []byte("panic")) })
	require.Equal(t, 2, e.spans)
}

// An invocation that Lambda kills at its time-out does not reach its end.
func TestAKilledInvocationHasFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		killed := make(chan struct{})
		go traced(t, e, func(string) { <-killed }).Invoke(ctx, nil)
		<-ctx.Done()
		synctest.Wait()
		require.Equal(t, 1, e.spans)
		close(killed)
	})
}

func TestAnExporterThatHangsCostsASecondAndNoAnswer(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	synctest.Test(t, func(t *testing.T) {
		h := traced(t, &exporter{hangs: true}, func(string) {})
		began := time.Now()
		got, err := h.Invoke(t.Context(), []byte("answer"))
		require.NoError(t, err)
		require.Equal(t, "answer", string(got))
		require.Equal(t, otelidem.DefaultFlushTimeout, time.Since(began))
	})
	require.Contains(t, logged.String(), "telemetry could not be flushed")
}

func TestWithoutProvidersNothingHappens(t *testing.T) {
	o, err := otelidem.New(nil)
	require.NoError(t, err)
	o.Observe(t.Context(), notice.Notice{Kind: notice.Completed, Operation: "charge", Took: time.Second})
	require.NoError(t, o.Flush(t.Context()))
	_, err = otelidem.New(&otelidem.Options{FlushTimeout: -1})
	require.ErrorContains(t, err, "cannot be negative")
}
