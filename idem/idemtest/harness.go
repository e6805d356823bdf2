package idemtest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Harness is an engine over an in-memory store, with a clock that the test
// moves, faults that it injects, and a process that it can kill. Crash and
// CrashAfter may be called from anywhere, a handler included; Restart only while
// nothing is delivered.
type Harness struct {
	// Engine of the process that runs. Restart replaces it: what was built on the
	// old one, such as a wrapped handler, is built again, as in a new process.
	Engine *idem.Engine
	// Store holds the records; it outlives the processes.
	Store *memstore.Store
	// Faults stands between every engine and the store.
	Faults *Faults
	// Clock of all engines.
	Clock *Clock

	tb   testing.TB
	opts idem.Options

	mu   sync.Mutex
	proc *process
}

// New returns a harness with its first process running. Options are the
// engine's, nil for the defaults, but that the zero ClaimBudget means a minute, since no test
// depends on how busy the machine is; each call asks the store, whatever the faults before it. Now
// must be left to the harness, and without an Observer nothing is logged ([idem.LogTo] logs). The
// test's end ends the process. A nil tb is for runnable examples, which have none: a mistake then
// panics.
func New(tb testing.TB, o *idem.Options) *Harness {
	h := &Harness{Store: memstore.New(), Clock: new(Clock), tb: tb}
	h.Faults = NewFaults(h.Store)
	if o != nil {
		h.opts = *o
	}
	if h.opts.Now != nil {
		h.fail("Options.Now is set: the harness has a clock of its own, move that")
	}
	h.opts.Now = h.Clock.Now
	h.opts.ClaimBudget = cmp.Or(h.opts.ClaimBudget, time.Minute)
	h.start()
	if tb != nil {
		tb.Cleanup(h.end)
	}
	return h
}

func (h *Harness) fail(format string, args ...any) {
	if h.tb == nil {
		panic("idemtest: " + fmt.Sprintf(format, args...))
	}
	h.tb.Helper()
	h.tb.Fatalf("idemtest: "+format, args...)
}

func (h *Harness) start() {
	p := new(process)
	p.intercepted = sim.Intercept(h.Faults, p.intercept)
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	opts := h.opts
	opts.Observer = p.observed(opts.Observer)
	engine, err := idem.New(p, &opts)
	if err != nil {
		h.fail("%v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proc, h.Engine = p, engine
}

func (h *Harness) process() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proc
}

// Crash kills the process now: from here on none of its store calls reaches the
// store, its engine tells its observer nothing, its contexts are cancelled, and its
// deliveries get [ErrCrashed], whatever they would have returned. A handler that calls it
// keeps running until it returns, and its result is lost; what a wrapper logs of that has
// ErrCrashed as its error.
func (h *Harness) Crash() { h.process().crash() }

// CrashAfter kills the process at its n-th store call from now, counted from 1;
// landed says whether that call is still applied. The process never sees its
// reply. Zero takes an earlier CrashAfter back.
func (h *Harness) CrashAfter(n int, landed bool) {
	if n < 0 {
		h.fail("CrashAfter: %d calls: count from 1", n)
	}
	p := h.process()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.landed = n, landed
}

// end kills the process and what its engine still had in mind: a dead process
// leaves no goroutine behind.
func (h *Harness) end() {
	h.process().crash()
	_ = h.Engine.Flush(context.Background()) // every write fails by the crash, and is dropped
}

// Restart ends the process, if it still runs, and starts the next one over the
// same records, with an engine that remembers nothing. It returns that engine.
func (h *Harness) Restart() *idem.Engine {
	h.end()
	h.start()
	return h.Engine
}

// Published returns the messages that units of work have committed, such as those of
// dynamostore.Tx.Publish, in the order of the commits and of the calls. What an attempt
// published that ended with an error is not among them. [memstore.Store.Units] has the
// rest of what was committed.
func (h *Harness) Published() []outbox.Message {
	var all []outbox.Message
	for _, u := range h.Store.Units() {
		if p, ok := u.(interface{ Messages() []outbox.Message }); ok {
			all = append(all, p.Messages()...)
		}
	}
	return all
}

// Record returns the key's record as it is stored, nil if there is none.
func (h *Harness) Record(key idem.Key) *protocol.Record {
	if err := key.Err(); err != nil {
		h.fail("%v", err)
	}
	rec, err := h.Store.Get(context.Background(), key.ID())
	if err != nil {
		h.fail("%v", err)
	}
	return rec
}

// Clock is the time of a harness: it runs with [time.Now], inside a
// testing/synctest bubble too, and can be moved ahead of it. It is safe for
// concurrent use. The zero value shows time.Now.
type Clock struct{ ahead atomic.Int64 }

// Now returns the clock's time, to be used as [idem.Options.Now].
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance moves the clock by d. Leases lapse and outcomes expire by this clock;
// deadlines of contexts and the engine's own waiting do not.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }
