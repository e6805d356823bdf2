package templatetests

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

// An alarm on a metric that is not written would stay green.
func TestNoAlarmWithoutItsMetric(t *testing.T) {
	for own, writes := range map[int]bool{0: false, 7: true} {
		got, _ := synth(t, func(s awscdk.Stack) {
			f := worker(t, s, 0)
			q := infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
			p := &infra.MonitoringProps{Functions: []awslambda.Function{f}, Queues: []*infra.Queue{q}}
			if writes {
				p.Metrics = p.Functions
			}
			infra.NewMonitoring(s, "Monitoring", p)
		})
		written := map[any]int{}
		for _, a := range got.resources("AWS::CloudWatch::Alarm") {
			namespace, _, _ := strings.Cut(ruleOf(at(a, "Properties")).metric, " ")
			written[namespace]++
		}
		require.Equal(t, own, written[schema.MetricNamespace])
		require.Equal(t, 6, written["AWS/Lambda"]+written["AWS/SQS"])
	}
}

// The alarm of an operation counts its calls alone.
func TestAnOperationIsWatchedAlone(t *testing.T) {
	got, _ := synth(t, func(s awscdk.Stack) {
		f := worker(t, s, 0)
		m := infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Metrics: []awslambda.Function{f},
			Thresholds: map[string]float64{"Duplicates": 80}})
		m.WatchOperation(f, "POST /refunds/{id}")
	})
	rules := map[string]rule{}
	for id, a := range got.resources("AWS::CloudWatch::Alarm") {
		rules[strings.TrimPrefix(name(id), "Monitoring")] = ruleOf(at(a, "Properties"))
	}
	all := share(ours("Worker", schema.MetricDuplicate), 80, 100)
	require.Equal(t, all, rules["WorkerDuplicates"])
	all.metric = schema.MetricNamespace + " " + schema.MetricDuplicate + " operation=POST /refunds/{id} service=Worker"
	require.Equal(t, all, rules["WorkerPOSTrefundsidDuplicates"])
}

// A comparison that comes once a day is missed after a day and a half, and one that finds differences is reported on
// each day.
func TestALedgerIsWatched(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) { watchedLedger(t, s) })
	require.Empty(t, problems)
	rules := map[string]rule{}
	for id, alarm := range got.resources("AWS::CloudWatch::Alarm") {
		rules[strings.TrimPrefix(name(id), "Monitoring")] = ruleOf(at(alarm, "Properties"))
	}
	const written = "RefundsFunction"
	metric := ours(written, schema.MetricLedgerDifferences)
	stopped := rule{metric: metric, stat: "SampleCount", threshold: 1, comparison: "LessThanThreshold",
		missing: "breaching", length: 12, reached: 36, periods: 36}
	require.Equal(t, merged(invocationsAreWatched(written), map[string]rule{
		"RefundsLedgerDiffers": largest(metric, 1), "RefundsLedgerStopped": stopped,
	}), rules)

	const day = 24 * 12 // periods of five minutes
	seen := make([]fiveMinutes, 6*day)
	for n, differences := range []float64{0, 2, 3} { // and then none
		seen[n*day+4*12] = fiveMinutes{metric: {differences}}
	}
	hours := func(raised []bool) (all []int) {
		for i := range raised {
			if raised[i] && i >= 2*day && (i == 0 || !raised[i-1]) {
				all = append(all, i/12-(2*24+4))
			}
		}
		return all
	}
	since := hours(rules["RefundsLedgerStopped"].states(seen))
	require.Len(t, since, 1)
	require.GreaterOrEqual(t, since[0], 36)
	require.LessOrEqual(t, since[0], 36+looksBack+1)
	differs := rules["RefundsLedgerDiffers"].states(seen)
	require.False(t, differs[4*12])
	for _, n := range []int{1, 2} {
		require.True(t, differs[n*day+4*12])
		require.False(t, differs[n*day+4*12-1], "a further day with differences notifies again")
	}
}

func TestMonitoringChecks(t *testing.T) {
	own := func(kind string, threshold float64) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Thresholds: map[string]float64{kind: threshold}})
		}
	}
	objects(t, nil, map[string]objection{
		"no metrics": warns(func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Functions: []awslambda.Function{worker(t, s, 0)}})
		}, "no alarms WorkerStoreUnavailable, WorkerFailedOpen, WorkerOutcomeDropped, WorkerRecordUnreadable, "+
			"WorkerKeyReused, WorkerDuplicates", "package emf", "idem:no-metrics"),
		"an operation without metrics": warns(func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", nil).WatchOperation(worker(t, s, 0), "refund")
		}, "no alarms WorkerrefundDuplicates", "package emf"),
		"an operation without a name": refuses(func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", nil).WatchOperation(worker(t, s, 0), "")
		}, `WatchOperation has the operation ""`),
		"an operation with a name that no dimension has": refuses(func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", nil).WatchOperation(worker(t, s, 0), "überweisung")
		}, `WatchOperation has the operation "überweisung"`, "percent-encoded"),
		"a consumer without metrics": warns(func(s awscdk.Stack) {
			q := infra.NewQueue(s, "Orders", worker(t, s, 0), &infra.QueueProps{Repeat: infra.Repeatable})
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Queues: []*infra.Queue{q}})
		}, "no alarms OrdersFailed: they need metrics of Worker"),
		"a REST API without name": refuses(func(s awscdk.Stack) {
			rest := awsapigateway.RestApi_FromRestApiId(s, jsii.String("REST"), jsii.String("d4e5f6"))
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{APIs: []constructs.IConstruct{rest}})
		}, "Test/REST has no name", "RestApiName", "aws apigateway get-rest-apis"),
		"no API": refuses(func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{APIs: []constructs.IConstruct{newRole(s)}})
		}, "APIs has Test/Role", "AddAlarm"),
		"no topic": warns(func(s awscdk.Stack) { infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{}) },
			"notify no topic", "set Topic"),
		"a negative threshold":   refuses(own("Duplicates", -1), "the threshold of Duplicates is -1", "for 50"),
		"a threshold of nothing": refuses(own("KeyReused", 0), "the threshold of KeyReused is 0", "for 20"),
		"no number":              refuses(own("Age", math.NaN()), "the threshold of Age is NaN"),
		"no kind": refuses(own("KeysReused", 5),
			`Thresholds has "KeysReused"`, "IteratorAge, KeyReused, LedgerDiffers, NotStarted, OldestOpen"),
		"each function's own": refuses(own("Duration", 5), `Thresholds has "Duration"`),
		"a slow queue": warns(func(s awscdk.Stack) {
			q := infra.NewQueue(s, "Orders", worker(t, s, 3*time.Minute), &infra.QueueProps{Repeat: infra.Repeatable})
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Queues: []*infra.Queue{q}})
		}, "Age, 15m0s", "visibility time-out of Orders, 18m0s", "idem:queue-age"),
		"between two sweeps": warns(func(s awscdk.Stack) {
			relays := []*infra.Relay{newRelay(t, s, infra.NewTable(s, "Records", nil))}
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
				Relays: relays, Thresholds: map[string]float64{"OutboxOld": 300},
			})
		}, "OutboxOld, 5m0s", "two sweeps of Relay, 5m0s", "idem:outbox-age"),
	})
}
