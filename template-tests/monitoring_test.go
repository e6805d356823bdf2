package templatetests

import (
	"math"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

func TestMonitoringChecks(t *testing.T) {
	own := func(kind string, threshold float64) infra.MonitoringProps {
		return infra.MonitoringProps{Thresholds: map[string]float64{kind: threshold}}
	}
	for name, tc := range map[string]struct {
		props infra.MonitoringProps
		error bool
		says  []string
	}{
		"no topic": {infra.MonitoringProps{}, false, []string{"notify no topic", "set Topic"}},
		"a negative threshold": {own("FailedConditions", -1),
			true, []string{"the threshold of FailedConditions is -1", "for 10000"}},
		"a threshold of nothing": {own("KeyReused", 0), true, []string{"the threshold of KeyReused is 0", "for 20"}},
		"no number":              {own("Age", math.NaN()), true, []string{"the threshold of Age is NaN"}},
		"no kind": {own("KeysReused", 5),
			true, []string{`Thresholds has "KeysReused"`, "IteratorAge, KeyReused, NotStarted, OldestOpen"}},
		"each function's own": {own("Duration", 5), true, []string{`Thresholds has "Duration"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := synth(t, func(s awscdk.Stack) { infra.NewMonitoring(s, "Monitoring", &tc.props) })
			says(t, problems, tc.error, tc.says...)
		})
	}
}

func TestMonitoringOfASlowQueue(t *testing.T) {
	_, problems := synth(t, func(s awscdk.Stack) {
		q := infra.NewQueue(s, "Orders", worker(t, s, 3*time.Minute), &infra.QueueProps{Repeat: infra.Repeatable})
		infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Queues: []*infra.Queue{q}})
	})
	says(t, problems, false, "Age, 15m0s", "visibility time-out of Orders, 18m0s", "idem:queue-age")
}

func TestMonitoringBetweenTwoSweeps(t *testing.T) {
	_, problems := synth(t, func(s awscdk.Stack) {
		relay := infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), &infra.RelayProps{
			Function: infra.FunctionProps{Code: given(t)},
			Queues:   map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
		})
		infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
			Relays: []*infra.Relay{relay}, Thresholds: map[string]float64{"OutboxOld": 300},
		})
	})
	says(t, problems, false, "OutboxOld, 5m0s", "two sweeps of Relay, 5m0s", "idem:outbox-age")
}
