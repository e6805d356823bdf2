package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// reservation is a call on its way to an attempt, or to the answer that its caller gets instead.
type reservation struct {
	*execution
	ctx  context.Context // the caller's
	time claimTime       // bounds the calls to the store; starts again after a wait
	wait *waiter
	// What it has led to.
	attempt *attempt
	outcome Outcome
}

// claim reserves the key as [protocol.Next] says. In atomic mode it only looks.
func (x *execution) claim(ctx context.Context) (*attempt, Outcome, error) {
	r := reservation{execution: x, ctx: ctx, time: x.claiming(ctx)}
	defer func() { r.time.end() }()
	seen, err := r.first()
	if err == nil {
		return r.follow(seen)
	}
	if late := x.call.NoClaim; errors.Is(late, ErrOutOfTime) && !errors.Is(err, ErrRecordUnreadable) {
		// There was no time for the look either.
		x.notify(ctx, notice.OutOfTime, notice.Notice{Err: err})
		return nil, Outcome{}, late
	}
	return nil, Outcome{}, x.unavailable(ctx, err)
}

// first returns the record if it must be seen before the claim; nil for none, which the claim itself finds out.
func (r *reservation) first() (*Record, error) {
	if err := r.engine.checkSecret(r.time.ctx, &r.call.Key, r.call.NoClaim == nil); err != nil {
		return nil, err
	}
	r.call.NoClaim = r.refusal()
	switch {
	case r.call.Accepted != nil:
		return r.call.Accepted, nil
	case r.call.NoClaim != nil, r.later != nil, r.atomic():
		return r.look(r.time.ctx)
	}
	return nil, nil
}

// refusal is why the call may not execute, whatever its record is; nil if it may, and of what has run. An operation
// that fails open may if the store is down for the read of what is paused.
func (r *reservation) refusal() error {
	pauses, key := r.engine.opts.Pauses, &r.call.Key
	if r.call.NoClaim != nil || pauses == nil || r.ran.Load() != 0 {
		return r.call.NoClaim
	}
	err := pauses.MayExecute(r.time.ctx, r.engine.now(), key.tenant, key.op.Name)
	if failed, ok := errors.AsType[*StoreError](err); ok && failed.Down && key.op.OnStoreFailure == FailOpen {
		return nil
	}
	return err
}

// follow carries out what [protocol.Next] decides about the record. If another record is in the way of
// that, it asks again about that one, until the call has an attempt or an answer.
func (r *reservation) follow(seen *Record) (*attempt, Outcome, error) {
	l := protocol.Follow(r.engine.store, r.call.Key.id, seen)
	for l.Next() {
		done, err := r.act(l.Seen)
		if done {
			return r.attempt, r.outcome, err
		}
		if err = l.Again(r.time.ctx, err); err != nil {
			return nil, Outcome{}, r.unavailable(r.ctx, err)
		}
	}
	if l.Seen == nil {
		return nil, Outcome{}, &InFlightError{}
	}
	return nil, Outcome{}, r.answer(r.ctx, l.Seen, protocol.DoInFlight)
}

// act carries out what [protocol.Next] decides about the record. If done is false, the record has
// changed meanwhile; the error carries the new one.
func (r *reservation) act(seen *Record) (done bool, err error) {
	switch do := protocol.Next(seen, r.claimEvent(), r.engine.now()).Do; do {
	case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver:
		return r.reserve(seen, do)
	case protocol.DoPark:
		return r.park(seen)
	case protocol.DoReplay:
		return true, r.replay(seen)
	case protocol.DoInFlight:
		return r.inFlight(seen)
	case protocol.DoAccepted:
		return true, r.accepted(seen)
	case protocol.DoRefuse:
		return true, protocol.ErrNotAccepted // a worker's call
	default:
		return true, r.answer(r.ctx, seen, do)
	}
}

// reserve writes the claim and begins its attempt.
func (r *reservation) reserve(seen *Record, do protocol.Action) (done bool, err error) {
	if err := r.call.NoClaim; err != nil {
		return true, r.turnedAway(r.ctx, err)
	}
	// The holder's clock is read before the record's: a pause between the two must not
	// make the holder rely on the lease for longer than the record says.
	sent := time.Now()
	c := r.newClaim(seen, do)
	if r.atomic() {
		r.attempt = r.beginAtomic(c, seen)
		return true, nil
	}
	err = r.engine.store.Acquire(r.time.ctx, r.engine.now(), c)
	switch {
	case err == nil:
		r.attempt = r.beginClaimed(r.ctx, c, sent)
		return true, nil
	case errors.Is(err, ErrLimitExceeded):
		return true, r.turnedAway(r.ctx, err)
	case protocol.Answers(err):
		return false, err
	}
	return true, r.unanswered(c, err)
}

// unanswered deals with a claim whose reply never came: it is taken back, so that it cannot land later.
func (r *reservation) unanswered(c protocol.Claim, err error) error {
	failed, _ := errors.AsType[*StoreError](err)
	if c.Seen == "" && failed != nil && failed.Down {
		r.down = err // the call may fail open
	}
	if failed == nil || failed.Ambiguous {
		r.withdraw(r.ctx, c, r.time.withdrawBy)
	}
	return r.unavailable(r.ctx, err)
}

// park makes the record of a lapsed attempt unknown.
func (r *reservation) park(seen *Record) (done bool, err error) {
	s := protocol.Lapse(seen, r.claimEvent(), protocol.NewID(), "a later call")
	err = r.engine.store.Settle(r.time.ctx, r.engine.now(), s)
	switch {
	case err == nil:
		r.notify(r.ctx, notice.Parked, notice.Notice{Attempt: seen.Attempt, State: Unknown, Err: errLapsed})
		return true, r.answer(r.ctx, seen, protocol.DoUnknown)
	case protocol.Answers(err):
		return false, err
	}
	return true, r.unavailable(r.ctx, err)
}

// replay answers with the recorded outcome.
func (r *reservation) replay(seen *Record) (err error) {
	// A result within the record is there already. One in parts gets time of its own.
	within, cancel := r.time.ctx, func() {}
	if seen.Body.Parts > 0 {
		within, cancel = r.bounded(r.ctx, seen.Body.Stored)
	}
	defer cancel()
	r.outcome, err = r.engine.Replay(within, seen)
	if errors.Is(err, ErrRecordUnreadable) || errors.Is(err, ErrStoreUnavailable) {
		return r.unavailable(r.ctx, err)
	}
	r.notify(r.ctx, notice.Replayed, notice.Notice{Attempt: seen.Attempt, State: seen.State, Err: err})
	return err
}

// inFlight waits for the attempt that runs, if the call may.
func (r *reservation) inFlight(seen *Record) (done bool, err error) {
	if r.wait == nil {
		r.wait = r.waiting(r.ctx)
	}
	next, over := r.wait.poll(r.ctx, seen)
	if !over {
		return true, r.answer(r.ctx, next, protocol.DoInFlight)
	}
	if !r.timeFor(r.ctx, next) {
		return true, r.turnedAway(r.ctx, ErrOutOfTime)
	}
	// The wait had a budget of its own: the claim gets a fresh one.
	r.time.end()
	r.time = r.claiming(r.ctx)
	r.call.NoClaim = r.refusal()
	return false, &protocol.ConflictError{Existing: next}
}

// accepted answers that the work waits for a worker.
func (r *reservation) accepted(seen *Record) error {
	if r.later == nil {
		return r.answer(r.ctx, seen, protocol.DoAccepted)
	}
	r.outcome = r.waits(r.ctx, seen, true)
	return nil
}

// atomic reports whether the call takes no claim: its commit makes the record.
func (x *execution) atomic() bool { return x.call.Key.op.Mode == Atomic || x.later != nil }

// look reads the record without claiming it, once more if it cannot be read.
func (x *execution) look(ctx context.Context) (*Record, error) {
	rec, err := x.engine.store.Get(ctx, x.call.Key.id)
	if errors.Is(err, ErrRecordUnreadable) {
		return x.engine.store.Get(ctx, x.call.Key.id)
	}
	return rec, err
}

func (x *execution) claimEvent() protocol.Event {
	op := &x.call.Key.op
	ev := protocol.Event{
		Kind: protocol.EventClaim, Fingerprint: x.call.Fingerprint, Repeat: op.Repeat,
		Margin: x.engine.opts.Margin, MaxAttempts: op.MaxAttempts, Atomic: x.atomic(),
	}
	if work := x.call.Accepted; work != nil {
		ev.Kind, ev.Ticket = protocol.EventWork, work.Ticket
	}
	return ev
}

// newClaim makes a claim on the record that was seen; nil stands for none.
func (x *execution) newClaim(seen *Record, do protocol.Action) protocol.Claim {
	now := x.engine.now()
	op := &x.call.Key.op
	rec := Record{
		ID: x.call.Key.id, State: InProgress, Repeat: op.Repeat,
		Fingerprint: x.call.Fingerprint.Recorded(), Codec: x.call.Codec, Owner: protocol.NewID(), Attempt: 1,
		LeaseUntil: x.kill, Retention: op.retention(), CreatedAt: now, UpdatedAt: now,
	}
	if op.Values == KeepValues {
		rec.Value = x.call.Key.value
	}
	if x.kill.IsZero() {
		rec.LeaseUntil = now.Add(x.engine.opts.Lease)
	}
	rec.LeaseUntil = protocol.RoundUp(rec.LeaseUntil, time.Millisecond)
	rec.Write = rec.Owner
	return rec.Over(seen, do, op.Watch, x.engine.opts.Margin)
}

// withdraw takes back a claim whose reply never came. What is not done by the given time is queued.
func (x *execution) withdraw(ctx context.Context, c protocol.Claim, by time.Time) {
	e := x.engine
	budget, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	w := protocol.Withdrawal{Claim: c, Owner: protocol.NewID(), Uncertain: c.Record.Uncertain}
	w.Write = w.Owner
	if len(c.Record.Steps) == 0 {
		w.ExpiresAt = protocol.RoundUp(e.now().Add(max(c.Record.Retention, guard.LateRequests)), time.Second)
	}
	err := e.store.Withdraw(budget, e.now(), w)
	if err == nil || protocol.Answers(err) {
		x.notify(ctx, notice.Withdrawn, notice.Notice{Attempt: c.Record.Attempt, State: Released})
		return
	}
	e.pending.KeepWithdrawal(ctx, w, x.kill.IsZero(), err)
}
