package templatetests

import (
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/infra"
)

func worker(t *testing.T, s awscdk.Stack, timeout time.Duration) *infra.Function {
	return infra.NewFunction(s, "Worker", &infra.FunctionProps{Code: given(t), Timeout: timeout})
}

// queue has these settings, and a function that ends within 30 s.
func queue(t *testing.T, props infra.QueueProps) func(awscdk.Stack) {
	return func(s awscdk.Stack) { infra.NewQueue(s, "Orders", worker(t, s, 30*time.Second), &props) }
}

func TestQueueChecks(t *testing.T) {
	declared := func(props infra.QueueProps) func(awscdk.Stack) {
		props.Repeat = infra.Repeatable
		return queue(t, props)
	}
	objects(t, nil, map[string]objection{
		"no declaration": refuses(queue(t, infra.QueueProps{}),
			"Repeat is not declared", "infra.Repeatable or infra.NotRepeatable"),
		"an odd declaration": refuses(queue(t, infra.QueueProps{Repeat: "perhaps"}), `Repeat is "perhaps"`),
		"visibility within lease": refuses(declared(infra.QueueProps{Visibility: 31 * time.Second}),
			"Visibility of 31s against the function's time-out of 30s", "lease", "set it to 3m0s, and no less than 32s"),
		"visibility and window": refuses(
			declared(infra.QueueProps{Visibility: 35 * time.Second, BatchWindow: 5 * time.Second}),
			"set it to 3m5s, and no less than 37s"),
		"short visibility": warns(declared(infra.QueueProps{Visibility: 179 * time.Second}),
			"less than 6 times", "set it to 3m0s", "idem:visibility"),
		"visibility beyond SQS": refuses(declared(infra.QueueProps{Visibility: 13 * time.Hour}),
			"Visibility is 13h0m0s", "12h"),
		"few receives":      warns(declared(infra.QueueProps{MaxReceives: 3}), "after 3 receives", "at least 5"),
		"many receives":     refuses(declared(infra.QueueProps{MaxReceives: 1001}), "MaxReceives is 1001"),
		"negative receives": refuses(declared(infra.QueueProps{MaxReceives: -1}), "MaxReceives is -1"),
		"lone concurrency":  refuses(declared(infra.QueueProps{MaxConcurrency: 1}), "MaxConcurrency is 1: use 2 to 1000"),
		"more at once than are reserved": refuses(func(s awscdk.Stack) {
			f := infra.NewFunction(s, "Worker", &infra.FunctionProps{Code: given(t), ReservedConcurrency: 5})
			infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable, MaxConcurrency: 6})
		}, "ReservedConcurrency of its consumer is 5", "set MaxConcurrency to at most that"),
		"a reserved few, and no bound": refuses(func(s awscdk.Stack) {
			f := infra.NewFunction(s, "Worker", &infra.FunctionProps{Code: given(t), ReservedConcurrency: 5})
			infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
		}, "ReservedConcurrency of its consumer is 5"),
		"large batch": refuses(declared(infra.QueueProps{BatchSize: 11}), "BatchSize is 11 without a BatchWindow"),
		"long window": refuses(declared(infra.QueueProps{BatchWindow: 301 * time.Second}), "BatchWindow is 5m1s"),
		"long message retention": refuses(declared(infra.QueueProps{MessageRetention: 15 * 24 * time.Hour}),
			"MessageRetention is 360h0m0s"),
		"dead letters that are old": warns(declared(infra.QueueProps{MessageRetention: 11 * 24 * time.Hour}),
			"one that waited here for 264h0m0s is deleted after 72h0m0s", "at most 240h0m0s", "idem:short-dead-letters"),
		"FIFO with a window": refuses(declared(infra.QueueProps{FIFO: true, BatchWindow: time.Second}),
			"a FIFO queue has none"),
		"FIFO with a large batch": refuses(declared(infra.QueueProps{FIFO: true, BatchSize: 11}),
			"a FIFO queue's batch has at most 10"),
		"FIFO by a standard name": refuses(declared(infra.QueueProps{FIFO: true, Name: "orders"}),
			`called "orders"`, "end in .fifo"),
		"standard by a FIFO name": refuses(declared(infra.QueueProps{Name: "orders.fifo"}), "set FIFO"),
		"groups without FIFO":     refuses(declared(infra.QueueProps{PerGroup: true}), "PerGroup is for FIFO queues"),
		"FIFO, not repeatable": warns(queue(t, infra.QueueProps{Repeat: infra.NotRepeatable, FIFO: true}),
			"blocks its message group for up to 15m0s", "5 receives", "idem:blocked-group"),
		"standard dead letters of a FIFO queue": refuses(func(s awscdk.Stack) {
			queue(t, infra.QueueProps{Repeat: infra.Repeatable, FIFO: true, DeadLetters: newQueue(s, "Dead")})(s)
		}, "DeadLetters is a standard queue"),
		"two queues of one function": refuses(func(s awscdk.Stack) {
			f := worker(t, s, 0)
			infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
			infra.NewQueue(s, "Refunds", f, &infra.QueueProps{Repeat: infra.Repeatable})
		}, "has another queue already", "give each queue a function"),
	})
}

func TestDeclarationsAreTheLibrarys(t *testing.T) {
	require.Equal(t, idem.Repeatable.String(), string(infra.Repeatable))
	require.Equal(t, idem.NotRepeatable.String(), string(infra.NotRepeatable))
}
