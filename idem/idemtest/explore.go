package idemtest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
)

// Errors of a [Provider], which a fake of another system turns into those of the real one.
var (
	// ErrRejected: the effect did not take place, and never will.
	ErrRejected = sim.ErrRejected
	// ErrNoReply: whether the effect took place is unknown.
	ErrNoReply = sim.ErrNoReply
)

// World is one run of a story: processes over a store in memory, and the other systems.
type World struct {
	sim       *sim.World
	delivered int
}

// Provider returns another system: a bank, a mail server.
func (w *World) Provider(name string) *Provider { return &Provider{w.sim, name} }

// Deliver delivers a request as clients and queues do: again at once, again when the lease of a claim is over,
// and again when a frozen process has gone on. The function makes the handler's call with the context and the
// engine of a process, as its main function does: it calls [idem.Do], or makes a wrapped handler and calls that.
// It returns an error where the caller got no outcome, such as a response with a status that is no success, and
// a message that is to be delivered again. Deliver is called once, at the end of the story.
func (w *World) Deliver(request func(context.Context, *idem.Engine) (any, error)) {
	if w.delivered++; w.delivered == 1 {
		w.sim.Play(request)
	}
}

// Provider is another system, in which effects take place. A fake of the client that the handler uses calls it.
type Provider struct {
	sim  *sim.World
	name string
}

// Do has an effect take place, such as "charge". The token is the idempotency token that the handler has sent: an
// effect with a token that was sent before takes place no second time. Empty means that the handler has sent
// none. The context is the one that the handler got. The error is [ErrRejected], [ErrNoReply] or nil, or the
// process has died.
func (p *Provider) Do(ctx context.Context, effect, token string) error {
	return p.sim.Effect(ctx, p.name, effect, token, false)
}

// Undo takes an effect back, as a compensation does.
func (p *Provider) Undo(ctx context.Context, effect, token string) error {
	return p.sim.Effect(ctx, p.name, effect, token, true)
}

// Explore runs a story again and again. In each run it has one call go wrong, or two, to the store or to another
// system: the call is refused, its request or its reply is lost, the process is killed before or after it, or is
// frozen until another process has taken over. Then the request is delivered again. Explore fails the test where
//
//   - an effect took place twice,
//   - a caller got one outcome, and a later one another,
//   - a caller got a success, and an effect is missing that the run without faults has,
//   - the operation failed, and an effect stands,
//   - no caller gets an outcome in the end,
//
// and prints the shortest story of each. An unknown outcome, which waits for a probe or a person, is none of these.
// Each run has a bubble of testing/synctest to itself, and the same story gives the same runs.
//
// The story makes the handler with fakes of the other systems, which call a [Provider], and then calls
// [World.Deliver]. It keeps nothing from one run to the next.
func Explore(t *testing.T, story func(*World)) *Report {
	t.Helper()
	r, err := explore(t, story)
	if err != nil {
		t.Fatalf("idemtest: Explore: %v", err)
	}
	for _, found := range slices.Sorted(maps.Keys(r.Found)) {
		t.Errorf("%s:\n  %s", found, strings.Join(r.Found[found], "\n  "))
	}
	return &Report{r}
}

func explore(t *testing.T, story func(*World)) (*sim.Report, error) {
	t.Helper()
	logs := slog.Default()
	defer slog.SetDefault(logs)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // hundreds of runs log what goes wrong
	return sim.Explore(func(plan sim.Plan) (*sim.World, error) {
		w := &World{sim: sim.New(plan)}
		synctest.Test(t, func(*testing.T) { story(w) })
		if w.delivered != 1 {
			return nil, fmt.Errorf("the story calls World.Deliver %d times: call it once", w.delivered)
		}
		return w.sim, nil
	})
}

// Report is what became of the runs of an exploration.
type Report struct{ sim *sim.Report }

// String is a table of the runs in which one call goes wrong: what goes wrong, the effects that stand in the end, what
// the first caller and the last one get, and the record's state. The same story gives the same table: compare it
// with a file, to see what a change of the handler changes.
func (r *Report) String() string { return r.sim.String() }
