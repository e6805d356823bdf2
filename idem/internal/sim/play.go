package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// lapse is longer than a lease.
	lapse = 20 * time.Minute
	// timeout is a function's, in a run in which it is over.
	timeout = 30 * time.Second
	// sweeps that a story with a sweeper has at least: a probe that fails is made again.
	sweeps = 6
)

// Request is what a caller asks of a process.
type Request func(context.Context, *idem.Engine) (any, error)

// Worker has the messages delivered that transactions publish for a destination: twice at once, and again until the
// worker has returned no error.
func (w *World) Worker(destination string, work func(context.Context, *idem.Engine, []byte) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workers[destination] = work
}

// StreamWorker has the changes delivered that leave accepted work of an operation waiting, each as the id of its
// record, as Worker does.
func (w *World) StreamWorker(operation string, work func(context.Context, *idem.Engine, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streamed[operation] = work
}

// Sweep has a sweep come each time that leases are over.
func (w *World) Sweep(operations []reconcile.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.swept = append(w.swept, operations...)
}

// Play delivers a request as clients and queues do: again at once, again when the lease is over, and again
// until frozen and late calls have gone on, the plan's fates have come or do not come any more, and the answers
// stay the same.
func (w *World) Play(request Request) {
	d := &deliveries{w: w, request: request, known: map[string]*arrival{}}
	d.deliver()
	d.deliver()
	w.first, _ = w.so()
	d.rounds = nil
	least := 0
	if w.swept != nil {
		least = sweeps
	}
	for n := 0; n <= len(w.plan)+1 || n < least && w.records().open > 0; n++ {
		if n > 1 && d.settled() {
			break
		}
		w.tell("%v later", lapse)
		time.Sleep(lapse)
		d.sweep()
		d.deliver()
		d.goOn()
	}
	for _, q := range w.processes {
		q.kill()
		_ = q.engine.Flush(context.Background()) // a dead process leaves no goroutine behind
	}
}

// deliveries are those of a request, of what brings workers, and of sweeps. Each kind has processes of its own.
type deliveries struct {
	w                      *World
	request                Request
	requests, swept        int
	caller, worker, sweeps *process
	arrivals               []*arrival          // in the order in which they were noticed
	known                  map[string]*arrival // by what they are about
	frozen                 []func()            // each waits for one that was frozen
	rounds                 []string            // what came of each round without a fault, since leases are over
}

// arrival brings a worker: it is a message that a transaction has published, or a change of accepted work.
type arrival struct {
	what         string
	work         func(context.Context, *idem.Engine) error
	acknowledged bool   // it does not come again: a third delivery would hide that a worker has not done what it took
	answer       string // empty before the first delivery
}

// run makes a call in a process, or in another one if it is dead or frozen. Ended gets the answer, at once unless
// the process is frozen.
func (d *deliveries) run(
	p **process, what string, fn func(context.Context, *process) (any, error), ended func(Answer),
) {
	if *p == nil || (*p).isDead() || (*p).wasFrozen() {
		*p = d.w.start()
	}
	q := *p
	d.w.tell("process %d: %s", q.n, what)
	done := make(chan Answer, 1)
	go func() {
		a := Answer{Err: errKilled} // unless the call returns: a dead process ends its goroutine
		defer func() { done <- a }()
		a = q.run(fn)
	}()
	select {
	case a := <-done:
		ended(a)
	case <-q.frozen:
		d.frozen = append(d.frozen, func() { ended(<-done) })
	}
}

// deliver delivers the request, and then what brings workers.
func (d *deliveries) deliver() {
	w := d.w
	_, fired := w.so()
	d.requests++
	n := d.requests
	round, answered := "", false
	call := func(ctx context.Context, p *process) (any, error) { return d.request(ctx, p.engine) }
	d.run(&d.caller, fmt.Sprintf("delivery %d", n), call, func(a Answer) {
		a.Delivery = n
		w.note(a)
		round, answered = a.String(), true
	})
	round += d.work()
	if _, now := w.so(); now > fired || !answered {
		d.rounds = nil
	} else {
		d.rounds = append(d.rounds, round)
	}
}

// work delivers what brings workers, and says what came of all.
func (d *deliveries) work() (answers string) {
	d.notice()
	for _, a := range d.arrivals {
		switch {
		case a.answer == "":
			d.bring(a)
			d.bring(a)
		case !a.acknowledged:
			d.bring(a)
		}
		answers += "; " + a.answer
	}
	return answers
}

func (d *deliveries) bring(a *arrival) {
	a.answer = "none yet"
	call := func(ctx context.Context, p *process) (any, error) { return nil, a.work(ctx, p.engine) }
	d.run(&d.worker, a.what, call, func(got Answer) {
		a.acknowledged = a.acknowledged || got.Err == nil
		a.answer = got.String()
		d.w.tell("the delivery of %s ends with: %s", a.what, got)
	})
}

// notice notices the messages that there are, and the accepted work that waits for a worker.
func (d *deliveries) notice() {
	arrives := func(about, kind, of string, work func(context.Context, *idem.Engine) error) {
		if d.known[about] == nil {
			a := &arrival{what: fmt.Sprintf("%s %d %s", kind, len(d.arrivals)+1, of), work: work}
			d.arrivals, d.known[about] = append(d.arrivals, a), a
		}
	}
	for i, u := range d.w.Store.Units() {
		published, ok := u.(interface{ Messages() []outbox.Message })
		if !ok {
			continue
		}
		for j, m := range published.Messages() {
			if work := d.w.workers[m.Destination]; work != nil {
				arrives(fmt.Sprintf("message %d of transaction %d", j, i), "message", "to "+m.Destination,
					func(ctx context.Context, e *idem.Engine) error { return work(ctx, e, m.Body) })
			}
		}
	}
	for _, rec := range d.w.Store.Records() {
		_, operation, _ := protocol.ParseRecordID(rec.ID)
		work := d.w.streamed[operation]
		if work != nil && rec.Ticket != "" && (rec.State == protocol.Pending || rec.State == protocol.Released) {
			arrives("write "+rec.Write+" of "+rec.ID, "change", "to "+string(rec.State),
				func(ctx context.Context, e *idem.Engine) error { return work(ctx, e, rec.ID) })
		}
	}
}

func (d *deliveries) sweep() {
	if d.w.swept == nil {
		return
	}
	d.swept++
	d.run(&d.sweeps, fmt.Sprintf("sweep %d", d.swept), func(ctx context.Context, p *process) (any, error) {
		r, err := reconcile.New(p.store, nil)
		if err != nil {
			return nil, err
		}
		s, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
			Operations: d.w.swept, Concurrency: 1, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		return s.Sweep(ctx)
	}, func(a Answer) { d.w.tell("the sweep ends with: %s", a) })
}

// goOn has what was frozen go on, and what was late arrive.
func (d *deliveries) goOn() {
	w := d.w
	arrive := w.arriving()
	for _, f := range arrive {
		f()
	}
	for _, q := range w.processes {
		if q.wasFrozen() && !isClosed(q.thawed) {
			w.tell("process %d goes on", q.n)
			close(q.thawed)
		}
	}
	for _, wait := range d.frozen {
		wait()
	}
	if len(arrive) > 0 || len(d.frozen) > 0 {
		d.rounds = nil
	}
	d.frozen = nil
}

// settled reports whether all fates have come, and the last two rounds were the same.
func (d *deliveries) settled() bool {
	_, fired := d.w.so()
	n := len(d.rounds)
	asked := d.w.swept == nil || d.w.records().open == 0
	return asked && fired == len(d.w.plan) && n > 1 && d.rounds[n-1] == d.rounds[n-2]
}

// run makes a call in the process.
func (p *process) run(fn func(context.Context, *process) (any, error)) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a = Answer{Err: fmt.Errorf("panic: %v", r)}
		}
		if p.isDead() {
			a = Answer{Err: errKilled}
		}
	}()
	ctx := p.ctx
	if p.w.limited {
		end := time.Now().Add(timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(idem.WithKillTime(ctx, end), end)
		defer cancel()
		defer time.AfterFunc(timeout+time.Millisecond, p.kill).Stop() // what ends by its context may return
	}
	v, err := fn(ctx, p)
	if err != nil {
		return Answer{Err: err}
	}
	text, err := json.Marshal(v)
	return Answer{Value: string(text), Err: err}
}
