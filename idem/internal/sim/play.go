package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
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

// Worker has the messages delivered, twice at least, that transactions publish for a destination. One that the
// worker fails is delivered again.
func (w *World) Worker(destination string, work func(context.Context, *idem.Engine, []byte) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workers[destination] = work
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
	d := &deliveries{w: w, request: request, messages: map[message]*progress{}}
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

// deliveries are those of a request, of messages and of sweeps. Each kind has processes of its own.
type deliveries struct {
	w                      *World
	request                Request
	requests, swept        int
	caller, worker, sweeps *process
	messages               map[message]*progress
	frozen                 []func() // each waits for one that was frozen
	rounds                 []string // what came of each round to which nothing has happened, since leases are over
}

// message is one that a transaction has published: the n-th of it.
type message struct{ transaction, n int }

// progress is that of a message.
type progress struct {
	done   int // deliveries that succeeded
	answer string
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

// deliver delivers the request, and then messages.
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
	round += d.deliverMessages()
	if _, now := w.so(); now > fired || !answered {
		d.rounds = nil
	} else {
		d.rounds = append(d.rounds, round)
	}
}

// deliverMessages delivers those that have come to no end, and says what came of all.
func (d *deliveries) deliverMessages() (answers string) {
	for i, u := range d.w.Store.Units() {
		published, ok := u.(interface{ Messages() []outbox.Message })
		if !ok {
			continue
		}
		for j, m := range published.Messages() {
			if work := d.w.workers[m.Destination]; work != nil {
				answers += "; " + d.deliverMessage(message{i, j}, m, work)
			}
		}
	}
	return answers
}

func (d *deliveries) deliverMessage(
	id message, m outbox.Message, work func(context.Context, *idem.Engine, []byte) error,
) string {
	state := d.messages[id]
	if state == nil {
		state = &progress{}
		d.messages[id] = state
	}
	if state.done < 2 {
		call := func(ctx context.Context, p *process) (any, error) { return nil, work(ctx, p.engine, m.Body) }
		d.run(&d.worker, fmt.Sprintf("message %d to %s", len(d.messages), m.Destination), call, func(a Answer) {
			if a.Err == nil {
				state.done++
			}
			state.answer = a.String()
			d.w.tell("the message's delivery ends with: %s", a)
		})
	}
	return state.answer
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
