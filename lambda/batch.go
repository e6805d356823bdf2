package idemlambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// batch is the state of one event while its records run.
type batch[R any] struct {
	*source[R]
	time   allowance
	mu     sync.Mutex
	firsts map[identity]*first[R]
	// last is the latest record of each key.
	last map[string]*first[R]
}

// identity is what duplicates in an event have in common.
type identity struct {
	key         string
	fingerprint idem.Fingerprint
}

// first is the first record of its identity, for which the others wait. Its outcome is
// set when the channel is closed.
type first[R any] struct {
	done chan struct{}
	out  Delivery[R]
}

// share returns the first record of the identity, and whether it is new. If it is new,
// share also returns the record before it that has the same key and another body.
func (b *batch[R]) share(id identity) (f, before *first[R], isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f = b.firsts[id]; f != nil {
		return f, nil, false
	}
	f, before = &first[R]{done: make(chan struct{})}, b.last[id.key]
	b.firsts[id], b.last[id.key] = f, f
	return f, before, true
}

// turn keeps the event's order among records that start together: if two have the
// same key, the first one in the event gets it. A record waits for the one before it, and
// lets the next one start when its own place is known.
type turn struct {
	before <-chan struct{}
	mine   chan struct{}
	once   sync.Once
}

// wait returns when it is the record's turn.
func (t *turn) wait() {
	if t != nil {
		<-t.before
	}
}

// pass lets the next one go, once all before it have.
func (t *turn) pass() {
	if t != nil {
		t.once.Do(func() {
			<-t.before
			close(t.mine)
		})
	}
}

// deliver runs the records until each has its outcome, in the order of the event.
func (s *source[R]) deliver(ctx context.Context, records []R) []delivery[R] {
	invocation := ctx
	ctx, cancel := untilGuard(ctx)
	defer cancel()
	b := &batch[R]{source: s, firsts: map[identity]*first[R]{}, last: map[string]*first[R]{}}
	ds := make([]delivery[R], len(records))
	for i := range records {
		r := &records[i]
		ds[i] = delivery[R]{ctx: context.WithValue(ctx, recordKey[R]{}, r), name: s.name(r), at: i,
			out: Delivery[R]{Event: r}}
	}
	lanes := s.lanes(ds)
	sizes := make([]int, len(lanes))
	for i, lane := range lanes {
		sizes[i] = len(lane)
	}
	b.time.start(ctx, s.op, sizes, s.opts.Concurrency)
	slots := make(chan struct{}, s.opts.Concurrency)
	var wg sync.WaitGroup
	before := make(chan struct{})
	close(before)
	for range min(len(lanes), cap(slots)) { // they do not wait
		b.time.begin()
	}
	for i, lane := range lanes {
		slots <- struct{}{}
		if i >= cap(slots) {
			b.time.begin()
		}
		lane[0].turn = &turn{before: before, mine: make(chan struct{})}
		before = lane[0].turn.mine
		wg.Go(func() {
			defer func() { <-slots }()
			b.workLane(lane)
		})
	}
	wg.Wait()
	b.forwardLast(ds)
	s.tellRedelivery(invocation, ds)
	return ds
}

// lanes are the records that run one after the other.
func (s *source[R]) lanes(ds []delivery[R]) [][]*delivery[R] {
	all := make([][]*delivery[R], 0, len(ds))
	named := map[string]int{}
	for i := range ds {
		d := &ds[i]
		name, ordered := "", false
		if s.lane != nil {
			name, ordered = s.lane(d.out.Event)
		}
		if !ordered {
			all = append(all, []*delivery[R]{d})
			continue
		}
		at, ok := named[name]
		if !ok {
			at = len(all)
			named[name], all = at, append(all, nil)
		}
		all[at] = append(all[at], d)
	}
	return all
}

// untilGuard ends the event's context at its guard. The engine computes a guard from the
// time that each call has left, so it gets shorter as the invocation's time runs out. The
// event must be answered as a whole, so its guard is fixed when the event begins.
func untilGuard(ctx context.Context) (context.Context, context.CancelFunc) {
	kill, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	guard := guardOf(time.Until(kill))
	return context.WithDeadlineCause(idem.WithKillTime(ctx, kill), kill.Add(-guard), idem.ErrOutOfTime)
}

// guardOf is how long before its kill time an invocation of this length ends its
// handlers.
func guardOf(whole time.Duration) time.Duration { return min(idem.DefaultGuard, max(whole, 0)/4) }

// workLane handles records one after the other, each on a goroutine of its own, so that
// runtime.Goexit ends only that record's handler. After the first record that is
// redelivered, the rest of the lane is redelivered too.
func (b *batch[R]) workLane(lane []*delivery[R]) {
	var stop *delivery[R]
	for _, d := range lane {
		runIsolated(func() {
			defer func() {
				if !b.forwardsLast(d) {
					b.report(d)
				}
			}()
			// The next record starts even if this one panics or has no key.
			defer d.turn.pass()
			if stop == nil {
				b.handle(d)
				return
			}
			d.out.Reason, d.out.Err, d.out.LeaseUntil = ReasonBlocked, errBehind, stop.out.LeaseUntil
		})
		if stop == nil && !d.out.Reason.Acknowledges() {
			stop = d
		}
	}
}

// runIsolated calls f and returns when f or its goroutine has ended.
func runIsolated(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	<-over
}

func (b *batch[R]) handle(d *delivery[R]) {
	if b.op.Shadow {
		b.runShadow(d)
		return
	}
	b.run(d)
	if d.out.Reason == ReasonFailed && b.opts.OnFailed != nil && b.redeliverFrom == nil {
		b.forward(d)
	}
}

// run gives a record its outcome, even if the handler, the key function or the decoder
// panics.
func (b *batch[R]) run(d *delivery[R]) {
	defer d.ended()
	work, err := b.open(d.out.Event)
	if err != nil {
		d.out.Reason, d.out.Err = ReasonBodyUnreadable, err
		return
	}
	if work.id == "" {
		if err := b.identify(d, &work); err != nil {
			d.out.Reason, d.out.Err = ReasonKeyInvalid, err
			return
		}
	}
	d.out.RecordID = work.id
	d.turn.wait()
	f, before, isNew := b.share(identity{work.id, work.fingerprint})
	d.turn.pass()
	if !isNew {
		<-f.done
		d.share(f.out)
		return
	}
	defer func() {
		f.out = d.out
		close(f.done)
	}()
	defer d.ended()
	if before != nil {
		<-before.done
	}
	ctx, end := b.time.within(d.ctx)
	defer end()
	out, err := work.work(ctx)
	b.settle(d, out, err, work.accepted)
}

// identify finds the record's key.
func (b *batch[R]) identify(d *delivery[R], w *job) error {
	parent := ""
	tenant, value, err := b.key(context.WithValue(d.ctx, keyParent{}, &parent), d.out.Event)
	key := b.op.Key(tenant, value)
	if err = cmp.Or(err, key.Err()); err != nil {
		return err
	}
	w.id, w.work = key.ID(), func(ctx context.Context) (idem.Outcome, error) {
		out, err := b.engine.Execute(ctx, idem.Call{Key: key, Fingerprint: w.fingerprint,
			Run: func(ctx context.Context) idem.Answer {
				return idem.Answer{Err: w.run(ctx)}
			}})
		if !out.Executed && errors.Is(err, idem.ErrKeyReused) && parent != "" && b.opts.Select == nil && !b.whole {
			err = fmt.Errorf("%w (the whole body was compared, and the key is of its member %[2]q: if other members differ "+
				"between deliveries of the same, set Options.Select, such as to Only: []string{%[2]q})", err, parent)
		}
		return out, err
	}
	return nil
}

// settle gives the delivery the reason of what became of its work, which may have been accepted for later.
func (b *batch[R]) settle(d *delivery[R], out idem.Outcome, err error, accepted bool) {
	d.out.Err, d.out.State, d.out.Attempt, d.out.Failure = err, out.RecordState, out.Attempt, out.Failure
	other, waits := errors.AsType[*idem.InFlightError](err)
	if out.Executed {
		if d.out.Reason = reasonOfOwn(out); d.out.Reason == ReasonNotYetKnown {
			d.out.LeaseUntil = time.Now().Add(askAgain(&out).Sub(b.engine.Now()))
		}
		if accepted && out.RecordState == idem.InProgress { // a client waits for it, and no other call goes on with it
			d.out.Reason = ReasonUnrecorded
			if waits {
				d.out.LeaseUntil = time.Now().Add(other.LeaseLeft)
			}
		}
		if err == nil && d.out.Reason != ReasonExecuted {
			d.out.Err = errNotCompleted
		}
		return
	}
	d.out.Reason = reasonOfAnswer(err)
	switch d.out.Reason {
	case ReasonUnknown:
		d.out.State = idem.Unknown
	case ReasonAccepted:
		d.out.State = idem.Pending
	case ReasonInFlight:
		d.out.State = idem.InProgress
	}
	if limited, ok := errors.AsType[*idem.LimitExceededError](err); ok {
		d.out.LeaseUntil = time.Now().Add(limited.RetryAfter)
	}
	if paused, ok := errors.AsType[*idem.PausedError](err); ok {
		d.out.LeaseUntil = time.Now().Add(paused.RetryAfter)
	}
	if waits && other.Attempt > 0 {
		d.out.Attempt, d.out.LeaseUntil = other.Attempt, time.Now().Add(other.LeaseLeft)
	}
}

var (
	errNotCompleted = errors.New("idemlambda: the handler returned no error, and its success is not the outcome")
	errGoexit       = errors.New("idemlambda: the function ended its goroutine, with runtime.Goexit")
	errBehind       = errors.New("idemlambda: an earlier one is redelivered, and their order matters")
)
