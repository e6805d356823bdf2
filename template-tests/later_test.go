package templatetests

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/infra"
)

// accepting is a stack that accepts statements for later, to change.
type accepting struct {
	stack    awscdk.Stack
	table    infra.TableProps
	imported bool // the table is
	later    infra.LaterProps
	timeout  time.Duration // of the worker
	api      *infra.APIProps
	relay    *infra.RelayProps // nil: none
	sweeper  bool
	watch    *infra.MonitoringProps
	own      func(later *infra.Later, accept *infra.Function, records *infra.Table) // what the service does itself
}

func newAccepting(t *testing.T, s awscdk.Stack) *accepting {
	return &accepting{
		stack: s, timeout: 20 * time.Second, sweeper: true,
		relay: &infra.RelayProps{Function: infra.FunctionProps{Code: given(t)}},
		later: infra.LaterProps{
			Route: infra.Route{Route: "POST /statements", Rate: 5, Burst: 7}, Status: "/statements/{id}",
			Queue: infra.QueueProps{Repeat: infra.Repeatable},
		},
		api: &infra.APIProps{Authorizer: signed()},
	}
}

func (a *accepting) build(t *testing.T) {
	var records *infra.Table
	if a.imported {
		records = existingTable(a.stack)
	} else {
		records = infra.NewTable(a.stack, "Records", &a.table)
	}
	accept := infra.NewFunction(a.stack, "Accept", &infra.FunctionProps{Code: given(t)})
	accept.UseTable(records, nil)
	w := worker(t, a.stack, a.timeout)
	w.UseTable(records, nil)
	l := infra.NewLater(a.stack, "Statements", records, w, &a.later)
	if a.api != nil {
		a.api.Routes = slices.Concat(a.api.Routes, l.Routes)
		infra.NewAPI(a.stack, "API", accept, a.api)
	}
	if a.relay != nil {
		if a.relay.Queues == nil {
			a.relay.Queues = map[string]awssqs.IQueue{"statements": l.Queue}
		}
		infra.NewRelay(a.stack, "Relay", records, a.relay)
	}
	if a.own != nil {
		a.own(l, accept, records)
	}
	if a.sweeper {
		infra.NewSweeper(a.stack, "Sweeper", records, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
	}
	if a.watch != nil {
		a.watch.Queues, a.watch.Metrics = []*infra.Queue{l.Queue}, []awslambda.Function{w}
		infra.NewMonitoring(a.stack, "Monitoring", a.watch)
	}
}

func TestLaterChecks(t *testing.T) {
	build := func(change func(*accepting)) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			a := newAccepting(t, s)
			change(a)
			a.build(t)
		}
	}
	objects(t, ireland, map[string]objection{
		"no sweeper": refuses(build(func(a *accepting) { a.sweeper = false }),
			"the table Test/Records has no sweeper", "NewSweeper", "GrantSweeper"),
		"no relay": refuses(build(func(a *accepting) { a.relay = nil }),
			"nothing fills the queue", "RelayProps.Queues", "GrantSend"),
		"a relay to another queue": refuses(build(func(a *accepting) {
			a.relay.Queues = map[string]awssqs.IQueue{"statements": newQueue(a.stack, "Other")}
		}), "nothing fills the queue"),
		"another table's sweeper": refuses(build(func(a *accepting) {
			a.sweeper = false
			a.own = func(*infra.Later, *infra.Function, *infra.Table) {
				infra.NewSweeper(a.stack, "Sweeper", infra.NewTable(a.stack, "Other", nil),
					&infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
			}
		}), "the table Test/Records has no sweeper"),
		"another table's relay": refuses(build(func(a *accepting) {
			a.relay = nil
			a.own = func(l *infra.Later, _ *infra.Function, _ *infra.Table) {
				infra.NewRelay(a.stack, "Relay", infra.NewTable(a.stack, "Other", nil), &infra.RelayProps{
					Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"statements": l.Queue},
				})
			}
		}), "nothing fills the queue"),
		"a message that is lost": refuses(build(func(a *accepting) { a.later.Queue.MessageRetention = 59 * time.Minute }),
			"MessageRetention of 59m0s is less than StartWithin, 1h0m0s"),
		"longer than SQS can keep": refuses(build(func(a *accepting) { a.later.StartWithin = 15 * 24 * time.Hour }),
			"MessageRetention of 96h0m0s is less than StartWithin, 360h0m0s"),
		"visibility within lease": refuses(build(func(a *accepting) { a.later.Queue.Visibility = 21 * time.Second }),
			"Visibility of 21s against the function's time-out of 20s"),
		"no declaration": refuses(build(func(a *accepting) { a.later.Queue.Repeat = "" }), "Repeat is not declared"),
		"no status":      refuses(build(func(a *accepting) { a.later.Status = "" }), `Status is ""`, "/statements/{id}"),
		"a status without id": refuses(build(func(a *accepting) { a.later.Status = "/statements/status" }),
			`Status is "/statements/status"`),
		"a status of any length": refuses(build(func(a *accepting) { a.later.Status = "/statements/{id+}" }),
			`Status is "/statements/{id+}"`),
		"a status twice": refuses(build(func(a *accepting) { a.api.Routes = []infra.Route{{Route: "GET /statements/{id}"}} }),
			`"GET /statements/{id}" is there twice`),
		"no time": refuses(build(func(a *accepting) { a.later.StartWithin = time.Millisecond }),
			"StartWithin is 1ms", "at least one second"),
		"minus hours": refuses(build(func(a *accepting) { a.later.StartWithin = -time.Hour }), "StartWithin is -1h0m0s"),
		"a global table": refuses(build(func(a *accepting) {
			a.table = infra.TableProps{ReplicaRegions: []string{"eu-central-1", "eu-west-2"},
				Consistency: awsdynamodb.MultiRegionConsistency_STRONG}
		}), "a global table has no transactions, in which work is accepted"),
		// Another stack may have them.
		"an imported table without sweeper": warns(build(func(a *accepting) { a.imported, a.sweeper = true, false }),
			"the table Test/Records has no sweeper", "unless another stack has one", "idem:elsewhere"),
		"an imported table without relay": warns(build(func(a *accepting) { a.imported, a.relay = true, nil }),
			"nothing fills the queue", "unless another stack has the relay", "idem:elsewhere"),
		"an imported table with both": accepts(build(func(a *accepting) { a.imported = true })),
		"an existing queue": accepts(build(func(a *accepting) {
			a.later.Queue = existingQueue(a.stack)
			a.later.Queue.Repeat = infra.Repeatable
		})),
		"an existing queue that nothing fills": refuses(build(func(a *accepting) {
			a.relay, a.later.Queue = nil, existingQueue(a.stack)
			a.later.Queue.Repeat = infra.Repeatable
		}), "nothing fills the queue"),
		"a long time-out": warns(build(func(a *accepting) { a.timeout = 10 * time.Minute }),
			"work waits for 1h0m0s at most", "comes again after 1h0m0s", "idem:expires-early"),
		"a sweep of the relay that is late": warns(build(func(a *accepting) { a.later.StartWithin = 7 * time.Minute }),
			"work waits for 7m0s at most", "sent after up to 7m0s", "idem:expires-early"),
		"an alarm that is late": warns(build(func(a *accepting) {
			a.watch = &infra.MonitoringProps{Thresholds: map[string]float64{"Age": 3600}}
		}), "Age, 1h0m0s, is no less than", "Statements", "idem:expires-early"),
		"a sweeper of one's own": accepts(build(func(a *accepting) {
			a.sweeper = false
			a.own = func(_ *infra.Later, accept *infra.Function, records *infra.Table) { records.GrantSweeper(accept) }
		})),
		"a message without the outbox": accepts(build(func(a *accepting) {
			a.relay = nil
			a.own = func(l *infra.Later, accept *infra.Function, _ *infra.Table) { l.Queue.GrantSend(accept) }
		})),
		"routes of another API": accepts(build(func(a *accepting) { a.api = nil })),
		"a sweep of the relay in time": accepts(build(func(a *accepting) {
			a.later.StartWithin = 7*time.Minute + time.Second
		})),
		"a quick alarm": accepts(build(func(a *accepting) {
			a.watch = &infra.MonitoringProps{
				Topic: awssns.NewTopic(a.stack, jsii.String("Alarms"), nil), Thresholds: map[string]float64{"Age": 59 * 60},
			}
		})),
	})
}

func TestLaterTimesAreTheLibrarys(t *testing.T) {
	require.Equal(t, later.DefaultStartWithin, infra.DefaultStartWithin)
}
