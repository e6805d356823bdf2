package readme

import (
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/measure/paths"
)

var row = regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| (.+) \|$`)

// The README's calls are those of the paths that local/measure/paths counts. Those of
// what no path plays are said here.
func TestCallsOfTheREADME(t *testing.T) {
	made := map[string]int{}
	for _, p := range paths.All() {
		for _, n := range p.Calls {
			made[p.Name] += n
		}
	}
	calls := map[string]string{}
	for situation, path := range map[string]string{
		"the first call": "first execution, repeatable", "the same call again": "replay", "at the same time": "in flight",
		"the same key, another input":                                 "key reused",
		"the record has expired":                                      "expired, claimed",
		"the slow attempt ends later, after another took over":        "late, taken over",
		"the slow attempt ends later, after it was parked as unknown": "late, parked",
	} {
		require.NotZero(t, made[path], path)
		calls[situation] = strconv.Itoa(made[path])
	}
	for _, n := range []string{"DynamoDB is down before the claim", "DynamoDB is down after the handler",
		"DynamoDB is down when a transaction commits"} {
		calls[n] = "–"
	}

	_, section, ok := strings.Cut(read(t, "README.md"), "## What happens when")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n\n>")
	found := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		found[m[1]] = m[3]
	}
	require.Equal(t, calls, found)
}

var docRow = regexp.MustCompile(`(?m)^//\t(.{33}) (\d [A-Z]\w*(?:, \d [A-Z]\w*)*) +[A-Z]`)

// The calls in the documentation of dynamostore are those that local/measure/paths counts,
// in the rows that have a path.
func TestCallsOfDynamostore(t *testing.T) {
	made := map[string]map[string]int{}
	for _, p := range paths.All() {
		made[p.Name] = p.Calls
	}
	operations := map[string]string{
		"Put": "PutItem", "Update": "UpdateItem", "Get": "GetItem", "Query": "Query", "Transaction": "TransactWriteItems",
	}
	says := map[string]map[string]int{}
	for _, m := range docRow.FindAllStringSubmatch(read(t, "idem/dynamostore/doc.go"), -1) {
		calls := map[string]int{}
		for _, call := range strings.Split(m[2], ", ") {
			n, of, _ := strings.Cut(call, " ")
			count, err := strconv.Atoi(n)
			require.NoError(t, err)
			calls[operations[of]] = count
		}
		says[strings.TrimSpace(m[1])] = calls
	}
	for row, played := range map[string][]string{
		"first execution": {"first execution, repeatable", "first execution, not repeatable",
			"parked after an error"},
		"replay, in flight, reused key":  {"replay", "in flight", "key reused"},
		"expired, claimed again":         {"expired, claimed"},
		"lapsed or released, taken over": {"lapsed, taken over", "released, claimed"},
		"lapsed, parked":                 {"lapsed, parked"},
		"heartbeat":                      {"lease renewed", "lease renewed, watched"},
		"first execution with a Tx":      {"business write, two calls"},
		"atomic mode, first execution":   {"business write, atomic"},
		"atomic mode, replay":            {"atomic, replay"},
	} {
		for _, path := range played {
			require.Equal(t, made[path], says[row], "%s: %s", row, path)
			require.NotEmpty(t, says[row])
		}
	}
	for row, path := range map[string]string{"step": "a step", "… at-most-once step": "at-most-once step"} {
		calls := maps.Clone(made[path])
		for call, n := range made["first execution, repeatable"] {
			if calls[call] -= n; calls[call] == 0 {
				delete(calls, call)
			}
		}
		require.Equal(t, calls, says[row], row)
	}
}
