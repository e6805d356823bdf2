package idemtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/idem-go/idempotency/idem/internal/sim"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Method is a method of [idem.Store], [protocol.AdminStore] or [protocol.Scanner], or of what keeps pauses, by its
// name.
type Method string

// The methods of a store.
const (
	Acquire         Method = "Acquire"
	Withdraw        Method = "Withdraw"
	Extend          Method = "Extend"
	RecordStep      Method = "RecordStep"
	RecordReference Method = "RecordReference"
	Finish          Method = "Finish"
	Settle          Method = "Settle"
	Get             Method = "Get"
	Result          Method = "Result"
	StepResult      Method = "StepResult"
	Due             Method = "Due"
	Postpone        Method = "Postpone"
	Forget          Method = "Forget"
	Prolong         Method = "Prolong"
	AuditOf         Method = "AuditOf"
	AuditBetween    Method = "AuditBetween"
	Scan            Method = "Scan"
	ReadPaused      Method = "ReadPaused"
	WritePaused     Method = "WritePaused"

	// anyMethod stands for those that have no fault of their own.
	anyMethod Method = ""
)

// Call is one call to a store on its way.
type Call struct {
	// Method that is called, ID of its record.
	Method Method
	ID     string
	do     func(context.Context) error
}

// Do makes the call: at once, later, or several times, as a network may. It
// returns what the store says.
func (c *Call) Do(ctx context.Context) error { return c.do(ctx) }

// Lost returns the error of a call whose reply never came.
func (c *Call) Lost() error {
	return &protocol.StoreError{Op: string(c.Method), Ambiguous: true, Down: true, Err: errors.New("idemtest: no reply")}
}

// Fault decides what becomes of a call: it may make it with [Call.Do], and
// returns the caller's error.
type Fault func(context.Context, *Call) error

// Pass makes the call as if there were no fault: a place in a sequence.
func Pass(ctx context.Context, c *Call) error { return c.Do(ctx) }

// LoseReply makes the call and loses the reply: the caller cannot know.
func LoseReply(ctx context.Context, c *Call) error {
	_ = c.Do(ctx)
	return c.Lost()
}

// LoseRequest loses the request: nothing happens, and the caller cannot know.
func LoseRequest(_ context.Context, c *Call) error { return c.Lost() }

// Refuse fails in a way that proves that nothing was written, as a refused
// connection or a throttled call does.
func Refuse(_ context.Context, c *Call) error {
	return &protocol.StoreError{Op: string(c.Method), Down: true, Err: errors.New("idemtest: refused")}
}

// Deny answers that the call is not allowed, as if a permission were missing or the table did
// not exist: nothing was written, and the store is not down.
func Deny(_ context.Context, c *Call) error {
	return &protocol.StoreError{Op: string(c.Method), Err: errors.New("idemtest: denied")}
}

// BlackHole swallows the request and answers nothing until the context ends.
func BlackHole(ctx context.Context, c *Call) error {
	<-ctx.Done()
	return &protocol.StoreError{Op: string(c.Method), Ambiguous: true, Down: true, Err: context.Cause(ctx)}
}

// BareConflict answers that the condition failed, without the conflicting
// record, and writes nothing.
func BareConflict(context.Context, *Call) error { return &protocol.ConflictError{} }

// Unreadable answers that the record cannot be read, and writes nothing.
func Unreadable(_ context.Context, c *Call) error {
	return fmt.Errorf("%w: idemtest: %s", protocol.ErrRecordUnreadable, c.Method)
}

// Hold keeps the call in *held and loses its reply: the test makes it later, as a
// network that delays a packet would, with [Call.Do].
func Hold(held **Call) Fault {
	return func(_ context.Context, c *Call) error {
		*held = c
		return c.Lost()
	}
}

// intercepted is the store whose calls a fault decides on.
type intercepted sim.Store

// Faults is a store that misbehaves on request, and counts its calls. It
// passes calls on to the store it was made with: calls of [protocol.AdminStore] and
// [protocol.Scanner], and of pauses, over a store without them are refused with [errors.ErrUnsupported]. It
// is safe for concurrent use.
type Faults struct {
	intercepted

	mu     sync.Mutex
	next   map[Method][]Fault
	always map[Method]Fault
	log    []Method
}

// NewFaults returns a store without faults over the given one.
func NewFaults(store protocol.Store) *Faults {
	f := &Faults{next: map[Method][]Fault{}, always: map[Method]Fault{}}
	f.intercepted = sim.Intercept(store, f.intercept)
	return f
}

// Next gives the next calls of the method one fault each, in this order, after
// those that it was already given.
func (f *Faults) Next(m Method, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[m] = append(f.next[m], faults...)
}

// Always gives every call of the methods the fault, until [Faults.Heal]; those
// given with Next come first. Without methods it means all of them.
func (f *Faults) Always(fault Fault, ms ...Method) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(ms) == 0 {
		clear(f.always)
		ms = []Method{anyMethod}
	}
	for _, m := range ms {
		f.always[m] = fault
	}
}

// Heal takes all faults away.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.next)
	clear(f.always)
}

// Calls returns the methods that were called since the last Reset, in order.
func (f *Faults) Calls() []Method {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// Reset forgets the calls counted so far.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = nil
}

func (f *Faults) intercept(ctx context.Context, method, id string, do func(context.Context) error) error {
	c := &Call{Method: Method(method), ID: id, do: do}
	f.mu.Lock()
	f.log = append(f.log, c.Method)
	fault, found := f.always[c.Method]
	if !found {
		fault = f.always[anyMethod]
	}
	if q := f.next[c.Method]; len(q) > 0 {
		fault, f.next[c.Method] = q[0], q[1:]
	}
	f.mu.Unlock()
	if fault == nil {
		return c.Do(ctx)
	}
	return fault(ctx, c)
}
