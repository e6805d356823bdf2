package otelidem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/otelidem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// rig is a service whose every part is counted, in both kinds of metrics.
type rig struct {
	*idemtest.Harness
	t         *testing.T
	metrics   *emf.Metrics
	telemetry *otelidem.Telemetry
}

func (r *rig) observe(ctx context.Context, n notice.Notice) {
	r.metrics.Observe(ctx, n)
	r.telemetry.Observe(ctx, n)
}

func (r *rig) add(counts func(func(string, int) bool)) {
	r.metrics.Add("", counts)
	r.telemetry.Add(r.t.Context(), "", counts)
}

// call makes a call as a function does, with a handler that takes a second.
func (r *rig) call(op idem.Operation, in int, err error) {
	ctx := idem.WithKillTime(r.t.Context(), time.Now().Add(time.Minute))
	_, _ = idem.Do(ctx, r.Engine, op.Key("acme", "k"), in, func(context.Context, int) (int, error) {
		time.Sleep(time.Second)
		return 1, err
	})
}

// lapse leaves a claim whose process has ended.
func (r *rig) lapse(op idem.Operation) {
	r.CrashAfter(1, true)
	r.call(op, 1, nil)
	r.Restart()
	r.Clock.Advance(time.Hour)
}

// sweep sweeps with a probe that answers like that.
func (r *rig) sweep(answer reconcile.Answer) {
	rc, err := reconcile.New(r.Store, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(r.t, err)
	s, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{
		Observer: r.observe, Log: slog.New(slog.DiscardHandler), Expired: remover{},
		Operations: []reconcile.Operation{{Operation: refund,
			Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) { return answer, nil }}},
	})
	require.NoError(r.t, err)
	report, err := s.Sweep(r.t.Context())
	require.NoError(r.t, err)
	r.add(report.Counts())
	open, err := rc.OpenQuestions(r.t.Context())
	require.NoError(r.t, err)
	r.add(open[0].Counts())
}

// relay relays a message to a destination that answers like that.
func (r *rig) relay(answer error) {
	ref := outbox.Ref{Record: "acme#charge#x", ID: "1"}
	e := &outbox.Entry{Record: ref.Record, Message: outbox.Message{ID: ref.ID, Destination: "orders"}, State: outbox.New,
		Created: time.Now()}
	relay, err := outbox.NewRelay(stored{e: e}, map[string]outbox.Sender{"orders": sender{answer}}, nil)
	require.NoError(r.t, err)
	report, _, err := relay.Deliver(r.t.Context(), []outbox.Ref{ref})
	require.NoError(r.t, err)
	r.add(report.Counts())
}

// stored is a table with one message.
type stored struct {
	outbox.Store
	e *outbox.Entry
}

func (s stored) Load(context.Context, []outbox.Ref, int) (map[outbox.Ref]*outbox.Entry, int, error) {
	return map[outbox.Ref]*outbox.Entry{s.e.Ref(): s.e}, 1, nil
}

func (stored) Dispatch(context.Context, time.Time, *outbox.Entry, string, time.Time) (bool, error) {
	return true, nil
}

func (stored) DeadLetter(context.Context, time.Time, *outbox.Entry, int, string) (bool, error) {
	return true, nil
}

type sender struct{ err error }

func (s sender) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	return slices.Repeat([]outbox.Sent{{Err: s.err}}, len(messages))
}

var errBroken = errors.New("the connection broke")

// counted has what operators count, each in a run that makes it happen. Units are in
// idem/dynamostore's tests, which have a DynamoDB.
var counted = map[string]struct {
	metric string
	want   float64
	run    func(r *rig)
}{
	"claimed":  {schema.MetricClaimed, 1, func(r *rig) { r.call(charge, 1, nil) }},
	"executed": {schema.MetricExecuted, 1, func(r *rig) { r.call(charge, 1, nil) }},
	"replayed": {schema.MetricReplayed,
		2, func(r *rig) { r.call(charge, 1, nil); r.call(charge, 1, nil); r.call(charge, 1, nil) }},
	"in flight": {schema.MetricInFlight,
		1, func(r *rig) { r.CrashAfter(1, true); r.call(charge, 1, nil); r.Restart(); r.call(charge, 1, nil) }},
	"key reused": {schema.MetricKeyReused, 1, func(r *rig) { r.call(charge, 1, nil); r.call(charge, 2, nil) }},
	"without a key": {schema.MetricKeyless, 1, func(r *rig) {
		_, err := r.Engine.Execute(r.t.Context(), idem.Call{Key: charge.Key("acme", "random"), Keyless: true,
			Fingerprint: fingerprint.Bytes(nil), Run: func(context.Context) idem.Answer { return idem.Answer{} }})
		require.NoError(r.t, err)
	}},
	"released":                {schema.MetricReleased, 1, func(r *rig) { r.call(charge, 1, errBroken) }},
	"released, not withdrawn": {schema.MetricWithdrawn, 0, func(r *rig) { r.call(charge, 1, errBroken) }},
	"withdrawn":               {schema.MetricWithdrawn, 1, withdrawn(charge)},
	"withdrawn, not released": {schema.MetricReleased, 0, withdrawn(charge)},
	"a commit that is withdrawn, not released": {schema.MetricReleased, 0, func(r *rig) {
		r.Faults.Next(idemtest.Finish, idemtest.LoseRequest)
		r.call(atomic, 1, nil)
	}},
	"failed":  {schema.MetricFailed, 1, func(r *rig) { r.call(charge, 1, idem.Permanent(errBroken)) }},
	"unknown": {schema.MetricParked, 1, func(r *rig) { r.call(refund, 1, errBroken) }},
	"unknown, asked": {schema.MetricOutcomeUnknown, 1,
		func(r *rig) { r.call(refund, 1, errBroken); r.call(refund, 1, nil) }},
	"taken over": {schema.MetricTookOver, 1, func(r *rig) { r.lapse(charge); r.call(charge, 1, nil) }},
	"lapsed, found by sweep": {schema.MetricSweepParked,
		1, func(r *rig) { r.lapse(refund); r.sweep(reconcile.StillUnknown(0)) }},
	"store error": {schema.MetricStoreUnavailable,
		1, func(r *rig) { r.Faults.Always(idemtest.Refuse); r.call(charge, 1, nil) }},
	"store down": {schema.MetricCircuitOpened, 1, func(r *rig) {
		r.Faults.Always(idemtest.Refuse)
		// By the clock of the process: the harness's has no circuit.
		e, err := idem.New(r.Faults, &idem.Options{Observer: r.observe})
		require.NoError(r.t, err)
		for range 20 {
			_, _ = idem.Do(r.t.Context(), e, charge.Key("acme", "k"),
				1, func(context.Context, int) (int, error) { return 1, nil })
		}
	}},
	"failed open": {schema.MetricFailedOpen, 1, func(r *rig) {
		r.Faults.Next(idemtest.Acquire, idemtest.Refuse)
		r.call(idem.Operation{Name: "charge", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}, 1, nil)
	}},
	"result omitted": {schema.MetricResultOmitted, 1, func(r *rig) {
		_, _ = idem.Do(r.t.Context(), r.Engine, charge.Key("acme", "k"),
			1, func(context.Context, int) (opaque, error) { return opaque{}, nil })
	}},
	"late outcome dropped": {schema.MetricOutcomeDropped, 1, func(r *rig) {
		r.Faults.Next(idemtest.Finish, idemtest.LoseRequest)
		r.call(charge, 1, nil)
		r.Clock.Advance(time.Hour)
		elsewhere, err := idem.New(r.Store,
			&idem.Options{Now: r.Clock.Now, Observer: func(context.Context, notice.Notice) {}})
		require.NoError(r.t, err)
		_, err = idem.Do(r.t.Context(), elsewhere, charge.Key("acme", "k"),
			1, func(context.Context, int) (int, error) { return 1, nil })
		require.NoError(r.t, err)
		require.NoError(r.t, r.Engine.Flush(r.t.Context()))
	}},
	"probes":   {schema.MetricProbed, 1, func(r *rig) { r.lapse(refund); r.sweep(reconcile.StillUnknown(0)) }},
	"resolved": {schema.MetricResolved, 1, func(r *rig) { r.lapse(refund); r.sweep(reconcile.CompletedWith(1)) }},
	"escalated": {schema.MetricEscalated, 1,
		func(r *rig) { r.lapse(refund); r.sweep(reconcile.CannotBeKnown("no reference")) }},
	"not started": {schema.MetricNotStarted, 1, func(r *rig) {
		_, err := later.Accept[int](r.t.Context(), r.Engine, refund.Key("acme", "k"), 1, nil)
		require.NoError(r.t, err)
		r.Clock.Advance(2 * time.Hour)
		r.sweep(reconcile.StillUnknown(0))
	}},
	"outbox relayed": {schema.MetricOutboxRelayed, 1, func(r *rig) { r.relay(nil) }},
	"outbox dead":    {schema.MetricOutboxDead, 1, func(r *rig) { r.relay(outbox.ErrRejected) }},
	"expired":        {schema.MetricExpired, 3, func(r *rig) { r.sweep(reconcile.StillUnknown(0)) }},
	"duplicates": {schema.MetricDuplicate, 200,
		func(r *rig) { r.call(charge, 1, nil); r.call(charge, 1, nil); r.call(charge, 2, nil) }},
	"duplicates in atomic mode": {schema.MetricDuplicate, 200,
		func(r *rig) { r.call(atomic, 1, nil); r.call(atomic, 1, nil); r.call(atomic, 1, nil) }},
	"duplicates in shadow": {schema.MetricDuplicate, 100,
		func(r *rig) { r.call(shadowed, 1, nil); r.call(shadowed, 1, nil) }},
	"duplicates of what is accepted, without the first": {schema.MetricDuplicate, 100, func(r *rig) {
		for range 2 {
			_, err := later.Accept[int](r.t.Context(), r.Engine, refund.Key("acme", "k"), 1, nil)
			require.NoError(r.t, err)
		}
	}},
	"refused by a limit, no duplicate": {schema.MetricDuplicate, 0, func(r *rig) {
		r.Faults.Next(idemtest.Acquire, func(context.Context, *idemtest.Call) error { return &idem.LimitExceededError{} })
		r.call(charge, 1, nil)
	}},
	"refused in shadow": {schema.MetricShadowRefused, 1, func(r *rig) {
		_, err := idem.Do(r.t.Context(), r.Engine, shadowed.Key("acme", ""), 1,
			func(context.Context, int) (int, error) { return 1, nil })
		require.NoError(r.t, err)
	}},
	"shadow duplicates": {schema.MetricShadowDuplicate,
		1, func(r *rig) { r.call(shadowed, 1, nil); r.call(shadowed, 1, nil) }},
	"open questions": {schema.MetricOpen, 1, func(r *rig) { r.lapse(refund); r.sweep(reconcile.StillUnknown(0)) }},
	"oldest open": {schema.MetricOldestOpen, 600, func(r *rig) {
		r.call(refund, 1, errBroken)
		r.Clock.Advance(10 * time.Minute)
		r.sweep(reconcile.StillUnknown(0))
	}},
	"latency of claim": {schema.MetricClaimTime, 250,
		func(r *rig) { r.Faults.Next(idemtest.Acquire, slow); r.call(charge, 1, nil) }},
	"latency of handler": {schema.MetricHandlerTime, 1000, func(r *rig) { r.call(charge, 1, nil) }},
	"latency of finish": {schema.MetricFinishTime, 250,
		func(r *rig) { r.Faults.Next(idemtest.Finish, slow); r.call(charge, 1, nil) }},
}

var atomic = idem.Operation{Name: "charge", Repeat: idem.Repeatable, Mode: idem.Atomic}

// withdrawn takes a claim back whose reply was lost.
func withdrawn(op idem.Operation) func(r *rig) {
	return func(r *rig) {
		r.Faults.Next(idemtest.Acquire, idemtest.LoseReply)
		r.call(op, 1, nil)
	}
}

// remover removes three expired items.
type remover struct{}

func (remover) RemoveExpired(context.Context, protocol.ExpiredQuery) (protocol.ExpiredPage, error) {
	return protocol.ExpiredPage{Looked: 5000, Removed: 3}, nil
}

// opaque has no encoding.
type opaque struct{}

func (opaque) MarshalJSON() ([]byte, error) { return nil, errors.New("no encoding") }

var shadowed = idem.Operation{Name: "charge", Repeat: idem.Repeatable, Shadow: true}

func slow(ctx context.Context, c *idemtest.Call) error {
	time.Sleep(250 * time.Millisecond)
	return c.Do(ctx)
}

func TestEverythingThatOperatorsCountIsAMetric(t *testing.T) {
	for name, c := range counted {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m, err := emf.New(&emf.Options{Service: "payments", Out: &out})
				require.NoError(t, err)
				collected := newCollector()
				r := &rig{t: t, metrics: m, telemetry: collected.telemetry(t)}
				r.Harness = idemtest.New(t, &idem.Options{Observer: r.observe})
				c.run(r)

				require.NoError(t, m.Flush(t.Context()))
				var got float64
				for text := range strings.Lines(out.String()) {
					var line map[string]any
					require.NoError(t, json.Unmarshal([]byte(text), &line))
					switch v := line[c.metric].(type) {
					case float64:
						got += v
					case []any:
						for _, one := range v {
							got += one.(float64)
						}
					}
				}
				require.Equal(t, c.want, got, "CloudWatch's")
				require.Equal(t, c.want, valueOf(t, collected, c.metric), "OpenTelemetry's")
			})
		})
	}
}

// valueOf is the metric of OpenTelemetry with that name in CloudWatch, over all operations, in CloudWatch's unit.
func valueOf(t *testing.T, c *collector, name string) (value float64) {
	otel, ok := map[string]string{
		schema.MetricClaimTime: "idem.claim.duration", schema.MetricHandlerTime: "idem.handler.duration",
		schema.MetricFinishTime: "idem.finish.duration",
	}[name]
	if !ok {
		otel = "idem." + name
	}
	for about, n := range c.numbers(t) {
		if made, _, _ := strings.Cut(about, " "); made != otel {
			continue
		}
		switch n := n.(type) {
		case string:
			var count, sum float64
			var unit string
			_, err := fmt.Sscanf(n, "%f: %f %s", &count, &sum, &unit)
			require.NoError(t, err)
			if unit == "s" {
				sum *= 1000
			}
			value += sum
		case int64:
			value += float64(n)
		}
	}
	return value
}
