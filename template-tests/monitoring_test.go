package templatetests

import (
	"math"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"

	"github.com/idem-go/idempotency/infra"
)

func TestMonitoringChecks(t *testing.T) {
	own := func(kind string, threshold float64) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Thresholds: map[string]float64{kind: threshold}})
		}
	}
	objects(t, nil, map[string]objection{
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
			relay := infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), &infra.RelayProps{
				Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": newQueue(s, "Orders")},
			})
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
				Relays: []*infra.Relay{relay}, Thresholds: map[string]float64{"OutboxOld": 300},
			})
		}, "OutboxOld, 5m0s", "two sweeps of Relay, 5m0s", "idem:outbox-age"),
	})
}
