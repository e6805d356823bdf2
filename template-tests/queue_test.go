package templatetests

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/infra"
)

func worker(t *testing.T, s awscdk.Stack, timeout time.Duration) *infra.Function {
	return infra.NewFunction(s, "Worker", &infra.FunctionProps{Code: given(t), Timeout: timeout})
}

// named returns the properties of the resource with this name and type.
func (tt template) named(t *testing.T, kind, want string) map[string]any {
	t.Helper()
	found := tt.resources(kind)
	for id, r := range found {
		if name(id) == want {
			properties, _ := r["Properties"].(map[string]any)
			return properties
		}
	}
	require.Failf(t, "no such resource", "%s %s among %v", kind, want, slices.Collect(maps.Keys(found)))
	return nil
}

func (tt template) environment(t *testing.T, function string) map[string]any {
	t.Helper()
	return tt.named(t, "AWS::Lambda::Function", function)["Environment"].(map[string]any)["Variables"].(map[string]any)
}

// id is the logical id of the resource with this name and type.
func (tt template) id(t *testing.T, kind, want string) string {
	t.Helper()
	for id := range tt.resources(kind) {
		if name(id) == want {
			return id
		}
	}
	require.Failf(t, "no such resource", "%s %s", kind, want)
	return ""
}

func TestQueueChecks(t *testing.T) {
	const isError, isWarning = true, false
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	for name, tc := range map[string]struct {
		props infra.QueueProps
		error bool
		says  []string
	}{
		"no declaration": {infra.QueueProps{}, isError,
			[]string{"Repeat is not declared", "infra.Repeatable or infra.NotRepeatable"}},
		"an odd declaration": {infra.QueueProps{Repeat: "perhaps"}, isError, []string{`Repeat is "perhaps"`}},
		"visibility within lease": {infra.QueueProps{Repeat: infra.Repeatable, Visibility: 31 * time.Second}, isError,
			[]string{"Visibility of 31s against the function's time-out of 30s", "lease",
				"set it to 3m0s, and no less than 32s"}},
		"visibility and window": {infra.QueueProps{Repeat: infra.Repeatable, Visibility: 35 * time.Second,
			BatchWindow: 5 * time.Second}, isError, []string{"set it to 3m5s, and no less than 37s"}},
		"short visibility": {infra.QueueProps{Repeat: infra.Repeatable, Visibility: 179 * time.Second}, isWarning,
			[]string{"less than 6 times", "set it to 3m0s", "idem:visibility"}},
		"visibility beyond SQS": {infra.QueueProps{Repeat: infra.Repeatable, Visibility: 13 * time.Hour}, isError,
			[]string{"Visibility is 13h0m0s", "12h"}},
		"few receives": {infra.QueueProps{Repeat: infra.Repeatable, MaxReceives: 3}, isWarning,
			[]string{"after 3 receives", "at least 5"}},
		"many receives": {infra.QueueProps{Repeat: infra.Repeatable, MaxReceives: 1001}, isError,
			[]string{"MaxReceives is 1001"}},
		"negative receives": {infra.QueueProps{Repeat: infra.Repeatable, MaxReceives: -1}, isError,
			[]string{"MaxReceives is -1"}},
		"lone concurrency": {infra.QueueProps{Repeat: infra.Repeatable, MaxConcurrency: 1}, isError,
			[]string{"MaxConcurrency is 1: use 2 to 1000"}},
		"large batch": {infra.QueueProps{Repeat: infra.Repeatable, BatchSize: 11}, isError,
			[]string{"BatchSize is 11 without a BatchWindow"}},
		"long window": {infra.QueueProps{Repeat: infra.Repeatable, BatchWindow: 301 * time.Second}, isError,
			[]string{"BatchWindow is 5m1s"}},
		"long message retention": {infra.QueueProps{Repeat: infra.Repeatable, MessageRetention: days(15)}, isError,
			[]string{"MessageRetention is 360h0m0s"}},
		"FIFO with a window": {infra.QueueProps{Repeat: infra.Repeatable, FIFO: true, BatchWindow: time.Second}, isError,
			[]string{"a FIFO queue has none"}},
		"FIFO with a large batch": {infra.QueueProps{Repeat: infra.Repeatable, FIFO: true, BatchSize: 11}, isError,
			[]string{"a FIFO queue's batch has at most 10"}},
		"FIFO by a standard name": {infra.QueueProps{Repeat: infra.Repeatable, FIFO: true, Name: "orders"}, isError,
			[]string{`called "orders"`, "end in .fifo"}},
		"standard by a FIFO name": {infra.QueueProps{Repeat: infra.Repeatable, Name: "orders.fifo"}, isError,
			[]string{"set FIFO"}},
		"groups without FIFO": {infra.QueueProps{Repeat: infra.Repeatable, PerGroup: true}, isError,
			[]string{"PerGroup is for FIFO queues"}},
		"FIFO, not repeatable": {infra.QueueProps{Repeat: infra.NotRepeatable, FIFO: true}, isWarning,
			[]string{"blocks its message group for up to 15m0s", "5 receives", "idem:blocked-group"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := synth(t, func(s awscdk.Stack) {
				infra.NewQueue(s, "Orders", worker(t, s, 30*time.Second), &tc.props)
			})
			says(t, problems, tc.error, tc.says...)
		})
	}
	t.Run("standard dead letters of a FIFO queue", func(t *testing.T) {
		_, problems := synth(t, func(s awscdk.Stack) {
			infra.NewQueue(s, "Orders", worker(t, s, 0), &infra.QueueProps{
				Repeat: infra.Repeatable, FIFO: true, DeadLetters: awssqs.NewQueue(s, jsii.String("Dead"), nil),
			})
		})
		says(t, problems, isError, "DeadLetters is a standard queue")
	})
	t.Run("two queues of one function", func(t *testing.T) {
		_, problems := synth(t, func(s awscdk.Stack) {
			f := worker(t, s, 0)
			infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
			infra.NewQueue(s, "Refunds", f, &infra.QueueProps{Repeat: infra.Repeatable})
		})
		says(t, problems, isError, "has another queue already", "give each queue a function")
	})
}

func TestDeclarationsAreTheLibrarys(t *testing.T) {
	require.Equal(t, idem.Repeatable.String(), string(infra.Repeatable))
	require.Equal(t, idem.NotRepeatable.String(), string(infra.NotRepeatable))
}
