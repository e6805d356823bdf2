// Package register is the specification of the promise: to its callers the outcome of a key is a register. A history
// of calls in several processes is right if some order of them, each between its beginning and its end, is one that a
// register could have.
package register

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/notice"
)

// The register is empty, unknown, or has a value: the number of the run that made it, or of the resolution.
const (
	Empty   = 0
	unknown = -1
)

// What is an operation, by what its caller got.
type What string

const (
	Ran       What = "ran"       // the handler ran, and its value was recorded
	Replayed  What = "replayed"  // the recorded value
	Parked    What = "parked"    // the outcome is unknown
	Nothing   What = "nothing"   // in flight, accepted, turned away, or no store
	Uncertain What = "uncertain" // the handler ran and failed, and its failure was recorded
	Denied    What = "denied"    // the handler failed, or its commit did: its value is never recorded
	Lost      What = "lost"      // the process died, or the store did not confirm all: anything may have come of it
	Resolved  What = "resolved"  // by an operator
	Probed    What = "probed"    // the provider has answered a sweep or an operator, who may use that or not
)

// Operation is one with its value, if it has one.
type Operation struct {
	What  What
	Value int
	Why   string // the error
}

func (o Operation) String() string { return fmt.Sprint(o.What, " ", o.Value, " ", o.Why) }

// open says that it may have its effect at any later time.
func (o Operation) open() bool { return o.What == Denied || o.What == Lost || o.What == Probed }

// next are the values that the register may have after an operation; none if it cannot have come now.
func next(parks bool, now int, o Operation) []int {
	left := []int{now}
	if parks {
		left = append(left, unknown)
	}
	open := now == Empty || now == unknown
	switch o.What {
	case Nothing:
		return []int{now}
	case Ran: // late, it answers the open question
		if open {
			return []int{o.Value}
		}
	case Replayed:
		if now == o.Value {
			return []int{now}
		}
	case Parked:
		if open && parks {
			return []int{unknown}
		}
	case Uncertain:
		switch {
		case parks && open:
			return []int{unknown}
		case now == Empty:
			return []int{Empty}
		}
	case Resolved: // to a value or, if the provider knows of none, to run again
		if now == unknown {
			return []int{o.Value}
		}
	case Denied:
		if !open {
			return []int{now}
		}
		return append(left, Empty)
	case Lost, Probed:
		switch {
		case !open:
			return []int{now}
		case o.What == Lost && o.Value == Empty: // the handler has not run
			return left
		}
		return append(left, o.Value)
	}
	return nil
}

type unconfirmed struct{}

// Watch returns a context for a call. The bool becomes true if the engine, whose observer is [Observe], keeps a write
// of the call that the store has not confirmed: its outcome, or the withdrawal of its claim.
func Watch(ctx context.Context) (context.Context, *atomic.Bool) {
	var kept atomic.Bool
	return context.WithValue(ctx, unconfirmed{}, &kept), &kept
}

// Observe observes an engine.
func Observe(ctx context.Context, n notice.Notice) {
	kept, ok := ctx.Value(unconfirmed{}).(*atomic.Bool)
	if ok && (n.Kind == notice.OutcomeQueued || n.Kind == notice.OutcomeDropped) {
		kept.Store(true)
	}
}

func model(parks bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{Empty} },
		Step: func(state, input, output interface{}) []interface{} {
			var states []interface{}
			for _, v := range next(parks, state.(int), output.(Operation)) {
				states = append(states, v)
			}
			return states
		},
		Equal:             func(a, b interface{}) bool { return a == b },
		DescribeOperation: func(_, output interface{}) string { return output.(Operation).String() },
		DescribeState:     func(state interface{}) string { return fmt.Sprint(state) },
	}
	return m.ToModel()
}

// History is what callers of many keys got, and when. It is safe for concurrent use.
type History struct {
	mu         sync.Mutex
	begun      time.Time
	clients    int
	operations map[string][]porcupine.Operation
	counts     map[What]int
}

// NewHistory is an empty one, which begins now.
func NewHistory() *History {
	return &History{begun: time.Now(), operations: map[string][]porcupine.Operation{}, counts: map[What]int{}}
}

// Note adds an operation that ends now.
func (h *History) Note(key string, begun time.Time, o Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[o.What]++
	end := int64(time.Since(h.begun))
	if o.open() {
		end = 1 << 62
	}
	h.clients++ // each operation is a client's of its own, since one client's may not overlap
	h.operations[key] = append(h.operations[key], porcupine.Operation{
		ClientId: h.clients, Call: int64(begun.Sub(h.begun)), Output: o, Return: end,
	})
}

// Of are the operations of a key.
func (h *History) Of(key string) (all []Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.operations[key] {
		all = append(all, o.Output.(Operation))
	}
	return all
}

// Counts counts the operations of all keys.
func (h *History) Counts() map[What]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.counts)
}

// Broken is a key whose operations no register could have.
type Broken struct {
	Key        string
	Operations []porcupine.Operation
	model      porcupine.Model
	info       porcupine.LinearizationInfo
}

// Picture writes a page that shows them into a file, which stays: no other run has the same history.
func (b Broken) Picture(tb testing.TB) (file string) {
	tb.Helper()
	f, err := os.CreateTemp("", "broken-"+b.Key+"-*.html")
	require.NoError(tb, err)
	require.NoError(tb, porcupine.Visualize(b.model, b.info, f))
	require.NoError(tb, f.Close())
	return f.Name()
}

// Broken returns those keys. Attempts of a key that parks may leave an open question.
func (h *History) Broken(tb testing.TB, parks func(key string) bool) (all []Broken) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, operations := range h.operations {
		m := model(parks(key))
		result, info := porcupine.CheckOperationsVerbose(m, operations, time.Minute)
		require.NotEqual(tb, porcupine.Unknown, result, "%s: too long a history", key)
		if result == porcupine.Ok {
			continue
		}
		all = append(all, Broken{key, operations, m, info})
	}
	return all
}
