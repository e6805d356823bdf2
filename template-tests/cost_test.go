package templatetests

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// What AWS charges for watching the stacks is counted in their templates, and in what is written.
func TestWhatWatchingTakes(t *testing.T) {
	sweeper := metricsOf(t, func(m *emf.Metrics) {
		m.Add("", reconcile.Report{}.Counts())
		m.Add("", reconcile.OpenCount{}.Counts())
	})
	relay := metricsOf(t, func(m *emf.Metrics) {
		m.Add("", maps.All(map[string]int{schema.MetricOutboxOldest: 0, schema.MetricOutboxMissed: 0}))
	})
	called := metricsOf(t, func(m *emf.Metrics) { // and a replay
		op, h := idem.Operation{Name: "charge"}, idemtest.New(t, &idem.Options{Observer: m.Observe})
		for range 2 {
			_, err := idem.Do(t.Context(), h.Engine, op.Key("acme", "k"), 1,
				func(context.Context, int) (int, error) { return 1, nil })
			require.NoError(t, err)
		}
	})
	type counts struct{ Alarms, Dashboards, Sweeps, Calls int }
	all := map[string]counts{}
	for name, tt := range map[string]template{"payments-api": withDefaults(t).payments,
		"orders-worker": withDefaults(t).orders} {
		alarms := tt.resources("AWS::CloudWatch::Alarm")
		priced := len(alarms) // each alarm by the metrics that it reads
		for _, a := range alarms {
			if queries, ok := at(a, "Properties", "Metrics").([]any); ok {
				priced += len(queries) - 2 // an expression is none
			}
		}
		on := func(metric string) (n int) {
			for _, a := range alarms {
				if at(a, "Properties", "MetricName") == metric && at(a, "Properties", "Statistic") != "SampleCount" {
					n++
				}
			}
			return n
		}
		all[name] = counts{priced, len(tt.resources("AWS::CloudWatch::Dashboard")),
			on(schema.MetricOldestOpen)*sweeper + on(schema.MetricOutboxOldest)*relay, on(schema.MetricFailedOpen) * called}
	}
	b, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	compareText(t, "../infra/cost/watching.json", string(b)+"\n")
}

// metricsOf are how many metrics are written: to CloudWatch a name with other dimensions is another one.
func metricsOf(t *testing.T, write func(*emf.Metrics)) (n int) {
	var out bytes.Buffer
	m, err := emf.New(&emf.Options{Out: &out, Service: "charge"})
	require.NoError(t, err)
	write(m)
	require.NoError(t, m.Flush(t.Context()))
	for line := range strings.Lines(out.String()) {
		var parsed struct {
			AWS struct {
				CloudWatchMetrics []struct{ Dimensions, Metrics []any }
			} `json:"_aws"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &parsed))
		for _, d := range parsed.AWS.CloudWatchMetrics {
			n += len(d.Dimensions) * len(d.Metrics)
		}
	}
	return n
}
