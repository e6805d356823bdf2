package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
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
	// sweeps that a scenario with a sweeper has at least: a probe that fails is made again.
	sweeps = 6
)

// Request is what a caller asks of a process.
type Request func(context.Context, *idem.Engine) (any, error)

// Worker has the messages delivered that transactions publish for a destination: twice in a row, and again until the
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

// Play delivers a request as clients and queues do: again immediately, again when the lease is over, and again
// until frozen and late calls have continued, the plan's fates have come or do not come any more, and the answers
// stay the same.
func (w *World) Play(request Request) {
	d := &deliveries{w: w, request: request, known: map[string]*arrival{}}
	if w.chance.crowd {
		d.crowd()
	} else {
		before := w.stands()
		d.deliver()
		for name, n := range w.stands() {
			w.once[name] += n - before[name]
		}
		d.deliver()
	}
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
		d.sweep(&d.sweeps)
		d.deliver()
		d.goOn()
	}
	w.stays = d.same()
	for _, q := range w.processes {
		w.history.died = w.history.died || q.isDead() || q.wasFrozen()
		q.kill()
		_ = q.engine.Flush(context.Background()) // a dead process leaves no goroutine behind
	}
}

// deliveries are those of a request, of what brings workers, and of sweeps. Each kind has processes of its own.
type deliveries struct {
	w                      *World
	request                Request
	requests, swept, runs  int
	caller, worker, sweeps *process
	mu                     sync.Mutex          // of what callers share that come at the same time
	arrivals               []*arrival          // in the order in which they were noticed
	known                  map[string]*arrival // by what they are about
	frozen                 []func()            // each waits for one that was frozen
	// What came of each round to which nothing has happened, since leases are over.
	rounds []string
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
	d.mu.Lock()
	if *p == nil || (*p).isDead() || (*p).wasFrozen() {
		*p = d.w.start()
	}
	q := *p
	d.runs++
	n := d.runs
	d.mu.Unlock()
	d.w.tell("process %d: %s", q.n, what)
	done := make(chan Answer, 1)
	go func() {
		a := Answer{Err: errKilled} // unless the call returns: a dead process ends its goroutine
		defer func() { done <- a }()
		a = q.run(fn, n)
	}()
	select {
	case a := <-done:
		ended(a)
	case <-q.frozen:
		d.mu.Lock()
		d.frozen = append(d.frozen, func() { ended(<-done) })
		d.mu.Unlock()
	}
}

// deliver delivers the request, and then what brings workers.
func (d *deliveries) deliver() {
	_, fired := d.w.so()
	round, answered, before := "", false, d.w.Store.Records()
	d.deliverRequest(&d.caller, func(a Answer) { round, answered = a.String(), true })
	d.w.compareKeys(d.requests, before)
	round += "; " + d.work()
	if _, now := d.w.so(); now > fired || !answered {
		d.rounds = nil
	} else {
		d.rounds = append(d.rounds, round)
	}
}

func (d *deliveries) deliverRequest(p **process, ended func(Answer)) {
	d.mu.Lock()
	d.requests++
	n, from := d.requests, time.Now()
	d.mu.Unlock()
	call := func(ctx context.Context, p *process) (any, error) { return d.request(ctx, p.engine) }
	d.run(p, fmt.Sprintf("delivery %d", n), call, func(a Answer) {
		a.Delivery, a.From = n, from
		d.w.note(a)
		ended(a)
	})
}

// work delivers what brings workers, and says what came of all: what came of several of them once, since each attempt
// may leave another change.
func (d *deliveries) work() string {
	var answers []string
	for _, a := range d.notice() {
		before, acknowledged := d.soFar(a)
		if before == "" {
			d.bring(a)
		}
		if before == "" || !acknowledged {
			d.bring(a)
		}
		if now, _ := d.soFar(a); !slices.Contains(answers, now) {
			answers = append(answers, now)
		}
	}
	return strings.Join(answers, "; ")
}

// soFar is what the last delivery came to, and whether one was acknowledged.
func (d *deliveries) soFar(a *arrival) (answer string, acknowledged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.answer, a.acknowledged
}

func (d *deliveries) bring(a *arrival) {
	d.mu.Lock()
	a.answer = "none yet"
	d.mu.Unlock()
	call := func(ctx context.Context, p *process) (any, error) { return nil, a.work(ctx, p.engine) }
	d.run(&d.worker, a.what, call, func(got Answer) {
		d.mu.Lock()
		a.acknowledged = a.acknowledged || got.Err == nil
		a.answer = got.String()
		d.mu.Unlock()
		d.w.tell("the delivery of %s ends with: %s", a.what, got)
	})
}

// notice returns the messages that there are, and the changes that have left accepted work waiting.
func (d *deliveries) notice() []*arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	return slices.Clone(d.arrivals)
}

func (d *deliveries) sweep(p **process) {
	if d.w.swept == nil {
		return
	}
	d.mu.Lock()
	d.swept++
	n := d.swept
	d.mu.Unlock()
	d.run(p, fmt.Sprintf("sweep %d", n), func(ctx context.Context, p *process) (any, error) {
		r, err := reconcile.New(punctual{p.store}, &reconcile.Options{Now: p.now})
		if err != nil {
			return nil, err
		}
		o := &reconcile.SweepOptions{Operations: d.w.swept, Concurrency: 1, Log: slog.New(slog.DiscardHandler)}
		if d.w.chance.crowd {
			o.Escalate = d.w.escalate
		}
		s, err := reconcile.NewSweeper(r, o)
		if err != nil {
			return nil, err
		}
		return s.Sweep(ctx)
	}, func(a Answer) { d.w.tell("the sweep ends with: %s", a) })
}

// punctual takes the random part out of a sweep's pauses, which are of 1, 2, 4… minutes without it.
type punctual struct{ Store }

func (s punctual) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	pause := p.Due.Sub(now)
	for whole := time.Minute; !p.Runs && whole <= 32*time.Minute; whole *= 2 {
		if pause > whole/2 && pause <= whole {
			p.Due = now.Add(whole)
		}
	}
	return s.Store.Postpone(ctx, now, p)
}

// goOn has what was frozen go on, and what was late arrive.
func (d *deliveries) goOn() {
	w := d.w
	arrive := w.arriving()
	for _, f := range arrive {
		f()
	}
	w.mu.Lock()
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, q := range processes {
		if q.wasFrozen() && !isClosed(q.thawed) {
			w.tell("process %d goes on", q.n)
			close(q.thawed)
		}
	}
	d.mu.Lock()
	frozen := d.frozen
	if d.frozen = nil; len(arrive) > 0 || len(frozen) > 0 {
		d.rounds = nil
	}
	d.mu.Unlock()
	for _, wait := range frozen {
		wait()
	}
}

// settled reports whether all fates have come, and the last two rounds were the same.
func (d *deliveries) settled() bool {
	_, fired := d.w.so()
	asked := d.w.swept == nil || d.w.records().open == 0
	return asked && fired == len(d.w.plan) && d.same()
}

// same reports whether the last two rounds were the same, since when nothing has happened to them.
func (d *deliveries) same() bool {
	n := len(d.rounds)
	return n > 1 && d.rounds[n-1] == d.rounds[n-2]
}

// run makes a call in the process.
func (p *process) run(fn func(context.Context, *process) (any, error), n int) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a = Answer{Err: fmt.Errorf("panic: %v", r)}
		}
		if p.isDead() {
			a = Answer{Err: errKilled}
		}
	}()
	ctx := p.ctx
	if p.w.chance.crowd {
		// The calls of a process that dies end one after the other: at one moment any of them may be first.
		own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() {
			time.Sleep(time.Duration(n) * time.Microsecond)
			cancel(errKilled)
		})()
		ctx = context.WithValue(own, diceKey{}, newDice(p.w.chance.seed, uint64(n)+1))
	}
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
