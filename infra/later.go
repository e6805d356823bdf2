package infra

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
)

// DefaultStartWithin is how long accepted work may wait for its worker unless the code says
// otherwise, as in the library.
const DefaultStartWithin = time.Hour

// LaterProps of work that is accepted for later. Route, Status and Queue.Repeat are required.
type LaterProps struct {
	// Route accepts the work, such as "POST /statements".
	Route Route
	// Status is the template of the path at which its client follows it, such as
	// "/statements/{id}", as in idemhttp.Later. Those who may call Route may ask there.
	Status string
	// StartWithin is how long work may wait for its worker, as in idemhttp.Later. Zero means
	// [DefaultStartWithin].
	StartWithin time.Duration
	// Queue has the records' ids for the worker.
	Queue QueueProps
}

// Later is what a route needs whose operation is accepted for later: the routes, and the queue
// to the worker. It is an error at synth time if the table has no sweeper, since nothing else ends
// work that no worker has started, or if nothing fills the queue.
type Later struct {
	// Queue has the records' ids for the worker. Name it in [RelayProps].Queues of the table's
	// relay, under the destination that the code publishes to, and in [MonitoringProps].Queues.
	Queue *Queue
	// Routes are for [APIProps].Routes: the one that accepts, and GET, HEAD and DELETE of the
	// status.
	Routes []Route
}

// NewLater returns what accepts work for later whose records are in the table. The worker is a
// [Function] or any other Lambda function of the stack, made with idemlambda.SQSWorker. It and the
// function behind the routes use the table, see [Function.UseTable].
func NewLater(scope constructs.Construct, id string, table *Table, worker awslambda.Function,
	props *LaterProps) *Later {
	p := valueOf(props)
	found := p.setDefaults()
	l := &Later{Queue: NewQueue(scope, id, worker, &p.Queue), Routes: []Route{p.Route}}
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		l.Routes = append(l.Routes, Route{Route: method + " " + p.Status, Scopes: p.Route.Scopes})
	}
	l.Queue.waits = p.StartWithin
	found.refuse(l.Queue.Queue)
	if table.strong {
		refuse(l.Queue.Queue, "a global table has no transactions, in which work is accepted together with the message "+
			"for its worker: keep the records in a table of one region")
	}
	if p.StartWithin <= l.Queue.visibility {
		warn(l.Queue.Queue, "expires-early",
			"work waits for %v at most, and a message whose worker was killed before it claimed the work comes again "+
				"after %v: the work would expire before; set StartWithin above that, in the code and here",
			p.StartWithin, l.Queue.visibility)
	}
	awscdk.Aspects_Of(l.Queue.Queue).Add(&laterAspect{table: table, queue: l.Queue}, nil)
	return l
}

func (p *LaterProps) setDefaults() (found problems) {
	if !isStatus(p.Status) {
		found.add("Status is %q: use a template like /statements/{id}, whose last segment is a parameter, as in the code",
			p.Status)
	}
	if p.StartWithin != 0 && p.StartWithin < time.Second {
		found.add("StartWithin is %v: use at least one second, or zero for %v, as in the code", p.StartWithin,
			DefaultStartWithin)
		p.StartWithin = 0
	}
	p.StartWithin = cmp.Or(p.StartWithin, DefaultStartWithin)
	kept := cmp.Or(p.Queue.MessageRetention, DefaultMessageRetention)
	if kept < p.StartWithin {
		found.add("MessageRetention of %v is less than StartWithin, %v: the queue would lose the message of work that still "+
			"waits; set it to at least that, or a shorter StartWithin, in the code and here", kept, p.StartWithin)
	}
	return found
}

func isStatus(template string) bool {
	last := template[strings.LastIndexByte(template, '/')+1:]
	return strings.HasPrefix(template, "/") && !strings.ContainsAny(template, " ?#") &&
		strings.HasPrefix(last, "{") && strings.HasSuffix(last, "}") && !strings.HasSuffix(last, "+}") && last != "{}"
}

// laterAspect examines what is around the queue when it is synthesized: a sweeper and a relay may
// be made after it.
type laterAspect struct {
	table *Table
	queue *Queue
}

// Visit is called by CDK for the queue, and for each construct below it.
func (a *laterAspect) Visit(node constructs.IConstruct) {
	at := a.queue.Queue
	if *node.Node().Path() != *at.Node().Path() {
		return
	}
	relayed := slices.Contains(a.table.routes, *at.Node().Path())
	const sweeper = "the table %s has no sweeper, and nothing else ends work that no worker has started: " +
		"add NewSweeper, or give GrantSweeper to a sweeper of your own"
	const filler = "nothing fills the queue: name it in RelayProps.Queues of the table's relay, under the destination " +
		"that the code publishes to, or give GrantSend to the function that accepts, if it sends without the outbox"
	switch path := *a.table.Node().Path(); {
	case a.table.swept:
	case a.table.imported:
		warn(at, "elsewhere", sweeper+", unless another stack has one", path)
	default:
		refuse(at, sweeper, path)
	}
	switch {
	case relayed && sentLate >= a.queue.waits:
		warn(at, "expires-early",
			"work waits for %v at most, and a message that the stream has missed is sent after up "+
				"to %v: the work would expire before; set StartWithin above that, in the code and here", a.queue.waits, sentLate)
	case relayed || a.queue.fed:
	case a.table.imported:
		warn(at, "elsewhere", filler+"; unless another stack has the relay")
	default:
		refuse(at, filler)
	}
}
