package templatetests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

// checks are what holds for the templates of both stacks, in addition to the rules for cfn-guard. They collect
// what they find instead of failing, so that TestWhatTheChecksHold can show that each of them can fail.
var checks = map[string]func(stacks, *findings){
	"names":      namesAreTheSchemas,
	"time-outs":  timeoutsFit,
	"queues":     queuesAreConnected,
	"alarms":     alarmsAreRaised,
	"what stays": tablesAndQueuesStay,
}

func TestTemplates(t *testing.T) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) { require.NoError(t, withDefaults(t).finds(check)) })
	}
}

// findings are what a check finds wrong.
type findings []error

func (f *findings) add(format string, values ...any) { *f = append(*f, fmt.Errorf(format, values...)) }

// want finds values that are not equal.
func (f *findings) want(what string, wanted, got any) {
	if !reflect.DeepEqual(wanted, got) {
		f.add("%s is %v instead of %v", what, text(got), text(wanted))
	}
}

// finds is an error if the check finds something.
func (s stacks) finds(check func(stacks, *findings)) error {
	var all findings
	check(s, &all)
	return errors.Join(all...)
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// at follows members and places into a value; nil if there is nothing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			all, _ := v.([]any)
			if step >= len(all) {
				return nil
			}
			v = all[step]
		}
	}
	return v
}

// property of the only resource with this name, without its hash, and type.
func (tt template) property(kind, named string, path ...any) any {
	for id, r := range tt.resources(kind) {
		if name(id) == named {
			return at(r, append([]any{"Properties"}, path...)...)
		}
	}
	return nil
}

func namesAreTheSchemas(s stacks, errs *findings) {
	for relay, tt := range map[string]template{"StatementsRelay": s.payments, "Relay": s.orders} {
		errs.want("the filter of "+relay, []any{map[string]any{"Pattern": schema.OutboxFilter}},
			tt.property("AWS::Lambda::EventSourceMapping", relay+"Stream", "FilterCriteria", "Filters"))
	}
	// What the functions read at start-up is there under the name that they read.
	worker := []string{schema.EnvTable, schema.EnvFunctionTimeout, schema.EnvQueueBatchSize, schema.EnvQueueRepeat,
		schema.EnvQueueRedelivery}
	relay := []string{schema.EnvTable, schema.EnvFunctionTimeout, schema.EnvOutboxRoutes, schema.EnvOutboxGrace}
	for _, f := range []struct {
		template template
		function string
		names    []string
	}{
		{s.payments, "Payments", []string{schema.EnvTable, schema.EnvFunctionTimeout}},
		{s.payments, "Statements", worker},
		{s.payments, "StatementsRelayFunction", relay},
		{s.orders, "Worker", worker},
		{s.orders, "RelayFunction", relay},
		{s.payments, "RefundSweeperFunction",
			[]string{schema.EnvTable, schema.EnvFunctionTimeout, schema.EnvSweepEscalations}},
		{s.orders, "SweeperFunction", []string{schema.EnvTable, schema.EnvFunctionTimeout, schema.EnvSweepEscalations}},
	} {
		set, _ := f.template.property("AWS::Lambda::Function", f.function, "Environment", "Variables").(map[string]any)
		for name := range set {
			if strings.HasPrefix(name, "IDEM_") && !slices.Contains(f.names, name) {
				errs.add("%s sets %s, which is not read", f.function, name)
			}
		}
		for _, name := range f.names {
			if set[name] == nil {
				errs.add("%s does not set %s", f.function, name)
			}
		}
	}
}

func namesOf(tt template, kind string) []string {
	var all []string
	for id := range tt.resources(kind) {
		all = append(all, name(id))
	}
	slices.Sort(all)
	return all
}

func timeoutsFit(s stacks, errs *findings) {
	const function = "AWS::Lambda::Function"
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources(function) {
			got, _ := at(r, "Properties", "Timeout").(float64)
			errs.want(id+"'s "+schema.EnvFunctionTimeout, strconv.Itoa(int(got)),
				at(r, "Properties", "Environment", "Variables", schema.EnvFunctionTimeout))
		}
	}
	seconds := func(tt template, kind, named, member string) float64 {
		v, _ := tt.property(kind, named, member).(float64)
		return v
	}
	if got := seconds(s.payments, function, "Payments", "Timeout"); got < 1 || got > 28 {
		errs.add("the time-out of Payments is %v s: an API answers without it after 29 s", got)
	}
	for worker, c := range map[string]struct {
		template     template
		queue, relay string
	}{
		"Worker":     {s.orders, "OrdersQueue", "RelayFunction"},
		"Statements": {s.payments, "StatementsQueue", "StatementsRelayFunction"},
	} {
		errs.want(worker+"'s "+schema.EnvQueueBatchSize,
			fmt.Sprint(c.template.property("AWS::Lambda::EventSourceMapping", worker+"QueueSource", "BatchSize")),
			c.template.property(function, worker, "Environment", "Variables", schema.EnvQueueBatchSize))
		visibility := seconds(c.template, "AWS::SQS::Queue", c.queue, "VisibilityTimeout")
		if got := seconds(c.template, function, worker, "Timeout"); got < 1 || visibility < 6*got {
			errs.add("a message is hidden for %v s, less than 6 times the time-out of %s, %v s",
				visibility, worker, got)
		}
		if got := seconds(c.template, function, c.relay, "Timeout"); got < 1 || got > 120 {
			errs.add("the time-out of the relay is %v s: a sweep takes up what is 2 minutes old", got)
		}
	}
}

func queuesAreConnected(s stacks, errs *findings) {
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs.want("the queue of "+sweeper, []string{sweeper + "Escalations"},
			texts(tt.property("AWS::Lambda::Function", sweeper+"Function", "Environment", "Variables",
				schema.EnvSweepEscalations)))
	}
	for relay, tt := range map[string]template{"StatementsRelay": s.payments, "Relay": s.orders} {
		errs.want("the failures of "+relay, []string{relay + "Failures.Arn"},
			texts(tt.property("AWS::Lambda::EventSourceMapping", relay+"Stream", "DestinationConfig", "OnFailure",
				"Destination")))
	}
	for queue, tt := range map[string]template{"StatementsQueue": s.payments, "OrdersQueue": s.orders} {
		dead, _ := tt.property("AWS::SQS::Queue", queue, "RedrivePolicy", "deadLetterTargetArn", "Fn::GetAtt", 0).(string)
		errs.want("the dead-letter queue", queue+"DeadLetters", name(dead))
		errs.want("the receives of "+queue, 5.0, tt.property("AWS::SQS::Queue", queue, "RedrivePolicy", "maxReceiveCount"))
		// A dead letter is as old as its message.
		kept := func(of string) float64 {
			seconds, _ := tt.property("AWS::SQS::Queue", of, "MessageRetentionPeriod").(float64)
			return seconds
		}
		if days := (kept(queue+"DeadLetters") - kept(queue)) / (24 * 60 * 60); days < 10 {
			errs.add("a dead letter of %s may have %v days", queue, days)
		}
	}
	errs.want("the key of OrderEvents", "alias/aws/sns", s.orders.property("AWS::SNS::Topic", "OrderEvents",
		"KmsMasterKeyId"))
	// What the payments function accepts reaches its worker: the relay sends it to the queue that
	// feeds the worker.
	errs.want("the routes of StatementsRelay", `{"statements":"StatementsQueue"}`,
		strings.Join(texts(s.payments.property("AWS::Lambda::Function", "StatementsRelayFunction", "Environment",
			"Variables", schema.EnvOutboxRoutes)), ""))
	errs.want("the queue of Statements", []string{"StatementsQueue.Arn"},
		texts(s.payments.property("AWS::Lambda::EventSourceMapping", "StatementsQueueSource", "EventSourceArn")))
	tables := map[string]any{}
	for _, f := range []string{"Payments", "Statements", "StatementsRelayFunction", "RefundSweeperFunction"} {
		tables[text(s.payments.property("AWS::Lambda::Function", f, "Environment", "Variables", schema.EnvTable))] = f
	}
	errs.want("the number of tables of what accepts, brings, does and sweeps", 1, len(tables))
}

// replacing are the properties of tables and queues whose change makes new ones.
//   - https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-globaltable.html
//   - https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-sqs-queue.html
var replacing = map[string][]string{
	"AWS::DynamoDB::GlobalTable": {"KeySchema", "LocalSecondaryIndexes", "TableName"},
	"AWS::SQS::Queue":            {"FifoQueue", "QueueName"},
}

// readSnapshots are the templates of both stacks as they were written last.
var readSnapshots = sync.OnceValues(func() (map[string]template, error) {
	all := map[string]template{}
	for _, name := range []string{"payments-api", "orders-worker"} {
		text, err := os.ReadFile(snapshotFile(name))
		if err != nil {
			return nil, err
		}
		var tt template
		if err := json.Unmarshal(text, &tt); err != nil {
			return nil, err
		}
		all[name] = tt
	}
	return all, nil
})

// tablesAndQueuesStay compares with the snapshots: a change that would make a new table or queue does
// not go in, however the snapshots are renewed.
func tablesAndQueuesStay(s stacks, errs *findings) {
	counts := map[string]map[string]int{
		"payments-api":  {"AWS::DynamoDB::GlobalTable": 1, "AWS::SQS::Queue": 4},
		"orders-worker": {"AWS::DynamoDB::GlobalTable": 2, "AWS::SQS::Queue": 4},
	}
	snapshots, err := readSnapshots()
	if err != nil {
		errs.add("%w", err)
		return
	}
	for name, tt := range map[string]template{"payments-api": s.payments, "orders-worker": s.orders} {
		for kind, properties := range replacing {
			was, is := snapshots[name].resources(kind), tt.resources(kind)
			errs.want("the number of "+kind+" in the snapshot of "+name, counts[name][kind], len(was))
			for id, r := range was {
				if is[id] == nil {
					errs.add("%s is gone: its name in the template or its type changed, or it was left out", id)
				}
				for _, name := range properties {
					errs.want(name+" of "+id, at(r, "Properties", name), at(is[id], "Properties", name))
				}
			}
		}
	}
}

// clone is a copy to change.
func (s stacks) clone(t *testing.T) stacks {
	one := func(tt template) (c template) {
		b, err := json.Marshal(tt)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &c))
		return c
	}
	return stacks{s.folder, one(s.payments), one(s.orders), s.problems}
}
