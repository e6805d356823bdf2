package templatetests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatTheChecksHold leaves each value and each resource of the templates out, one at a time, and compares what
// each check then finds with a list: none of them passes whatever there is.
func TestWhatTheChecksHold(t *testing.T) {
	s := withDefaults(t).clone(t)
	places, found := map[string]int{}, map[string]int{}
	visit := func(what string) {
		places[what]++
		for name, check := range checks {
			if s.finds(check) != nil {
				found[name+": "+what]++
			}
		}
	}
	for _, tt := range []template{s.payments, s.orders} {
		all := tt["Resources"].(map[string]any)
		for id, r := range maps.Clone(all) {
			kind := r.(map[string]any)["Type"].(string)
			delete(all, id)
			visit(kind)
			all[id] = r
			without(at(r, "Properties"), kind+" ", visit)
		}
	}
	for name, check := range checks {
		require.NoError(t, s.finds(check), name)
	}
	var lines []string
	for _, finding := range slices.Sorted(maps.Keys(found)) {
		_, what, _ := strings.Cut(finding, ": ")
		lines = append(lines, fmt.Sprintf("%s (%d of %d)\n", finding, found[finding], places[what]))
	}
	compareText(t, "testdata/held.txt", strings.Join(lines, ""))
}

// without visits each text, number, boolean and reference in a value, while it is left out.
func without(value any, path string, visit func(path string)) {
	switch value := value.(type) {
	case map[string]any:
		for name, one := range maps.Clone(value) {
			if !leaf(one) {
				without(one, path+name+".", visit)
				continue
			}
			delete(value, name)
			visit(path + name)
			value[name] = one
		}
	case []any:
		for i, one := range value {
			if !leaf(one) {
				without(one, path+"*.", visit)
				continue
			}
			value[i] = ""
			visit(path + "*")
			value[i] = one
		}
	}
}

// leaf is whether nothing of a value is left out without the rest of it: a reference is one too.
func leaf(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for member := range v {
			return len(v) == 1 && (member == "Ref" || strings.HasPrefix(member, "Fn::"))
		}
	case []any:
		return len(v) == 0
	}
	return true
}

// A check also fails where something is added, or a value is slightly wrong.
func TestWhatTheChecksRefuse(t *testing.T) {
	set := func(tt template, member string, to any, kind, named string, path ...any) {
		tt.property(kind, named, path...).(map[string]any)[member] = to
	}
	for says, c := range map[string]struct {
		check  string
		change func(stacks)
	}{
		"what Payments reads": {"names", func(s stacks) {
			set(s.payments, "IDEM_TABEL", "x", functions, "Payments", "Environment", "Variables")
		}},
		"less than 6 times the time-out of Worker": {"time-outs",
			func(s stacks) { set(s.orders, "Timeout", 31.0, functions, "Worker") }},
		"hidden for 179 s": {"time-outs",
			func(s stacks) { set(s.orders, "VisibilityTimeout", 179.0, queued, "OrdersQueue") }},
		"the time-out of Payments is 29 s": {"time-outs",
			func(s stacks) { set(s.payments, "Timeout", 29.0, functions, "Payments") }},
		"the time-out of the relay is 121 s": {"time-outs",
			func(s stacks) { set(s.orders, "Timeout", 121.0, functions, "RelayFunction") }},
		"a dead letter of OrdersQueue may have 0 days": {"queues",
			func(s stacks) { set(s.orders, "MessageRetentionPeriod", 1209600.0, queued, "OrdersQueue") }},
		"what raises orders Another is not among": {"alarms", func(s stacks) {
			s.orders["Resources"].(map[string]any)["Another"] = map[string]any{"Type": "AWS::CloudWatch::Alarm"}
		}},
		"TableName of Orders": {"what stays", func(s stacks) { set(s.orders, "TableName", "t", tables, "Orders") }},
		"LocalSecondaryIndexes of Orders": {"what stays",
			func(s stacks) { set(s.orders, "LocalSecondaryIndexes", []any{}, tables, "Orders") }},
		"FifoQueue of OrdersQueue": {"what stays",
			func(s stacks) { set(s.orders, "FifoQueue", true, queued, "OrdersQueue") }},
		"QueueName of OrdersQueueDeadLetters": {"what stays",
			func(s stacks) { set(s.orders, "QueueName", "dead", queued, "OrdersQueueDeadLetters") }},
	} {
		s := withDefaults(t).clone(t)
		c.change(s)
		require.ErrorContains(t, s.finds(checks[c.check]), says)
	}
}
