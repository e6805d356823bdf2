package templatetests

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

const (
	tables, functions = "AWS::DynamoDB::GlobalTable", "AWS::Lambda::Function"
	mappings, queued  = "AWS::Lambda::EventSourceMapping", "AWS::SQS::Queue"
)

// namesAreTheSchemas: what the functions read at start-up is there under the name that they read, and nothing else is.
// All of a stack use one table.
func namesAreTheSchemas(s stacks, errs *findings) {
	worker := []string{schema.EnvQueueBatchSize, schema.EnvQueueRepeat, schema.EnvQueueRedelivery}
	relay, sweeper := []string{schema.EnvOutboxRoutes, schema.EnvOutboxGrace}, []string{schema.EnvSweepEscalations}
	reads := map[string][]string{
		"Payments": nil, "Statements": worker, "StatementsRelayFunction": relay, "RefundSweeperFunction": sweeper,
		"Worker": worker, "RelayFunction": relay, "SweeperFunction": sweeper,
	}
	for _, tt := range []template{s.payments, s.orders} {
		for id, f := range tt.resources(functions) {
			variables, _ := at(f, "Properties", "Environment", "Variables").(map[string]any)
			set := slices.DeleteFunc(slices.Sorted(maps.Keys(variables)),
				func(variable string) bool { return !strings.HasPrefix(variable, "IDEM_") })
			wanted := append([]string{schema.EnvTable, schema.EnvFunctionTimeout}, reads[name(id)]...)
			errs.want("what "+name(id)+" reads", slices.Sorted(slices.Values(wanted)), set)
			errs.want("the table of "+name(id), []string{"Records"}, texts(variables[schema.EnvTable]))
			delete(reads, name(id))
		}
	}
	errs.want("the number of functions that are missing", 0, len(reads))
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
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources(functions) {
			got, _ := at(r, "Properties", "Timeout").(float64)
			errs.want(id+"'s "+schema.EnvFunctionTimeout, strconv.Itoa(int(got)),
				at(r, "Properties", "Environment", "Variables", schema.EnvFunctionTimeout))
		}
	}
	seconds := func(tt template, kind, named, member string) float64 {
		v, _ := tt.property(kind, named, member).(float64)
		return v
	}
	if got := seconds(s.payments, functions, "Payments", "Timeout"); got < 1 || got > 28 {
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
			fmt.Sprint(c.template.property(mappings, worker+"QueueSource", "BatchSize")),
			c.template.property(functions, worker, "Environment", "Variables", schema.EnvQueueBatchSize))
		visibility := seconds(c.template, queued, c.queue, "VisibilityTimeout")
		if got := seconds(c.template, functions, worker, "Timeout"); got < 1 || visibility < 6*got {
			errs.add("a message is hidden for %v s, less than 6 times the time-out of %s, %v s", visibility, worker, got)
		}
		if got := seconds(c.template, functions, c.relay, "Timeout"); got < 1 || got > 120 {
			errs.add("the time-out of the relay is %v s: a sweep takes up what is 2 minutes old", got)
		}
	}
}

// connections are values of the templates, with references by name.
var connections = []struct {
	stack, kind, named string
	path               []any
	wanted             string
}{
	// What the payments function accepts reaches its worker: the relay sends it to the queue that feeds the worker.
	{inPayments, functions, "StatementsRelayFunction", variable(schema.EnvOutboxRoutes),
		`{"statements":"StatementsQueue"}`},
	{inPayments, mappings, "StatementsQueueSource", []any{"EventSourceArn"}, "StatementsQueue.Arn"},
	{inPayments, functions, "RefundSweeperFunction", variable(schema.EnvSweepEscalations), "RefundSweeperEscalations"},
	{inOrders, functions, "SweeperFunction", variable(schema.EnvSweepEscalations), "SweeperEscalations"},
	{inPayments, mappings, "StatementsRelayStream", filter, schema.OutboxFilter},
	{inOrders, mappings, "RelayStream", filter, schema.OutboxFilter},
	{inPayments, mappings, "StatementsRelayStream", onFailure, "StatementsRelayFailures.Arn"},
	{inOrders, mappings, "RelayStream", onFailure, "RelayFailures.Arn"},
	{inPayments, queued, "StatementsQueue", deadLetters, "StatementsQueueDeadLetters.Arn"},
	{inOrders, queued, "OrdersQueue", deadLetters, "OrdersQueueDeadLetters.Arn"},
	{inPayments, queued, "StatementsQueue", receives, "5"},
	{inOrders, queued, "OrdersQueue", receives, "5"},
	{inOrders, "AWS::SNS::Topic", "OrderEvents", []any{"KmsMasterKeyId"}, "alias/aws/sns"},
}

var (
	filter      = []any{"FilterCriteria", "Filters", 0, "Pattern"}
	onFailure   = []any{"DestinationConfig", "OnFailure", "Destination"}
	deadLetters = []any{"RedrivePolicy", "deadLetterTargetArn"}
	receives    = []any{"RedrivePolicy", "maxReceiveCount"}
)

func variable(name string) []any { return []any{"Environment", "Variables", name} }

func queuesAreConnected(s stacks, errs *findings) {
	in := map[string]template{inPayments: s.payments, inOrders: s.orders}
	for _, c := range connections {
		errs.want(fmt.Sprint(c.path[len(c.path)-1], " of ", c.named), c.wanted,
			strings.Join(texts(in[c.stack].property(c.kind, c.named, c.path...)), ""))
	}
	for queue, tt := range map[string]template{"StatementsQueue": s.payments, "OrdersQueue": s.orders} {
		// A dead letter is as old as its message.
		kept := func(of string) float64 {
			seconds, _ := tt.property(queued, of, "MessageRetentionPeriod").(float64)
			return seconds
		}
		if days := (kept(queue+"DeadLetters") - kept(queue)) / (24 * 60 * 60); days < 10 {
			errs.add("a dead letter of %s may have %v days", queue, days)
		}
	}
}

// replacing are the properties of tables and queues whose change makes new ones.
//   - https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-globaltable.html
//   - https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-sqs-queue.html
var replacing = map[string][]string{
	tables: {"KeySchema", "LocalSecondaryIndexes", "TableName"},
	queued: {"FifoQueue", "QueueName"},
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
		"payments-api":  {tables: 1, queued: 4},
		"orders-worker": {tables: 2, queued: 4},
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
					errs.add("%s is missing: its name in the template or its type changed, or it was left out", id)
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
