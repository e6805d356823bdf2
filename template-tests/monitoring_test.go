package templatetests

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

func TestMonitoring(t *testing.T) {
	var names []string
	got, problems := synth(t, func(s awscdk.Stack) {
		table := infra.NewTable(s, "Records", nil)
		f := worker(t, s, 20*time.Second)
		q := infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
		relay := infra.NewRelay(s, "Relay", table, &infra.RelayProps{
			Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": q},
		})
		sweeper := infra.NewSweeper(s, "Sweeper", table, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
		api := infra.NewAPI(s, "Api", f, &infra.APIProps{Routes: twoRoutes, Authorizer: signed()})
		m := infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
			Topic: awssns.NewTopic(s, jsii.String("Alarms"), nil), Table: table,
			Functions: []awslambda.Function{f}, Queues: []*infra.Queue{q}, APIs: []*infra.API{api}, Relays: []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper},
		})
		names = slices.Sorted(maps.Keys(m.Alarms))
	})
	require.Empty(t, problems)
	require.Equal(t, []string{
		"Api5xx", "OrdersAge", "OrdersDeadLettersAge", "OrdersDeadLettersDepth", "OrdersFailed",
		"RecordsFailedConditions", "RecordsIndexReadThrottles", "RecordsIndexWriteThrottles", "RecordsReadThrottles", "RecordsWriteThrottles",
		"RelayFailuresAge", "RelayFailuresDepth", "RelayFunctionDuration", "RelayFunctionErrors", "RelayFunctionThrottles", "RelayIteratorAge",
		"RelayOutboxDead", "RelayOutboxOld", "RelayOutboxUnreadable",
		"SweeperEscalated", "SweeperEscalationsAge", "SweeperEscalationsDepth", "SweeperFunctionErrors",
		"SweeperFunctionThrottles", "SweeperNotStarted", "SweeperOldestOpen",
		"SweeperRecordUnreadable", "SweeperStopped",
		"WorkerDuration", "WorkerErrors", "WorkerFailedOpen", "WorkerKeyReused", "WorkerOutcomeDropped", "WorkerRecordUnreadable",
		"WorkerStoreUnavailable", "WorkerThrottles",
	}, names)
	for alarm, want := range map[string]map[string]any{
		"OrdersAge":               {"MetricName": "ApproximateAgeOfOldestMessage", "Namespace": "AWS/SQS", "Statistic": "Maximum", "Threshold": 900.0},
		"OrdersDeadLettersDepth":  {"MetricName": "ApproximateNumberOfMessagesVisible", "Statistic": "Maximum", "Threshold": 1.0},
		"OrdersDeadLettersAge":    {"MetricName": "ApproximateAgeOfOldestMessage", "Threshold": 12.0 * 86400},
		"WorkerDuration":          {"MetricName": "Duration", "Statistic": "Maximum", "Threshold": 16000.0},
		"WorkerErrors":            {"MetricName": "Errors", "Statistic": "Sum", "Threshold": 1.0},
		"WorkerThrottles":         {"MetricName": "Throttles", "Statistic": "Sum"},
		"RelayIteratorAge":        {"MetricName": "IteratorAge", "Statistic": "Maximum", "Threshold": 300000.0},
		"SweeperFunctionErrors":   {"MetricName": "Errors", "Statistic": "Sum", "Threshold": 1.0},
		"SweeperEscalationsDepth": {"MetricName": "ApproximateNumberOfMessagesVisible", "Statistic": "Maximum", "Threshold": 1.0},
		"RecordsWriteThrottles":   {"MetricName": "WriteThrottleEvents", "Namespace": "AWS/DynamoDB"},
		"RecordsFailedConditions": {"MetricName": "ConditionalCheckFailedRequests", "Threshold": 10000.0},
		"SweeperOldestOpen":       {"MetricName": "oldest_open", "Namespace": "Idempotency", "Statistic": "Maximum", "Threshold": 900.0},
		"WorkerKeyReused":         {"MetricName": "key_reused", "Namespace": "Idempotency", "Statistic": "Sum", "Threshold": 20.0},
		"WorkerStoreUnavailable":  {"MetricName": "store_unavailable", "Statistic": "Sum", "Threshold": 10.0},
		"RelayOutboxOld":          {"MetricName": "outbox_oldest", "Statistic": "Maximum", "Threshold": 900.0},
		"Api5xx":                  {"MetricName": "5xx", "Namespace": "AWS/ApiGateway", "Statistic": "Sum"},
	} {
		p := got.named(t, "AWS::CloudWatch::Alarm", "Monitoring"+alarm)
		for member, value := range want {
			require.Equal(t, value, p[member], "%s of %s", member, alarm)
		}
	}
	for id, alarm := range got.resources("AWS::CloudWatch::Alarm") {
		p := alarm["Properties"].(map[string]any)
		require.Equal(t, []string{"Alarms"}, texts(p["AlarmActions"]), id)
		require.NotEmpty(t, p["AlarmDescription"], id)
		if name(id) == "MonitoringSweeperStopped" {
			continue
		}
		missing := "notBreaching"
		if slices.Contains([]string{"MonitoringSweeperOldestOpen", "MonitoringRelayOutboxOld"}, name(id)) {
			missing = "ignore"
		}
		require.Equal(t, missing, p["TreatMissingData"], id)
		require.Equal(t, 300.0, p["Period"], id)
	}
	stopped := got.named(t, "AWS::CloudWatch::Alarm", "MonitoringSweeperStopped")
	require.Equal(t, "breaching", stopped["TreatMissingData"], "a function that is not invoked has no metrics")
	require.Equal(t, "LessThanThreshold", stopped["ComparisonOperator"])
	require.Equal(t, 1.0, stopped["Threshold"])
	of := map[any]any{}
	for _, m := range stopped["Metrics"].([]any) {
		of[at(m, "Id")] = at(m, "Expression")
		if metric := at(m, "MetricStat", "Metric", "MetricName"); metric != nil {
			of[at(m, "Id")] = metric
			require.Equal(t, 300.0, at(m, "MetricStat", "Period"))
			require.Equal(t, "Sum", at(m, "MetricStat", "Stat"))
		}
	}
	require.Equal(t, map[any]any{"expr_1": "invocations - errors", "invocations": "Invocations", "errors": "Errors"}, of)
	_, dashboard := got.only(t, "AWS::CloudWatch::Dashboard")
	body, err := json.Marshal(dashboard["DashboardBody"])
	require.NoError(t, err)
	for _, text := range []string{"IteratorAge", "5xx", "WriteThrottleEvents", "ApproximateAgeOfOldestMessage",
		"handler_time", "replayed", "shadow_executed", "failed_open", "resolved", "oldest_open", "outbox_relayed", "outbox_oldest"} {
		require.Contains(t, string(body), text)
	}
}

func TestMonitoringChecks(t *testing.T) {
	own := func(kind string, threshold float64) infra.MonitoringProps {
		return infra.MonitoringProps{Thresholds: map[string]float64{kind: threshold}}
	}
	for name, tc := range map[string]struct {
		props infra.MonitoringProps
		error bool
		says  []string
	}{
		"no topic":               {infra.MonitoringProps{}, false, []string{"notify no topic", "set Topic"}},
		"a negative threshold":   {own("FailedConditions", -1), true, []string{"the threshold of FailedConditions is -1", "for 10000"}},
		"a threshold of nothing": {own("KeyReused", 0), true, []string{"the threshold of KeyReused is 0", "for 20"}},
		"no number":              {own("Age", math.NaN()), true, []string{"the threshold of Age is NaN"}},
		"no kind":                {own("KeysReused", 5), true, []string{`Thresholds has "KeysReused"`, "IteratorAge, KeyReused, NotStarted, OldestOpen"}},
		"each function's own":    {own("Duration", 5), true, []string{`Thresholds has "Duration"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := synth(t, func(s awscdk.Stack) { infra.NewMonitoring(s, "Monitoring", &tc.props) })
			says(t, problems, tc.error, tc.says...)
		})
	}
}

func TestMonitoringWithThresholds(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) {
		table := infra.NewTable(s, "Records", nil)
		sweeper := infra.NewSweeper(s, "Sweeper", table, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
		relay := infra.NewRelay(s, "Relay", table, &infra.RelayProps{
			Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
		})
		f := worker(t, s, 20*time.Second)
		q := infra.NewQueue(s, "OrdersQueue", f, &infra.QueueProps{Repeat: infra.Repeatable})
		infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
			Topic: awssns.NewTopic(s, jsii.String("Alarms"), nil), Functions: []awslambda.Function{f},
			Relays: []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper}, Queues: []*infra.Queue{q},
			Thresholds: map[string]float64{"OldestOpen": 3600, "IteratorAge": 90_000, "KeyReused": 2_000_000, "Failed": 5},
		})
	})
	require.Empty(t, problems)
	for alarm, threshold := range map[string]float64{
		"SweeperOldestOpen": 3600, "RelayIteratorAge": 90_000, "WorkerKeyReused": 2_000_000, "OrdersQueueFailed": 5,
		"WorkerStoreUnavailable": 10, "WorkerDuration": 16_000,
	} {
		require.Equal(t, threshold, got.named(t, "AWS::CloudWatch::Alarm", "Monitoring"+alarm)["Threshold"], alarm)
	}
	for alarm, described := range map[string]string{
		"SweeperOldestOpen": "an operation has been an open question for 1h0m0s: ", "RelayIteratorAge": "the relay is 1m30s behind ",
		"WorkerKeyReused": "2000000 calls in ",
	} {
		text := got.named(t, "AWS::CloudWatch::Alarm", "Monitoring"+alarm)["AlarmDescription"]
		require.True(t, strings.HasPrefix(text.(string), described), text)
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
			Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
		})
		infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
			Relays: []*infra.Relay{relay}, Thresholds: map[string]float64{"OutboxOld": 300},
		})
	})
	says(t, problems, false, "OutboxOld, 5m0s", "two sweeps of Relay, 5m0s", "idem:outbox-age")
}
