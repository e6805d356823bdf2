package templatetests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/template-tests/spec"
)

// checks are what holds for the templates of both stacks. They collect what
// they find instead of failing, so that TestMutations can show that each of them can fail.
var checks = map[string]func(stacks, *findings){
	"names":                 namesAreTheSchemas,
	"expiry":                recordsExpire,
	"table":                 tablesAreSafe,
	"functions":             functionsRun,
	"time-outs":             timeoutsFit,
	"partial batches":       batchesAreReported,
	"queues":                queuesAreSafe,
	"alarms":                alarmsAreRaised,
	"permissions, exactly":  permissionsAreExact,
	"permissions suffice":   permissionsSuffice,
	"permissions, no stars": permissionsNameResources,
	"specification":         specified,
	"tables stay":           tablesStay,
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
	const kind = "AWS::DynamoDB::GlobalTable"
	attribute := func(name, kind string) any { return map[string]any{"AttributeName": name, "AttributeType": kind} }
	key := func(name, kind string) any { return map[string]any{"AttributeName": name, "KeyType": kind} }
	for relay, tt := range map[string]template{"StatementsRelay": s.payments, "Relay": s.orders} {
		errs.want("the filter of "+relay, []any{map[string]any{"Pattern": schema.OutboxFilter}},
			tt.property("AWS::Lambda::EventSourceMapping", relay+"Stream", "FilterCriteria", "Filters"))
	}
	for _, tt := range []template{s.payments, s.orders} {
		errs.want("the table's attributes", []any{
			attribute(schema.PK, "S"), attribute(schema.SK, "S"), attribute(schema.OpenShard, "S"),
			attribute(schema.OpenDue, "N"),
		}, tt.property(kind, "Records", "AttributeDefinitions"))
		errs.want("the table's key", []any{key(schema.PK, "HASH"), key(schema.SK, "RANGE")},
			tt.property(kind, "Records", "KeySchema"))
		errs.want("the index", []any{map[string]any{
			"IndexName": schema.OpenIndex, "Projection": map[string]any{"ProjectionType": "KEYS_ONLY"},
			"KeySchema": []any{key(schema.OpenShard, "HASH"), key(schema.OpenDue, "RANGE")},
		}}, tt.property(kind, "Records", "GlobalSecondaryIndexes"))
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
			if ours.MatchString(name) && !slices.Contains(f.names, name) {
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

var ours = regexp.MustCompile("^IDEM_")

func recordsExpire(s stacks, errs *findings) {
	ttl := map[string]any{"AttributeName": schema.ExpiresAt, "Enabled": true}
	const kind = "AWS::DynamoDB::GlobalTable"
	errs.want("the table's TTL", ttl, s.payments.property(kind, "Records", "TimeToLiveSpecification"))
	errs.want("the orders' table's TTL", ttl, s.orders.property(kind, "Records", "TimeToLiveSpecification"))
}

func tablesAreSafe(s stacks, errs *findings) {
	for i, tt := range []template{s.payments, s.orders} {
		tables := tt.resources("AWS::DynamoDB::GlobalTable")
		errs.want("the number of tables", i+1, len(tables))
		for id, r := range tables {
			errs.want(id+"'s DeletionPolicy", "Retain", r["DeletionPolicy"])
			errs.want(id+"'s UpdateReplacePolicy", "Retain", r["UpdateReplacePolicy"])
			errs.want(id+"'s billing", "PAY_PER_REQUEST", at(r, "Properties", "BillingMode"))
			errs.want(id+"'s name", nil, at(r, "Properties", "TableName")) // its own could not be replaced
			errs.want(id+"'s recovery", true, at(r, "Properties", "Replicas", 0, "PointInTimeRecoverySpecification",
				"PointInTimeRecoveryEnabled"))
			errs.want(id+"'s protection", true, at(r, "Properties", "Replicas", 0, "DeletionProtectionEnabled"))
			errs.want(id+"'s second region", nil, at(r, "Properties", "Replicas", 1))
		}
	}
	errs.want("the stream", "NEW_AND_OLD_IMAGES",
		s.payments.property("AWS::DynamoDB::GlobalTable", "Records", "StreamSpecification", "StreamViewType"))
}

func functionsRun(s stacks, errs *findings) {
	errs.want("the functions of payments-api", []string{"Payments", "RefundSweeperFunction", "Statements",
		"StatementsRelayFunction"}, namesOf(s.payments, "AWS::Lambda::Function"))
	errs.want("the functions of orders-worker", []string{"RelayFunction", "SweeperFunction", "Worker"},
		namesOf(s.orders, "AWS::Lambda::Function"))
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources("AWS::Lambda::Function") {
			p := r["Properties"]
			logs := fmt.Sprint(at(p, "LoggingConfig", "LogGroup", "Ref"))
			errs.want(id+"'s runtime", "provided.al2023", at(p, "Runtime"))
			errs.want(id+"'s architecture", []any{"arm64"}, at(p, "Architectures"))
			errs.want(id+"'s handler", "bootstrap", at(p, "Handler"))
			errs.want(id+"'s logs", "JSON", at(p, "LoggingConfig", "LogFormat"))
			errs.want(id+"'s log retention", 30.0,
				at(tt.resources("AWS::Logs::LogGroup")[logs], "Properties", "RetentionInDays"))
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

func batchesAreReported(s stacks, errs *findings) {
	for worker, tt := range map[string]template{"Statements": s.payments, "Worker": s.orders} {
		mappings := tt.resources("AWS::Lambda::EventSourceMapping")
		errs.want("the number of mappings", 2, len(mappings))
		for id, r := range mappings {
			errs.want(id+"'s responses", []any{"ReportBatchItemFailures"},
				at(r, "Properties", "FunctionResponseTypes"))
		}
		errs.want(worker+"'s batch size",
			fmt.Sprint(tt.property("AWS::Lambda::EventSourceMapping", worker+"QueueSource", "BatchSize")),
			tt.property("AWS::Lambda::Function", worker, "Environment", "Variables", schema.EnvQueueBatchSize))
	}
}

func queuesAreSafe(s stacks, errs *findings) {
	for _, tt := range []template{s.payments, s.orders} {
		guarded := map[string]bool{}
		for _, p := range tt.resources("AWS::SQS::QueuePolicy") {
			if at(p, "Properties", "PolicyDocument", "Statement", 0, "Condition", "Bool", "aws:SecureTransport") == "false" &&
				at(p, "Properties", "PolicyDocument", "Statement", 0, "Effect") == "Deny" {
				guarded[fmt.Sprint(at(p, "Properties", "Queues", 0, "Ref"))] = true
			}
		}
		for id, q := range tt.resources("AWS::SQS::Queue") {
			errs.want(id+"'s encryption", true, at(q, "Properties", "SqsManagedSseEnabled"))
			errs.want(id+" is for TLS alone", true, guarded[id])
			errs.want(id+"'s retention", 1209600.0, at(q, "Properties", "MessageRetentionPeriod"))
		}
	}
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs.want("the queue of "+sweeper, []string{sweeper + "Escalations"},
			texts(tt.property("AWS::Lambda::Function", sweeper+"Function", "Environment", "Variables",
				schema.EnvSweepEscalations)))
	}
	for queue, tt := range map[string]template{"StatementsQueue": s.payments, "OrdersQueue": s.orders} {
		dead, _ := tt.property("AWS::SQS::Queue", queue, "RedrivePolicy", "deadLetterTargetArn", "Fn::GetAtt", 0).(string)
		errs.want("the dead-letter queue", queue+"DeadLetters", name(dead))
		errs.want("the receives of "+queue, 5.0, tt.property("AWS::SQS::Queue", queue, "RedrivePolicy", "maxReceiveCount"))
	}
	for relay, tt := range map[string]template{"StatementsRelay": s.payments, "Relay": s.orders} {
		errs.want("the failures of "+relay, []string{relay + "Failures.Arn"},
			texts(tt.property("AWS::Lambda::EventSourceMapping", relay+"Stream", "DestinationConfig",
				"OnFailure", "Destination")))
	}
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

func specified(s stacks, errs *findings) {
	known, err := spec.Load()
	if err != nil {
		errs.add("%w", err)
		return
	}
	for _, tt := range []template{s.payments, s.orders} {
		for _, problem := range known.Check(tt) {
			errs.add("%s", problem)
		}
	}
}

// tablesStay compares with the snapshots: a change that would make a new table does
// not go in, however the snapshots are renewed.
func tablesStay(s stacks, errs *findings) {
	known, err := spec.Load()
	if err != nil {
		errs.add("%w", err)
		return
	}
	tables := map[string]int{"payments-api": 1, "orders-worker": 2}
	for name, tt := range map[string]template{"payments-api": s.payments, "orders-worker": s.orders} {
		text, err := os.ReadFile(snapshotFile(name))
		if err != nil {
			errs.add("%w", err)
			return
		}
		var before map[string]any
		if err := json.Unmarshal(text, &before); err != nil {
			errs.add("%w", err)
			return
		}
		errs.want("the tables of the snapshot of "+name, tables[name],
			len(template(before).resources("AWS::DynamoDB::GlobalTable")))
		for _, problem := range known.Replaced(before, tt, "AWS::DynamoDB::GlobalTable") {
			errs.add("%s", problem)
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
