// Package sim is a world for a request: processes over one store, another system where effects take place,
// and time that runs as fast as nothing waits. A plan says what becomes of each call. The same plan gives the
// same story. It runs in a bubble of testing/synctest.
package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
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
)

// Fates are all but Pass.
var Fates = []Fate{Refused, RequestLost, ReplyLost, KilledFirst, KilledAfter, Frozen}

// Point is a call: the n-th of its kind in the world, from 1.
type Point struct {
	Call string // a method of the store, or "bank: charge"
	N    int
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

// World is one run of a story.
type World struct {
	Store *memstore.Store
	// Broken, if set, returns the store that the processes get in its place: to see what is found.
	Broken func(*memstore.Store) protocol.Store

	plan Plan

	mu        sync.Mutex
	made      map[string]int
	points    []Point
	first     int // how many of them are of the first two deliveries; the later ones repeat the second
	story     []string
	late      map[Point]bool // made when all outcomes were recorded: replays
	fired     int            // fates of the plan that have come
	processes []*process
	systems   map[string]bool // whether they are optional, by name
	effects   map[string]*effect
	answers   []Answer
	mistake   error // of the story
}

// New returns a world without processes.
func New(plan Plan) *World {
	return &World{Store: memstore.New(), plan: plan, made: map[string]int{}, late: map[Point]bool{},
		systems: map[string]bool{}, effects: map[string]*effect{}}
}

// Story is what has happened, a line each.
func (w *World) Story() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.story)
}

func (w *World) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// enter counts a call and says what becomes of it.
func (w *World) enter(call string) (Point, Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[call]++
	at := Point{call, w.made[call]}
	w.points = append(w.points, at)
	if w.plan[at] != Pass {
		w.fired++
	}
	w.late[at] = w.records().ended() && len(w.answers) > 0
	return at, w.plan[at]
}

// Answer is what a caller got.
type Answer struct {
	// Delivery is the number of the delivery, from 1.
	Delivery int
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

// lapse is longer than a lease.
const lapse = 20 * time.Minute

// Play delivers a request as clients and queues do: again at once, again when the lease is over, and again
// until what was frozen has gone on, the plan's fates have come or do not come any more, and the answer stays.
func (w *World) Play(request func(context.Context, *idem.Engine) (any, error)) {
	var p *process
	var frozen []chan Answer
	var answers []Answer // of deliveries to which nothing has happened, since the lease is over
	deliveries := 0
	deliver := func() {
		if p == nil || p.isDead() || p.wasFrozen() {
			p = w.start()
		}
		deliveries++
		n, p := deliveries, p
		_, fired := w.so()
		w.tell("process %d: delivery %d", p.n, n)
		done := make(chan Answer, 1)
		go func() {
			a := Answer{Err: errKilled} // unless the request returns: a dead process ends its goroutine
			defer func() {
				a.Delivery = n
				done <- a
			}()
			a = p.deliver(request)
		}()
		select {
		case a := <-done:
			w.note(a)
			if _, now := w.so(); now > fired {
				answers = nil
			} else {
				answers = append(answers, a)
			}
		case <-p.frozen:
			frozen = append(frozen, done)
		}
	}
	wait := func() {
		w.tell("%v later", lapse)
		time.Sleep(lapse)
	}
	goOn := func() {
		for _, q := range w.processes {
			if q.wasFrozen() && !isClosed(q.thawed) {
				w.tell("process %d goes on", q.n)
				close(q.thawed)
			}
		}
		for _, done := range frozen {
			w.note(<-done)
			answers = nil
		}
		frozen = nil
	}
	deliver()
	deliver()
	w.first, _ = w.so()
	answers = nil
	wait()
	deliver()
	goOn()
	for n := 0; n <= len(w.plan) && !w.settled(answers); n++ {
		wait()
		deliver()
		goOn()
	}
	for _, q := range w.processes {
		q.kill()
		_ = q.engine.Flush(context.Background()) // a dead process leaves no goroutine behind
	}
}

func (p *process) deliver(request func(context.Context, *idem.Engine) (any, error)) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a = Answer{Err: fmt.Errorf("panic: %v", r)}
		}
		if p.isDead() {
			a = Answer{Err: errKilled}
		}
	}()
	v, err := request(p.ctx, p.engine)
	if err != nil {
		return Answer{Err: err}
	}
	text, err := json.Marshal(v)
	return Answer{Value: string(text), Err: err}
}

// so is how many calls were made so far, and how many fates have come.
func (w *World) so() (calls, fired int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.points), w.fired
}

// settled reports whether all fates have come, and the last two answers are the same.
func (w *World) settled(answers []Answer) bool {
	_, fired := w.so()
	n := len(answers)
	return fired == len(w.plan) && n > 1 && answers[n-1].String() == answers[n-2].String()
}

func (w *World) note(a Answer) {
	w.mu.Lock()
	w.answers = append(w.answers, a)
	w.mu.Unlock()
	w.tell("the caller of delivery %d gets: %s", a.Delivery, a)
}
