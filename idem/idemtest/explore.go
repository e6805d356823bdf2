package idemtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Errors of a [Provider], which a fake of another system turns into those of the real one.
var (
	// ErrRejected: the effect did not take place, and never will.
	ErrRejected = sim.ErrRejected
	// ErrNotSent: the other system has not got the request, and never will, as where it refuses the connection.
	// It is the one that a handler may return as [idem.NotExecuted].
	ErrNotSent = sim.ErrNotSent
	// ErrNoReply: whether the effect took place is unknown.
	ErrNoReply = sim.ErrNoReply
)

// World is one run of a scenario: processes over a store in memory, and the other systems.
type World struct {
	sim       *sim.World
	delivered int
}

// Provider returns another system: a bank, a mail server. Without a fault it has at least one effect.
func (w *World) Provider(name string) *Provider {
	w.sim.System(name, false)
	return &Provider{w.sim, name}
}

// Optional returns another system whose effects may be missing, and may stand where the operation has failed: a log
// of declined cards. That they take place more than once is found.
func (w *World) Optional(name string) *Provider {
	w.sim.System(name, true)
	return &Provider{w.sim, name}
}

// Conditions says which conditions of a transaction hold, as [memstore.Store.Conditions] does.
func (w *World) Conditions(decide func(action any) (holds bool, old any)) {
	w.sim.Store.Conditions(decide)
}

// Worker has the messages delivered that transactions publish for a destination, in processes of their own: each one
// twice in a row, and again until a delivery has returned no error. The function gets a message's body, and makes the
// handler's call as that of [World.Deliver] does: the body is a record's id where [later.Accept] has published it.
//
// [later.Accept]: https://pkg.go.dev/github.com/idem-go/idempotency/idem/later#Accept
func (w *World) Worker(destination string, work func(ctx context.Context, e *idem.Engine, body []byte) error) {
	w.sim.Worker(destination, work)
}

// StreamWorker has the worker come for what [later.Accept] accepts for the operation without a message, as the table's
// stream brings it: for each change that leaves the work waiting, as often as [World.Worker] for a message. The
// function gets the record's id, and calls [later.Work] with it.
//
// [later.Accept]: https://pkg.go.dev/github.com/idem-go/idempotency/idem/later#Accept
// [later.Work]: https://pkg.go.dev/github.com/idem-go/idempotency/idem/later#Work
func (w *World) StreamWorker(op idem.Operation, work func(ctx context.Context, e *idem.Engine, id string) error) {
	w.sim.StreamWorker(op.Name, work)
}

// Sweep has a sweep come each time that leases are over, which knows these operations. Their probes ask with
// [Provider.Ask].
func (w *World) Sweep(operations ...reconcile.Operation) { w.sim.Sweep(operations) }

// Deliver delivers a request as clients and queues do: again immediately, again when the lease of a claim is over,
// and again when a frozen process has continued. The function makes the handler's call with the context and the
// engine of a process, as its main function does: it calls [idem.Do], or makes a wrapped handler and calls that.
// It returns an error unless the caller got a result: a response with a status that is no success is an error, one that
// says that the work is accepted, a recorded failure, and a message that is to be delivered again. A message that is
// acknowledged is none. Deliver is called once, at the end of the scenario.
func (w *World) Deliver(request func(context.Context, *idem.Engine) (any, error)) {
	if w.delivered++; w.delivered == 1 {
		w.sim.Play(request)
	}
}

// Provider is another system, in which effects take place. A fake of the client that the handler uses calls it,
// and holds no lock meanwhile: the process may be frozen there. Where the process is killed, the call does not
// return, and ends its goroutine.
type Provider struct {
	sim  *sim.World
	name string
}

// Do has an effect take place, such as "charge". The token is the idempotency token that the handler has sent: a
// call with a token that was sent for this effect before has no effect, and gets the answer of the first one, a
// rejection too. Empty means that the handler has sent none. The context is the one that the handler got. The
// error is [ErrRejected], [ErrNotSent], [ErrNoReply] or nil.
func (p *Provider) Do(ctx context.Context, effect, token string) error {
	return p.sim.Effect(ctx, p.name, effect, token, false)
}

// Undo takes an effect back, as a compensation does: a refund is an Undo of the charge. The token is that of the
// compensation, and is remembered as those of Do are. The errors are those of Do.
func (p *Provider) Undo(ctx context.Context, effect, token string) error {
	return p.sim.Effect(ctx, p.name, effect, token, true)
}

// Ask asks whether an effect took place that was sent with the token, as a probe does. One that was rejected is
// [ErrRejected]; [ErrNotSent] and [ErrNoReply] are as for Do. That none is found is no proof that none will come: a
// request may be on its way.
func (p *Provider) Ask(ctx context.Context, effect, token string) (found bool, err error) {
	return p.sim.Ask(ctx, p.name, effect, token)
}

// Explore runs a scenario again and again. In each run it has one call go wrong, or two, to the store or to another
// system: the call is refused, is not sent, its request or its reply is lost, it arrives after another process has
// taken over, the function's time is over before its reply, or the process is killed before or after it, or is frozen
// until another process has taken over. Then the request is delivered again. Explore fails the test where
//
//   - an effect took place more than once, or was undone more than once,
//   - a caller got a result, and a later one another result or none,
//   - a caller got a result, and an effect is missing that the run without faults has,
//   - the operation failed, and an effect stands,
//   - no outcome is recorded in the end,
//
// and prints the shortest run of each, of those with the fewest faults. Its lines with >> are what goes wrong, and
// calls are counted over all processes. An unknown outcome, which waits for a probe or a person, is none of these.
// Each run has a bubble of testing/synctest to itself. The same scenario gives the same runs, if its handler starts
// no goroutines and takes no random decisions. All pairs of faults are taken if there are no more than 5,000.
//
// The scenario makes fakes of the other systems, which call a [Provider], and then calls [World.Deliver]. It keeps
// nothing from one run to the next, succeeds where nothing goes wrong, and does not call t.Fatal or require in the
// handler. What is logged with the default logger of log/slog meanwhile is dropped.
func Explore(t *testing.T, scenario func(*World)) *Report {
	t.Helper()
	r, err := explore(t, most, scenario)
	if err != nil {
		t.Fatalf("idemtest: Explore: %v", err)
	}
	for _, found := range slices.Sorted(maps.Keys(r.Found)) {
		t.Errorf("%s:\n  %s", found, strings.Join(r.Found[found], "\n  "))
	}
	return &Report{r}
}

func explore(t *testing.T, most int, scenario func(*World)) (*sim.Report, error) {
	t.Helper()
	quiet()
	defer loud()
	return sim.Explore(most, func(plan sim.Plan) (_ *sim.World, err error) {
		w := &World{sim: sim.New(plan)}
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v: does the handler leave a goroutine behind, or end one with require?\n  %s", r,
					strings.Join(w.sim.Lines(), "\n  "))
			}
		}()
		hangs := time.AfterFunc(patience, func() {
			panic("idemtest: Explore: a run has not ended after " + patience.String() + ". Does a fake hold a lock " +
				"while it calls a Provider, or a handler wait for what never comes?\n  " + strings.Join(w.sim.Lines(), "\n  "))
		})
		defer hangs.Stop()
		synctest.Test(t, func(*testing.T) { scenario(w) })
		if w.delivered != 1 {
			return nil, fmt.Errorf("the scenario calls World.Deliver %d times: call it once", w.delivered)
		}
		return w.sim, nil
	})
}

// most bounds the runs.
const most = 5000

// patience is for a run that takes a millisecond.
const patience = time.Minute

// explorers counts the explorations that run, during which nothing is logged.
var explorers struct {
	sync.Mutex
	n    int
	logs *slog.Logger
}

func quiet() {
	explorers.Lock()
	defer explorers.Unlock()
	if explorers.n++; explorers.n == 1 {
		explorers.logs = slog.Default()
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
}

func loud() {
	explorers.Lock()
	defer explorers.Unlock()
	if explorers.n--; explorers.n == 0 {
		slog.SetDefault(explorers.logs)
	}
}
