package templatetests

import (
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

func relay(t *testing.T, change func(awscdk.Stack, *infra.RelayProps)) (template, []infra.Problem) {
	t.Helper()
	return synth(t, func(s awscdk.Stack) {
		p := &infra.RelayProps{
			Function: infra.FunctionProps{Code: given(t)},
			Queues:   map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
		}
		if change != nil {
			change(s, p)
		}
		infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), p)
	})
}

func TestRelayChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(awscdk.Stack, *infra.RelayProps)
		says   []string
	}{
		"no destination": {func(_ awscdk.Stack, p *infra.RelayProps) { p.Queues = nil },
			[]string{"no destination", "one queue, topic or bus"}},
		"a destination's URL": {func(_ awscdk.Stack, p *infra.RelayProps) {
			p.Queues = map[string]awssqs.IQueue{"https://queue": p.Queues["orders"]}
		}, []string{`"https://queue" is not a valid name`}},
		"a name twice": {func(s awscdk.Stack, p *infra.RelayProps) {
			p.Topics = map[string]awssns.ITopic{"orders": awssns.NewTopic(s, jsii.String("News"), nil)}
		}, []string{`"orders" is there twice`}},
		"no source": {func(s awscdk.Stack, p *infra.RelayProps) {
			p.Buses = map[string]awsevents.IEventBus{"bus": awsevents.NewEventBus(s, jsii.String("Bus"), nil)}
		}, []string{"Source is empty"}},
		"a long time-out": {func(_ awscdk.Stack, p *infra.RelayProps) { p.Function.Timeout = 3 * time.Minute },
			[]string{"Timeout is 3m0s", "at most 2m0s"}},
		"minus tries": {func(_ awscdk.Stack, p *infra.RelayProps) { p.MaxTries = -1 }, []string{"MaxTries is -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := relay(t, tc.change)
			says(t, problems, true, tc.says...)
		})
	}
}

func TestSweeperRefusesAKeyForAQueueOfYours(t *testing.T) {
	_, problems := synth(t, func(s awscdk.Stack) {
		infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
			Function: infra.FunctionProps{Code: given(t)}, EncryptionKey: newKey(s), EscalationQueue: newQueue(s, "Support"),
		})
	})
	says(t, problems, true, "EncryptionKey", "leave it out where there is")
}
