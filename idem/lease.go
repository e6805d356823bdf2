package idem

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// beats is how many renewals fit into a lease: two may fail before it is over.
const beats = 3

// lease is a claim's time while the handler runs: the handler's context, which a
// guard may end, and either the kill time or the heartbeat.
type lease struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	x      *execution
	a      *attempt

	mu      sync.Mutex
	stopped bool
	timer   *time.Timer
	parking bool               // the timer is for parking from the side
	until   time.Time          // what the store is known to hold, by the monotonic clock
	beating context.CancelFunc // of the renewal on its way
}

// startLease starts counting a lease that the store is known to hold until the time, by the
// monotonic clock. The handler's context carries its attempt.
func (x *execution) startLease(ctx context.Context, a *attempt, until time.Time) *lease {
	l := &lease{x: x, a: a, until: until}
	a.running.Store(l)
	ctx = context.WithValue(ctx, attemptKey{}, a)
	if !x.endByProcess.IsZero() {
		// An operation within this one has a shorter context, and the same kill time.
		ctx = WithKillTime(ctx, x.endByProcess)
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	now := x.engine.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !x.endByEngine.IsZero() {
		// The deadline is one that the handler can read; its cause says why.
		var cancel context.CancelFunc
		parent := l.cancel
		l.ctx, cancel = context.WithDeadlineCause(l.ctx, time.Now().Add(x.endByEngine.Sub(now)-x.guard), ErrOutOfTime)
		l.cancel = func(cause error) { parent(cause); cancel() } // in this order: the cause is the first one's
	}
	switch {
	case !a.claimed():
	case !x.kill.IsZero():
		l.arm()
	default:
		// A claim that took its time is renewed at once.
		whole := x.engine.opts.Lease
		l.timer = time.AfterFunc(min(whole/beats, x.leaseLeft(l.until)-whole/(2*beats)), l.beat)
	}
	return l
}

// isOver reports whether others may have taken the claim, if nothing proves the opposite. Where a time-out kills, the
// store holds the lease until then.
func (l *lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.a.claimed() && time.Now().After(l.until) && (l.x.kill.IsZero() || l.x.engine.now().After(l.x.kill))
}

// leaseLeft is how long the holder relies on a lease: it stops early, as far ahead
// as the guard of a kill time.
func (x *execution) leaseLeft(until time.Time) time.Duration { return time.Until(until) - x.reserve() }

func (x *execution) reserve() time.Duration { return min(x.engine.opts.Guard, x.engine.opts.Lease/4) }

// parks reports whether an attempt that is killed leaves an open question. Other
// attempts are left to their lease.
func (x *execution) parks(a *attempt) bool {
	return a.claimed() && (a.rec.Repeat == NotRepeatable || a.journal.mustPark())
}

// arm sets the time at which an attempt that would leave an open question is parked
// from the side, and else the time at which it proves to be still alive.
func (l *lease) arm() {
	left := l.x.kill.Sub(l.x.engine.now())
	if l.parking = l.x.parks(l.a); l.parking {
		l.timer = time.AfterFunc(left-l.x.guard/2, l.parkFromTheSide)
		return
	}
	// A process that is killed is dead by then, and observers still respect the lease.
	l.timer = time.AfterFunc(left+l.x.engine.opts.Margin/8, l.overrun)
}

// overrun is called if the handler still runs after its kill time. Then the kill time was
// wrong: a context with an earlier deadline was taken for the invocation's. From now on the
// lease is renewed, as it is where nothing is killed.
func (l *lease) overrun() {
	l.mu.Lock()
	// The lease in the store is over. It may be raised while no other call has taken the claim.
	l.until = time.Now().Add(l.x.engine.opts.Lease / 2)
	l.mu.Unlock()
	l.beat()
}

// watch resets the timer for an attempt that has just begun an at-most-once step and must
// therefore not be left to its lease.
func (l *lease) rearm() {
	if l.x.kill.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && !l.parking && !l.stopped && l.x.engine.now().Before(l.x.kill) {
		l.timer.Stop()
		l.arm()
	}
}

// stop ends the counting; the handler has returned.
func (l *lease) stop() {
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.beating != nil {
		l.beating()
	}
	l.mu.Unlock()
	l.cancel(context.Canceled)
}

// parkFromTheSide parks the operation of a handler that ignores its context, while the
// process can still write. The handler's own late outcome may still be recorded.
func (l *lease) parkFromTheSide() {
	l.mu.Lock()
	stopped := l.stopped
	if !stopped && !l.x.parks(l.a) {
		l.arm() // the step has ended
		stopped = true
	}
	l.mu.Unlock()
	if stopped {
		return
	}
	x, e := l.x, l.x.engine
	ctx, cancel := x.finishing(l.ctx, 0)
	defer cancel()
	f := &Failure{Message: "the handler ran past its deadline", Type: "timeout"}
	en := x.ending(l.a, ClassUncertain, Answer{}, f)
	if en.State != Unknown {
		// The step has ended since: its handler still runs, and keeps the claim.
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.stopped {
			l.arm()
		}
		return
	}
	err := e.store.Finish(ctx, e.now(), protocol.Finish{ID: l.a.rec.ID, Owner: l.a.rec.Owner, Write: l.a.writeID(),
		Ending: en.Ending, Watched: l.a.watched()})
	if err == nil {
		x.notify(ctx, notice.Parked, notice.Notice{Attempt: l.a.rec.Attempt, State: en.State, Err: ErrOutOfTime})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.timer = time.AfterFunc(x.kill.Sub(e.now())+e.opts.Margin/8, l.overrun)
	}
}

// beat renews the lease and arms the next beat. A lease that cannot be proved is
// given up before others may take it.
func (l *lease) beat() {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return
	}
	x, e := l.x, l.x.engine
	whole := e.opts.Lease
	// The holder stops early even if the store has not answered by then.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(l.ctx),
		earlier(time.Now().Add(whole/(2*beats)), l.until.Add(-x.reserve())))
	defer cancel()
	l.beating = cancel
	l.mu.Unlock()

	sent, now := time.Now(), e.now()
	ext := protocol.Extension{ID: l.a.rec.ID, Owner: l.a.rec.Owner, Write: l.a.writeID(),
		LeaseUntil: protocol.RoundUp(now.Add(whole), time.Millisecond)}
	if !l.a.rec.ExpiresAt.IsZero() && !l.a.journal.any() {
		ext.ExpiresAt = protocol.RoundUp(ext.LeaseUntil.Add(l.a.rec.Retention), time.Second)
	}
	err := e.store.Extend(ctx, now, ext)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.beating = nil
	if l.stopped {
		return
	}
	var conflict *protocol.ConflictError
	next := whole / beats
	switch {
	case err == nil:
		l.until = sent.Add(whole)
	case errors.As(err, &conflict):
		x.notify(l.ctx, notice.LeaseLost, notice.Notice{Attempt: l.a.rec.Attempt, Err: err})
		l.cancel(ErrLeaseLost)
		return
	default:
		next = whole / (4 * beats)
	}
	left := x.leaseLeft(l.until)
	if left <= 0 {
		x.notify(l.ctx, notice.LeaseLost, notice.Notice{Attempt: l.a.rec.Attempt, Err: err})
		l.cancel(ErrLeaseLost)
		return
	}
	l.timer = time.AfterFunc(min(next, left), l.beat)
}
