package templatetests

import (
	"math"
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
	for own, writes := range map[int]bool{0: false, 6: true} {
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
			written[at(a, "Properties", "Namespace")]++
		}
		require.Equal(t, own, written[schema.MetricNamespace])
		require.Equal(t, 6, written["AWS/Lambda"]+written["AWS/SQS"])
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
			"WorkerKeyReused", "package emf", "idem:no-metrics"),
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
		"a negative threshold": refuses(own("FailedConditions", -1),
			"the threshold of FailedConditions is -1", "for 10000"),
		"a threshold of nothing": refuses(own("KeyReused", 0), "the threshold of KeyReused is 0", "for 20"),
		"no number":              refuses(own("Age", math.NaN()), "the threshold of Age is NaN"),
		"no kind": refuses(own("KeysReused", 5),
			`Thresholds has "KeysReused"`, "IteratorAge, KeyReused, NotStarted, OldestOpen"),
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
