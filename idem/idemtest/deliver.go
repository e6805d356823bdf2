package idemtest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
)

// Delivery is what became of one delivery of a request.
type Delivery[Out any] struct {
	// Value and Err as the caller got them. Err is [ErrCrashed], and Value zero, if
	// the process died before it could answer.
	Value Out
	Err   error
	// Replayed is set if the caller got the recorded outcome, Ran if this delivery
	// had the claim. Neither is set for an answer such as [idem.ErrInFlight].
	Replayed, Ran bool
}

// Deliver delivers the request n times, one after the other, and returns what
// became of each. The function handles one delivery: it calls [idem.Do], or a
// handler that was wrapped around the engine, with the context it is given. A panic goes through.
func Deliver[Out any](h *Harness, n int, fn func(context.Context, *idem.Engine) (Out, error)) []Delivery[Out] {
	ds := make([]Delivery[Out], n)
	for i := range ds {
		ds[i] = deliver(h, fn)
	}
	return ds
}

// DeliverParallel delivers the request n times at once and returns when all are answered. A panic
// ends the test's process: recover it in the function.
func DeliverParallel[Out any](h *Harness, n int, fn func(context.Context, *idem.Engine) (Out, error)) []Delivery[Out] {
	ds := make([]Delivery[Out], n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range ds {
		wg.Go(func() {
			<-start
			ds[i] = deliver(h, fn)
		})
	}
	close(start)
	wg.Wait()
	return ds
}

func deliver[Out any](h *Harness, fn func(context.Context, *idem.Engine) (Out, error)) Delivery[Out] {
	h.mu.Lock()
	p, e := h.proc, h.Engine
	h.mu.Unlock()
	if p.crashed() {
		return Delivery[Out]{Err: ErrCrashed}
	}
	var s observation
	d := Delivery[Out]{}
	d.Value, d.Err = fn(context.WithValue(p.ctx, observedKey{}, &s), e)
	d.Ran, d.Replayed = s.ran.Load(), s.replayed.Load()
	if p.crashed() {
		d.Value, d.Err, d.Replayed = *new(Out), ErrCrashed, false
	}
	return d
}

// observation is what the observer saw of one delivery.
type observation struct{ ran, replayed atomic.Bool }

type observedKey struct{}

// observed returns the observer with the harness's own before it. A dead process
// reports nothing.
func (p *process) observed(o idem.Observer) idem.Observer {
	return func(ctx context.Context, n notice.Notice) {
		if p.crashed() {
			return
		}
		if s, ok := ctx.Value(observedKey{}).(*observation); ok {
			switch n.Kind {
			case notice.Claimed, notice.TookOver, notice.FailedOpen:
				s.ran.Store(true)
			case notice.Replayed:
				s.replayed.Store(true)
			}
		}
		if o != nil {
			o(ctx, n)
		}
	}
}
