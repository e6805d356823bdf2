package pause

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// Within is how long a process relies on what it has read.
	Within = 5 * time.Second
	// again is when a read that failed is tried again: a store that is down is asked once a second.
	again = time.Second
	// rest is what a call keeps of its time to look at its record, if no read has an answer.
	rest = 100 * time.Millisecond
)

// Store is what keeps the pauses: dynamostore.PausesOf a store, or a *memstore.Store. It is safe for concurrent
// use.
type Store interface {
	// ReadPaused reads consistently what is paused. Errors are a [*protocol.StoreError].
	ReadPaused(ctx context.Context) (protocol.Paused, error)
}

// Pauses says to an engine what is paused: see idem.Options. It is safe for concurrent use. With a nil one no call
// executes.
type Pauses struct {
	store   Store
	reading chan struct{} // a mutex whose wait ends with the context
	known   atomic.Pointer[known]
}

// known is what a process knows. It is never changed.
type known struct {
	at       guard.Instant // before the latest read was sent
	read     bool          // that, or an earlier one, had an answer
	pauses   []protocol.Pause
	err      error         // of the latest read; pauses are of an earlier one then
	patience time.Duration // how long it has waited for that one at most
}

// New returns the pauses that the store keeps. It makes no call. A store that is nil is a
// [*protocol.ConfigError].
func New(store Store) (*Pauses, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &protocol.ConfigError{What: "pause.New", Problem: "the store is nil: use dynamostore.PausesOf"}
	}
	return &Pauses{store: store, reading: make(chan struct{}, 1)}, nil
}

var _ protocol.Pauser = (*Pauses)(nil)

// MayExecute implements [protocol.Pauser]: it returns nil, a [*protocol.PausedError], or a
// [*protocol.StoreError] if it is not known. What was paused when it was read last is paused until
// it can be read again. That the store is Down is said only by a process that has read it before.
func (p *Pauses) MayExecute(ctx context.Context, now time.Time, tenant, operation string) error {
	if p == nil {
		return &protocol.ConfigError{What: "idem.Options.Pauses", Problem: "is a nil pointer: make it with pause.New"}
	}
	k := p.known.Load()
	if !k.isFresh(ctx) {
		k = p.read(ctx)
	}
	var after time.Duration // the last one ends
	for i := range k.pauses {
		if it := &k.pauses[i]; it.Covers(tenant, operation) && !it.Ended(now) {
			after = max(after, it.RetryAfter(now))
		}
	}
	if after > 0 {
		return &protocol.PausedError{RetryAfter: after}
	}
	return k.err
}

// isFresh reports whether the call may rely on it. A read that failed says nothing to a call that can wait for much
// longer.
func (k *known) isFresh(ctx context.Context) bool {
	switch {
	case k == nil:
		return false
	case k.err == nil:
		return guard.RightNow().Since(k.at) < Within
	}
	return guard.RightNow().Since(k.at) < k.lasts() && k.wait(ctx) < 2*k.patience
}

// lasts is how long a read that failed is the answer: also while the next one hangs for as long.
func (k *known) lasts() time.Duration { return max(again, k.patience+again/2) }

// wait is how long the call can wait for a read: half of its time, so that a claim can follow. Without any answer it
// claims nothing.
func (k *known) wait(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	left := time.Until(end)
	switch {
	case !ok:
		return time.Minute
	case k == nil || !k.read:
		return max(left/2, left-rest)
	}
	return left / 2
}

// read asks the store, unless another call does, for which it waits.
func (p *Pauses) read(ctx context.Context) *known {
	select {
	case p.reading <- struct{}{}:
	case <-ctx.Done():
		return p.known.Load().but(known{at: guard.RightNow(), err: context.Cause(ctx)})
	}
	defer func() { <-p.reading }()
	k := p.known.Load()
	if k.isFresh(ctx) {
		return k
	}
	began, patience := guard.RightNow(), k.wait(ctx)
	if k != nil && k.err != nil && began.Since(k.at) < 2*k.lasts() { // others need not wait for the store again
		read := *k
		read.at = began
		p.known.Store(&read)
	}
	part, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := p.store.ReadPaused(part)
	next := &known{at: began, read: true, pauses: got.Pauses}
	if err != nil {
		next = k.but(known{at: began, err: err, patience: patience})
	}
	if err == nil || ctx.Err() == nil { // else its caller has left
		p.known.Store(next)
	}
	return next
}

// but is what is known after a read that has failed.
func (k *known) but(failed known) *known {
	if k != nil {
		failed.read, failed.pauses = k.read, k.pauses
	}
	err := protocol.StoreError{Op: "ReadPaused", Err: failed.err}
	if of, ok := errors.AsType[*protocol.StoreError](failed.err); ok {
		err = *of
	}
	err.Down = err.Down && failed.read
	failed.err = &err
	return &failed
}
