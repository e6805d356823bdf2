package sim

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// latency is how long a call takes at most that is not slow.
	latency = 20 * time.Millisecond
	// slowest is longer than a lease.
	slowest = 40 * time.Second
)

// Meanwhile has something else done while callers come at the same time, each time with the store of a new process.
func (w *World) Meanwhile(do func(context.Context, *reconcile.Reconciler) error) { w.meanwhile = do }

// crowd has callers come at the same time, most of them at once.
func (d *deliveries) crowd() {
	w, ctx := d.w, context.Background()
	var all sync.WaitGroup
	come := func(times int, do func(p int)) {
		for range times {
			when := []struct{ from, within time.Duration }{
				{0, time.Second}, {0, time.Minute}, {0, lapse},
				{idem.DefaultLease - 2*time.Second, 6 * time.Second}, // when leases end
			}[w.Draw(ctx, 4)]
			at, p := when.from+time.Duration(w.Draw(ctx, int(when.within))), w.Draw(ctx, 2)
			all.Go(func() {
				time.Sleep(at)
				do(p)
			})
		}
	}
	var processes, sweepers [2]*process
	come(12, func(p int) { d.deliverRequest(&processes[p], func(Answer) {}) })
	come(4, func(int) { d.work() })
	come(4, func(int) { d.goOn() })
	if w.swept != nil {
		come(6, func(p int) { d.sweep(&sweepers[p]) })
	}
	if w.meanwhile != nil {
		come(6, func(int) { d.operate() })
	}
	all.Wait()
	w.mu.Lock()
	w.chance.left = 0
	w.mu.Unlock()
	w.tell("nothing goes wrong any more")
}

func (d *deliveries) operate() {
	var p *process
	d.run(&p, "an operator", func(ctx context.Context, p *process) (any, error) {
		r, err := reconcile.New(p.store, &reconcile.Options{Now: p.now})
		if err != nil {
			return nil, err
		}
		return nil, d.w.meanwhile(ctx, r)
	}, func(a Answer) { d.w.tell("the operator gets: %s", a) })
}
