// Package sim is a world for a request: processes over one store, another system where effects take place,
// and time that runs as fast as nothing waits. A plan says what becomes of each call. The same plan gives the
// same run. It runs in a bubble of testing/synctest.
package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Fate is what becomes of a call.
type Fate string

// The fates of a call.
const (
	Pass        Fate = ""
	Refused     Fate = "is refused"
	RequestLost Fate = "does not arrive"
	ReplyLost   Fate = "gets no reply"
	KilledFirst Fate = "is not made: the process is killed"
	KilledAfter Fate = "is made, and the process is killed"
	Frozen      Fate = "is made after another process has taken over"
	Late        Fate = "gets no reply, and arrives late"
	TimedOut    Fate = "gets no reply before the time-out"
	NotSent     Fate = "is not sent" // and the caller knows it; for a call to the store, Refused means that
)

// Fates are those that any call may have.
var Fates = []Fate{Refused, RequestLost, ReplyLost, KilledFirst, KilledAfter, Frozen, Late, TimedOut}

// Point is a call: the n-th of its kind in the world, from 1.
type Point struct {
	Call string // a method of the store, or "bank: charge"
	N    int
}

// fates are all that the call may have.
func (p Point) fates() []Fate {
	if strings.Contains(p.Call, ":") {
		return slices.Concat([]Fate{NotSent}, Fates)
	}
	return Fates
}

func (p Point) String() string {
	suffix := "th"
	switch {
	case p.N%100/10 == 1:
	case p.N%10 == 1:
		suffix = "st"
	case p.N%10 == 2:
		suffix = "nd"
	case p.N%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprintf("%d%s %s", p.N, suffix, p.Call)
}

// Plan has the fates of calls; all others pass.
type Plan map[Point]Fate

// Kept is a store that shows what it keeps; see the methods of [memstore.Store].
type Kept interface {
	protocol.Store
	Records() []*protocol.Record
	Delete(id string)
	Units() []protocol.Unit
	Conditions(decide func(action any) (holds bool, old any))
}

// World is one run of a scenario.
type World struct {
	// Store has what is recorded. It is a *memstore.Store unless a scenario replaces it before it begins.
	Store Kept
	// Broken, if set, returns the store that a process gets in its place: to see what is found.
	Broken func(Kept) protocol.Store

	// Around, if set, returns a store around the one of a process, such as one with a limit.
	Around func(Store) protocol.Store

	plan    Plan
	chance  chance
	limited bool // functions have a time-out

	mu        sync.Mutex
	made      map[string]int
	points    []Point
	first     int // how many of them are of the first two deliveries; the later ones repeat the second
	lines     []string
	replays   map[Point]bool // made when all outcomes were recorded
	fired     int            // fates of the plan that have come
	waiting   int            // calls that have waited for a frozen process
	processes []*process
	systems   map[string]bool // whether they are optional, by name
	effects   map[string]*effect
	most      map[string]int // how often effects may stand, where the scenario says so
	once      map[string]int // how often each stands when each request has come once
	fates     map[Fate]int   // that have come
	answers   []Answer
	stays     bool   // the last two rounds of deliveries were the same
	rekeyed   string // which delivery has another key than the first one
	history   history
	late      []func()                                                     // requests that arrive late
	workers   map[string]func(context.Context, *idem.Engine, []byte) error // by destination
	streamed  map[string]func(context.Context, *idem.Engine, string) error // by operation
	swept     []reconcile.Operation
	meanwhile func(context.Context, *reconcile.Reconciler) error
	mistake   error // of the scenario
}

// New returns a world without processes.
func New(plan Plan) *World {
	limited := slices.Contains(slices.Collect(maps.Values(plan)), TimedOut)
	return &World{Store: memstore.New(), plan: plan, limited: limited, made: map[string]int{}, replays: map[Point]bool{},
		systems: map[string]bool{}, effects: map[string]*effect{}, most: map[string]int{}, once: map[string]int{},
		fates:    map[Fate]int{},
		history:  history{versions: map[string][]version{}, refused: map[any]bool{}},
		workers:  map[string]func(context.Context, *idem.Engine, []byte) error{},
		streamed: map[string]func(context.Context, *idem.Engine, string) error{}}
}

// Most says how often an effect may stand. Without it that is how often it does where nothing goes wrong and each
// request comes once.
func (w *World) Most(effect string, n int) { w.most[effect] = n }

// Lines are what has happened, a line each.
func (w *World) Lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

func (w *World) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// enter counts a call and says what becomes of it.
func (w *World) enter(ctx context.Context, call string) (Point, Fate) {
	drawn := w.draw(ctx, call)
	if p, ok := ctx.Value(processKey{}).(*process); ok && p.isCut(call) {
		drawn = RequestLost
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[call]++
	at := Point{call, w.made[call]}
	w.points = append(w.points, at)
	if w.chance.lapses && w.chance.left > 0 && call == "Extend" {
		drawn = RequestLost
	}
	if drawn != Pass {
		w.plan[at] = drawn
		w.chance.left--
	}
	if w.plan[at] != Pass {
		w.fired++
		w.fates[w.plan[at]]++
	}
	w.replays[at] = w.records().ended() && len(w.answers) > 0
	return at, w.plan[at]
}

// Answer is what a caller got.
type Answer struct {
	// Delivery is the number of the delivery, from 1, which came at From and was answered at To.
	Delivery int
	From, To time.Time
	// Value is the value as JSON, empty if there is none.
	Value string
	Err   error
}

// Kind says in words what the answer is. An error that is none of the engine's is the handler's.
func (a Answer) Kind() string {
	switch {
	case a.Err == nil:
		return "success"
	case errors.Is(a.Err, errKilled):
		return "none"
	case errors.Is(a.Err, idem.ErrInFlight):
		return "in progress"
	case errors.Is(a.Err, idem.ErrOutcomeUnknown):
		return "outcome unknown"
	case errors.Is(a.Err, idem.ErrStoreUnavailable):
		return "store unavailable"
	}
	return "error"
}

func (a Answer) String() string {
	if a.Err == nil {
		return a.Value
	}
	return a.Kind() + " (" + short(a.Err) + ")"
}

// so is how many calls were made so far, and how many fates have come.
func (w *World) so() (calls, fired int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.points), w.fired
}

func (w *World) note(a Answer) {
	w.mu.Lock()
	a.To = time.Now()
	first := w.got()
	w.answers = append(w.answers, a)
	w.mu.Unlock()
	if first == nil || a.Err != nil || a.Value == first.Value {
		w.tell("the caller of delivery %d gets: %s", a.Delivery, a)
		return
	}
	was, is := apart(first.Value, a.Value)
	w.tell("the caller of delivery %d gets: %s, and not %s as that of delivery %d", a.Delivery, is, was, first.Delivery)
}

// apart are two texts from a little before what differs until a little after its beginning.
func apart(a, b string) (string, string) {
	const little = 40
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	cut := func(text string) string {
		from, to := max(0, same-little), min(len(text), same+little)
		short := strings.ToValidUTF8(text[from:to], "")
		if from > 0 {
			short = "…" + short
		}
		if to < len(text) {
			short += "…"
		}
		return short
	}
	return cut(a), cut(b)
}

// postpone has a request arrive late.
func (w *World) postpone(arrive func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, arrive)
}

// arriving are the late requests, which arrive now.
func (w *World) arriving() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrive := w.late
	w.late = nil
	return arrive
}
