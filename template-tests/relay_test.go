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

func TestRelayChecks(t *testing.T) {
	build := func(change func(awscdk.Stack, *infra.RelayProps)) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			p := &infra.RelayProps{
				Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": newQueue(s, "Orders")},
			}
			change(s, p)
			infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), p)
		}
	}
	objects(t, nil, map[string]objection{
		"no destination": refuses(build(func(_ awscdk.Stack, p *infra.RelayProps) { p.Queues = nil }),
			"no destination", "one queue, topic or bus"),
		"a destination's URL": refuses(build(func(_ awscdk.Stack, p *infra.RelayProps) {
			p.Queues = map[string]awssqs.IQueue{"https://queue": p.Queues["orders"]}
		}), `"https://queue" is not a valid name`),
		"a name twice": refuses(build(func(s awscdk.Stack, p *infra.RelayProps) {
			p.Topics = map[string]awssns.ITopic{"orders": awssns.NewTopic(s, jsii.String("News"), nil)}
		}), `"orders" is there twice`),
		"no source": refuses(build(func(s awscdk.Stack, p *infra.RelayProps) {
			p.Buses = map[string]awsevents.IEventBus{"bus": awsevents.NewEventBus(s, jsii.String("Bus"), nil)}
		}), "Source is empty"),
		"a long time-out": refuses(build(func(_ awscdk.Stack, p *infra.RelayProps) { p.Function.Timeout = 3 * time.Minute }),
			"Timeout is 3m0s", "at most 2m0s"),
		"minus tries": refuses(build(func(_ awscdk.Stack, p *infra.RelayProps) { p.MaxTries = -1 }), "MaxTries is -1"),
		"a sweeper's key for a queue of yours": refuses(func(s awscdk.Stack) {
			infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
				Function: infra.FunctionProps{Code: given(t)}, EncryptionKey: newKey(s), EscalationQueue: newQueue(s, "Support"),
			})
		}, "EncryptionKey", "leave it out where there is"),
		"a sweeper of fewer than none at once": refuses(sweeperOf(t, -1), "Concurrency is -1: use a number up to 256"),
		"a sweeper of too many at once":        refuses(sweeperOf(t, 257), "Concurrency is 257: use a number up to 256"),
	})
}

func sweeperOf(t *testing.T, concurrency int) func(awscdk.Stack) {
	return func(s awscdk.Stack) {
		infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
			Function: infra.FunctionProps{Code: given(t)}, Concurrency: concurrency,
		})
	}
}
