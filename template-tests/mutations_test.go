package templatetests

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

// mutation changes one thing of a template: "<stack> <type> <name> <path>". A step of the path is a
// member, or the index or id of an element. Without a path it is the resource
// itself, which gets another logical id.
type mutation struct {
	where string
	to    any    // the new value, gone, copied, or a function of the value
	says  string // the check, then
}

type gone struct{}

// copied is the value at another place.
type copied string

var kinds = map[string]string{
	"table": "AWS::DynamoDB::GlobalTable", "function": "AWS::Lambda::Function",
	"mapping": "AWS::Lambda::EventSourceMapping",
	"queue":   "AWS::SQS::Queue", "alarm": "AWS::CloudWatch::Alarm",
	"rule": "AWS::Events::Rule",
}

const stopped = "orders alarm SweeperStopped "

// mutations are by the check that finds them.
var mutations = map[string][]mutation{
	"names": {
		{"payments function Payments Environment.Variables.IDEM_TABLE", gone{}, "Payments does not set IDEM_TABLE"},
		{"payments function Payments Environment.Variables.IDEM_TABEL", "x", "Payments sets IDEM_TABEL"},
	},
	"time-outs": {
		{"orders function Worker Timeout", 31.0, "less than 6 times the time-out of Worker"},
		{"payments function Payments Timeout", 19.0, "IDEM_FUNCTION_TIMEOUT"},
		{"orders queue OrdersQueue VisibilityTimeout", 179.0, "hidden for 179 s"},
		{"orders mapping WorkerQueueSource BatchSize", 9.0, "IDEM_QUEUE_BATCH_SIZE"},
	},
	"queues": {
		{"orders queue OrdersQueue RedrivePolicy", gone{}, "dead-letter"},
		{"orders queue OrdersQueue MessageRetentionPeriod", 1209600.0, "a dead letter of OrdersQueue may have 0 days"},
		{"orders queue OrdersQueue RedrivePolicy.maxReceiveCount", 4.0, "the receives of OrdersQueue"},
		{"payments function StatementsRelayFunction Environment.Variables.IDEM_OUTBOX_ROUTES", `{"a":"queue"}`,
			"the routes of"},
		{"payments mapping StatementsQueueSource EventSourceArn", "another", "the queue of Statements"},
		{"orders mapping RelayStream DestinationConfig", gone{}, "the failures of Relay"},
		{"payments function Statements Environment.Variables.IDEM_TABLE", "another",
			"the number of tables of what accepts"},
		{"payments function RefundSweeperFunction Environment.Variables.IDEM_SWEEP_ESCALATIONS", gone{},
			"the queue of RefundSweeper"},
	},
	"alarms": {
		{"payments alarm RefundSweeperStopped", gone{}, "RefundSweeperStopped if nothing is written"},
		{stopped + "TreatMissingData", "notBreaching", "SweeperStopped if nothing is written"},
		{stopped + "TreatMissingData", "missing", "this test cannot evaluate"},
		{stopped + "Statistic", "Maximum", "SweeperStopped if it is written as it should"},
		{stopped + "Threshold", 2.0, "SweeperStopped if it is written once"},
		{stopped + "Dimensions", copied("orders alarm WorkerFailedOpen Dimensions"),
			"SweeperStopped if it is written as it should"},
		{"payments alarm StatementsRelayStopped DatapointsToAlarm", 1.0,
			"StatementsRelayStopped is raised where a healthy week"},
		{"orders alarm RelayOutboxMissed DatapointsToAlarm", 1.0,
			"RelayOutboxMissed is raised where a destination is down for ten minutes"},
		{"orders alarm RelayOutboxMissed EvaluationPeriods", 2.0, "RelayOutboxMissed if it is reached with pauses"},
		{"orders alarm OrdersQueueDeadLettersOld Period", 300.0, "OrdersQueueDeadLettersOld"},
		{"orders alarm OrdersQueueDeadLettersOld DatapointsToAlarm", 168.0,
			"OrdersQueueDeadLettersOld is raised after"},
		{"orders alarm OrdersQueueDeadLettersDepth MetricName", oldest,
			"OrdersQueueDeadLettersDepth if it is reached is false"},
		{"payments alarm API5xx Threshold", 9.0, "API5xx is raised where a healthy week"},
		{"payments alarm PaymentsDuration Threshold", 2500.0, "PaymentsDuration is raised where a healthy week"},
		{"orders alarm RecordsTransactionConflicts Threshold", 5.0, "RecordsTransactionConflicts is raised where"},
		{"orders alarm RelayIteratorAge Threshold", 300.0, "RelayIteratorAge is raised where a healthy week"},
		{"orders alarm RelayUndelivered", "AnotherAlarm", "what raises orders AnotherAlarm is not played"},
		{"orders alarm RecordsIndexWriteThrottles Dimensions", copied("orders alarm RecordsWriteThrottles Dimensions"),
			"RecordsIndexWriteThrottles if all others have it"},
		{"payments alarm RefundSweeperOldestOpen Statistic", "Sum",
			"RefundSweeperOldestOpen if two together reach it"},
		{"orders alarm RelayOutboxOld Statistic", "Average", "RelayOutboxOld if two together reach it"},
		{"payments alarm PaymentsKeyReused Statistic", "Maximum",
			"PaymentsKeyReused if many calls together reach it"},
		{"payments alarm PaymentsFailedOpen Dimensions",
			more(map[string]any{"Name": schema.DimensionOperation, "Value": "charge"}),
			"PaymentsFailedOpen if it is reached"},
		{"orders alarm SweeperEscalated Dimensions", copied("orders alarm WorkerFailedOpen Dimensions"),
			"SweeperEscalated if it is reached"},
		{"payments alarm PaymentsStoreUnavailable MetricName", schema.MetricKeyReused,
			"PaymentsStoreUnavailable if all others have it"},
		{"payments alarm RefundSweeperEscalated Threshold", 0.0, "RefundSweeperEscalated if nothing happened"},
		{"orders alarm SweeperOldestOpen TreatMissingData", "breaching", "SweeperOldestOpen if nothing is written"},
		{"orders alarm RelayOutboxOld TreatMissingData", "notBreaching",
			"RelayOutboxOld if nothing is written any more"},
		{"orders alarm WorkerFailedOpen TreatMissingData", "ignore",
			"WorkerFailedOpen if nothing is written any more"},
		{"orders rule SweeperSchedule ScheduleExpression", "rate(10 minutes)", "the schedule of Sweeper"},
	},
	"what stays": {
		{"orders table Orders KeySchema.0.AttributeName", "id", "KeySchema of Orders"},
		{"orders table Orders LocalSecondaryIndexes", []any{}, "LocalSecondaryIndexes of Orders"},
		{"orders table Orders TableName", "t", "TableName of Orders"},
		{"payments table Records", "Table00000000", "is gone"},
		{"orders queue SweeperEscalations", "Queue00000000", "is gone"},
		{"orders queue OrdersQueueDeadLetters QueueName", "dead", "QueueName of OrdersQueueDeadLetters"},
	},
}

func more(element any) func(any) any {
	return func(list any) any { return append(slices.Clone(list.([]any)), element) }
}

// TestMutations breaks the templates, one thing at a time, and requires that the
// check of that name says so: none of them passes whatever there is.
func TestMutations(t *testing.T) {
	for name, check := range checks {
		require.NotEmpty(t, mutations[name], name)
		for _, m := range mutations[name] {
			s := withDefaults(t).clone(t)
			m.apply(t, s)
			require.ErrorContains(t, s.finds(check), m.says, m.where)
		}
	}
}

func (m mutation) apply(t *testing.T, s stacks) {
	parent, member := s.find(t, m.where)
	switch to := m.to.(type) {
	case gone:
		delete(parent.(map[string]any), member)
	case copied:
		from, other := s.find(t, string(to))
		put(parent, member, at(from, other))
	case func(any) any:
		put(parent, member, to(at(parent, member)))
	default:
		if len(strings.Fields(m.where)) == 3 {
			put(parent, to.(string), at(parent, member))
			delete(parent.(map[string]any), member)
			return
		}
		put(parent, member, to)
	}
}

// find returns what a mutation changes, as a member of its parent.
func (s stacks) find(t *testing.T, where string) (parent any, member string) {
	steps := strings.Fields(where)
	tt := map[string]template{"payments": s.payments, "orders": s.orders}[steps[0]]
	if steps[1] == "alarm" {
		steps[2] = "Monitoring" + steps[2]
	}
	id := tt.id(t, kinds[steps[1]], steps[2])
	if len(steps) == 3 {
		return tt["Resources"], id
	}
	path := strings.Split(steps[3], ".")
	member = path[len(path)-1]
	parent = at(tt["Resources"], id, "Properties")
	for _, step := range path[:len(path)-1] {
		list, ok := parent.([]any)
		if !ok {
			parent = at(parent, step)
			continue
		}
		i, err := strconv.Atoi(step)
		if err != nil {
			i = slices.IndexFunc(list, func(e any) bool { return at(e, "Id") == step })
		}
		parent = list[i]
	}
	require.NotNil(t, parent, where)
	return parent, member
}

func put(parent any, member string, value any) {
	if list, ok := parent.([]any); ok {
		i, _ := strconv.Atoi(member)
		list[i] = value
		return
	}
	parent.(map[string]any)[member] = value
}
