package templatetests

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

// TestMutations breaks the templates, one thing at a time, and requires that the
// check of that name says so: none of them passes whatever there is.
func TestMutations(t *testing.T) {
	const function, mapping, table, queue, policy = "AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::DynamoDB::GlobalTable",
		"AWS::SQS::Queue", "AWS::IAM::Policy"
	const alarm = "AWS::CloudWatch::Alarm"
	// in is a resource's properties.
	in := func(tt template, kind, named string, path ...any) map[string]any {
		m, _ := tt.property(kind, named, path...).(map[string]any)
		return m
	}
	// statement with an action among the first ones of a policy.
	allows := func(tt template, named, action string) map[string]any {
		all, _ := in(tt, policy, named, "PolicyDocument")["Statement"].([]any)
		for _, one := range all {
			if slices.Contains(texts(at(one, "Action")), action) {
				return one.(map[string]any)
			}
		}
		return nil
	}
	for name, tc := range map[string]struct {
		check  string
		mutate func(s stacks)
		says   string
	}{
		"an attribute's name": {"names", func(s stacks) {
			at(s.payments.property(table, "Records", "KeySchema"), 0).(map[string]any)["AttributeName"] = "id"
		}, "the table's key"},
		"the index's name": {"names", func(s stacks) {
			at(s.payments.property(table, "Records", "GlobalSecondaryIndexes"), 0).(map[string]any)["IndexName"] = "unknown"
		}, "the index"},
		"a variable's name": {"names", func(s stacks) {
			env := in(s.payments, function, "Payments", "Environment", "Variables")
			env["IDEM_TABEL"] = env[schema.EnvTable]
			delete(env, schema.EnvTable)
		}, "Payments does not set IDEM_TABLE"},
		"the TTL attribute": {"expiry", func(s stacks) {
			in(s.payments, table, "Records", "TimeToLiveSpecification")["AttributeName"] = "ttl"
		}, `"ttl"`},
		"TTL off": {"expiry", func(s stacks) { delete(in(s.payments, table, "Records"), "TimeToLiveSpecification") }, "the table's TTL"},
		"no recovery": {"table", func(s stacks) {
			delete(at(s.orders.property(table, "Orders", "Replicas"), 0).(map[string]any), "PointInTimeRecoverySpecification")
		}, "recovery"},
		"no stream":    {"table", func(s stacks) { delete(in(s.payments, table, "Records"), "StreamSpecification") }, "the stream"},
		"architecture": {"functions", func(s stacks) { in(s.orders, function, "Worker")["Architectures"] = []any{"x86_64"} }, "architecture"},
		"a time-out": {"time-outs", func(s stacks) { in(s.orders, function, "Worker")["Timeout"] = 31.0 },
			"less than 6 times the time-out of Worker"},
		"a time-out that the code is not told": {"time-outs", func(s stacks) { in(s.payments, function, "Payments")["Timeout"] = 19.0 }, "IDEM_FUNCTION_TIMEOUT"},
		"visibility":                           {"time-outs", func(s stacks) { in(s.orders, queue, "OrdersQueue")["VisibilityTimeout"] = 179.0 }, "hidden for 179 s"},
		"partial batch response": {"partial batches", func(s stacks) {
			delete(in(s.orders, mapping, "WorkerQueueSource"), "FunctionResponseTypes")
		}, "WorkerQueueSource"},
		"partial batch response of the relay": {"partial batches", func(s stacks) {
			in(s.orders, mapping, "RelayStream")["FunctionResponseTypes"] = []any{}
		}, "RelayStream"},
		"no dead-letter queue": {"queues", func(s stacks) { delete(in(s.orders, queue, "OrdersQueue"), "RedrivePolicy") }, "dead-letter"},
		"no alarm on work that nobody comes for": {"alarms", func(s stacks) {
			in(s.payments, alarm, "MonitoringRefundSweeperNotStarted")["MetricName"] = schema.MetricResolved
		}, "RefundSweeperNotStarted if it is reached"},
		"accepted work that is sent elsewhere": {"queues", func(s stacks) {
			env := in(s.payments, function, "StatementsRelayFunction", "Environment", "Variables")
			env[schema.EnvOutboxRoutes] = `{"statement":"queue"}`
		}, "the routes of StatementsRelay"},
		"a worker that another queue feeds": {"queues", func(s stacks) {
			in(s.payments, mapping, "StatementsQueueSource")["EventSourceArn"] = "another"
		}, "the queue of Statements"},
		"a worker of another table": {"queues", func(s stacks) {
			in(s.payments, function, "Statements", "Environment", "Variables")[schema.EnvTable] = "another"
		}, "the number of tables of what accepts"},
		"a worker that sends": {"permissions, exactly", func(s stacks) {
			allows(s.payments, "StatementsRoleDefaultPolicy", "sqs:ReceiveMessage")["Action"] = []any{
				"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage", "sqs:SendMessage"}
		}, "StatementsRole's permissions on StatementsQueue.Arn"},
		"a permission less": {"permissions, exactly", func(s stacks) {
			allows(s.payments, "PaymentsRoleDefaultPolicy", "dynamodb:GetItem")["Action"] = []any{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
		}, "PaymentsRole's permissions on Records.Arn"},
		"a permission less than the code needs": {"permissions suffice", func(s stacks) {
			allows(s.orders, "RelayFunctionRoleDefaultPolicy", "dynamodb:Query")["Action"] = "dynamodb:Scan"
		}, "RelayFunctionRole may not do dynamodb:Query on Records.Arn/index/open"},
		"a permission that the sweeper needs": {"permissions suffice", func(s stacks) {
			allows(s.payments, "RefundSweeperFunctionRoleDefaultPolicy", "dynamodb:UpdateItem")["Action"] = []any{"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"}
		}, "RefundSweeperFunctionRole may not do dynamodb:PutItem on Records.Arn"},
		"an escalation queue that is lost": {"queues", func(s stacks) {
			delete(in(s.payments, function, "RefundSweeperFunction", "Environment", "Variables"), schema.EnvSweepEscalations)
		}, "the queue of RefundSweeper"},
		"no alarm on a sweeper that stops": {"alarms", func(s stacks) {
			maps.DeleteFunc(s.payments["Resources"].(map[string]any), func(id string, _ any) bool { return name(id) == "MonitoringRefundSweeperStopped" })
		}, "nobody is told if RefundSweeper does not run"},
		"a stopped sweeper without data": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringSweeperStopped")["TreatMissingData"] = "missing" },
			"the alarm if Sweeper is not invoked"},
		"failed sweeps that count": {"alarms", func(s stacks) {
			for _, m := range in(s.orders, alarm, "MonitoringSweeperStopped")["Metrics"].([]any) {
				if at(m, "Id") == "errors" {
					m.(map[string]any)["MetricStat"].(map[string]any)["Metric"].(map[string]any)["MetricName"] = "Throttles"
				}
			}
		}, "the alarm if Sweeper"},
		"an alarm that one failure raises": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringSweeperStopped")["Threshold"] = 5.0 },
			"the alarm if Sweeper succeeds once"},
		"an alarm on another function": {"alarms", func(s stacks) {
			stopped := in(s.orders, alarm, "MonitoringSweeperStopped")
			worker := in(s.orders, alarm, "MonitoringWorkerErrors")["Dimensions"]
			for _, m := range stopped["Metrics"].([]any) {
				if stat, ok := m.(map[string]any)["MetricStat"].(map[string]any); ok {
					stat["Metric"].(map[string]any)["Dimensions"] = worker
				}
			}
		}, "the alarm if Sweeper succeeds"},
		"an alarm on the table's throttles alone": {"alarms", func(s stacks) {
			dimensions, _ := at(in(s.orders, alarm, "MonitoringRecordsIndexWriteThrottles"), "Dimensions").([]any)
			in(s.orders, alarm, "MonitoringRecordsIndexWriteThrottles")["Dimensions"] = slices.DeleteFunc(slices.Clone(dimensions), func(d any) bool {
				return at(d, "Name") == "GlobalSecondaryIndexName"
			})
		}, "RecordsIndexWriteThrottles if a call of"},
		"no alarm on open questions": {"alarms", func(s stacks) {
			maps.DeleteFunc(s.payments["Resources"].(map[string]any), func(id string, _ any) bool { return name(id) == "MonitoringRefundSweeperOldestOpen" })
		}, "there is no alarm RefundSweeperOldestOpen"},
		"an alarm on the ages' sum": {"alarms", func(s stacks) { in(s.payments, alarm, "MonitoringRefundSweeperOldestOpen")["Statistic"] = "Sum" },
			"RefundSweeperOldestOpen if two together reach it"},
		"an alarm on the average age": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringRelayOutboxOld")["Statistic"] = "Average" },
			"RelayOutboxOld if it is reached"},
		"an alarm on one call's count": {"alarms", func(s stacks) { in(s.payments, alarm, "MonitoringPaymentsKeyReused")["Statistic"] = "Maximum" },
			"PaymentsKeyReused if many calls together reach it"},
		"an alarm on one operation": {"alarms", func(s stacks) {
			failed := in(s.payments, alarm, "MonitoringPaymentsFailedOpen")
			failed["Dimensions"] = append(failed["Dimensions"].([]any), map[string]any{"Name": schema.DimensionOperation, "Value": "charge"})
		}, "PaymentsFailedOpen if it is reached"},
		"an alarm on all functions": {"alarms", func(s stacks) { delete(in(s.orders, alarm, "MonitoringWorkerOutcomeDropped"), "Dimensions") },
			"WorkerOutcomeDropped if it is reached"},
		"an alarm on another sweeper": {"alarms", func(s stacks) {
			in(s.orders, alarm, "MonitoringSweeperEscalated")["Dimensions"] = in(s.orders, alarm, "MonitoringWorkerFailedOpen")["Dimensions"]
		}, "SweeperEscalated if it is reached"},
		"an alarm in another namespace": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringWorkerRecordUnreadable")["Namespace"] = "idem" },
			"WorkerRecordUnreadable if it is reached"},
		"an alarm on another metric": {"alarms", func(s stacks) {
			in(s.payments, alarm, "MonitoringPaymentsStoreUnavailable")["MetricName"] = schema.MetricExecuted
		}, "PaymentsStoreUnavailable if another metric has it"},
		"an alarm beyond its threshold": {"alarms", func(s stacks) {
			in(s.orders, alarm, "MonitoringRelayOutboxDead")["ComparisonOperator"] = "GreaterThanThreshold"
		}, "RelayOutboxDead if it is reached"},
		"an alarm before its threshold": {"alarms", func(s stacks) { in(s.payments, alarm, "MonitoringRefundSweeperEscalated")["Threshold"] = 0.0 },
			"RefundSweeperEscalated if nothing happened"},
		"an alarm by silence": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringSweeperOldestOpen")["TreatMissingData"] = "breaching" },
			"SweeperOldestOpen if nothing is written"},
		"an alarm that silence ends": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringRelayOutboxOld")["TreatMissingData"] = "notBreaching" },
			"RelayOutboxOld if nothing is written any more"},
		"an alarm that silence keeps": {"alarms", func(s stacks) { in(s.orders, alarm, "MonitoringWorkerFailedOpen")["TreatMissingData"] = "ignore" },
			"WorkerFailedOpen if nothing is written any more"},
		"an alarm that tells nobody": {"alarms", func(s stacks) { delete(in(s.orders, alarm, "MonitoringRelayOutboxOld"), "AlarmActions") },
			"tells somebody is 0"},
		"an alarm without a runbook": {"alarms", func(s stacks) {
			in(s.payments, alarm, "MonitoringAPI5xx")["AlarmDescription"] = "the API answers with 5xx"
		},
			"names no section of the runbook"},
		"an alarm with another's section": {"alarms", func(s stacks) {
			in(s.payments, alarm, "MonitoringPaymentsErrors")["AlarmDescription"] = in(s.payments, alarm, "MonitoringPaymentsThrottles")["AlarmDescription"]
		}, "names a section about another kind: throttles"},
		"sweeps that are rarer than the alarm's period": {"alarms", func(s stacks) {
			in(s.orders, "AWS::Events::Rule", "SweeperSchedule")["ScheduleExpression"] = "rate(10 minutes)"
		}, "the schedule of Sweeper"},
		"a permission more": {"permissions, exactly", func(s stacks) {
			allows(s.orders, "WorkerRoleDefaultPolicy", "dynamodb:GetItem")["Action"] = []any{
				"dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
		}, "dynamodb:DeleteItem"},
		"a permission for everything": {"permissions, no stars", func(s stacks) {
			allows(s.payments, "PaymentsRoleDefaultPolicy", "dynamodb:GetItem")["Resource"] = "*"
		}, "on *"},
		"a property that does not exist": {"specification", func(s stacks) { in(s.orders, queue, "OrdersQueue")["VisibilityTimeOut"] = 180.0 }, "not known"},
		"a table of another key": {"tables stay", func(s stacks) {
			at(s.orders.property(table, "Orders", "KeySchema"), 0).(map[string]any)["AttributeName"] = "id"
		}, "KeySchema changes"},
		"a table of another logical id": {"tables stay", func(s stacks) {
			all := s.payments["Resources"].(map[string]any)
			for id := range s.payments.resources(table) {
				all["Table00000000"] = all[id]
				delete(all, id)
			}
		}, "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withDefaults(t).clone(t)
			require.NoError(t, checks[tc.check](s), "before the change")
			tc.mutate(s)
			require.ErrorContains(t, checks[tc.check](s), tc.says)
		})
	}
}
