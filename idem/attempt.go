package idem

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// attempt is one run of a handler: its claim, and what the handler may ask of it.
type attempt struct {
	key    Key
	rec    Record // as claimed
	shadow bool   // runs whatever the store says
	// until is when the lease is over as it was claimed. The holder counts it from when the claim was sent, by the
	// monotonic clock, which no correction of the wall clock moves.
	until  time.Time
	writes atomic.Int32
	// says is the class that the handler has set in addition to its response.
	says atomic.Int32
	// signs is set once the handler has done what comes with an effect.
	signs     atomic.Bool
	running   atomic.Pointer[lease] // while the handler runs, or steps are undone after it
	journal   journal
	stopped   error // what keeps it from having an outcome, whatever its handler returned
	reference reference
	// unwritten is the claim that an attempt in atomic mode did not write, and seenState the
	// state that the record was in when it began. The commit changes what unwritten says,
	// and the handler's goroutines, which may outlive it, never look at that.
	unwritten *protocol.Claim
	seenState State
	later     *acceptance // what it commits is that the operation is accepted for later
	unit      unitSlot
}

type attemptKey struct{}

// writeID returns the id of the attempt's next write. The owner is random, so a counter behind its start is unique. The
// claim's own id is the owner, so that a store need not keep both.
func (a *attempt) writeID() string {
	return a.rec.Owner[:startOfID] + "." + strconv.Itoa(int(a.writes.Add(1)))
}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// Info tells a handler about its own attempt.
type Info struct {
	// ID of the record, Tenant and Operation of the key.
	ID, Tenant, Operation string
	// Step is the one that the context is inside of, if any. Token: see [Token].
	Step, Token string
	// Attempt is this attempt's number, from 1. It is no fencing number: it starts again after expiry.
	Attempt int
	// LeaseUntil is when the claim, as it was taken, stops being respected; zero in atomic mode.
	LeaseUntil time.Time
	// WithoutClaim is set in atomic mode, in shadow, and where the call fails open.
	WithoutClaim bool
	// Ref is what [SetReference] said last, in this attempt or an earlier one.
	Ref string
}

// InfoOf returns what the handler's context knows of its attempt, and false outside an operation.
func InfoOf(ctx context.Context) (Info, bool) {
	a := attemptOf(ctx)
	if a == nil {
		return Info{}, false
	}
	a.signs.Store(true)
	info := Info{
		ID: a.key.id, Tenant: a.key.tenant, Operation: a.key.op.Name, Step: stepOf(ctx),
		Attempt: a.rec.Attempt, Token: a.token(ctx),
		LeaseUntil: a.rec.LeaseUntil, WithoutClaim: !a.claimed() || a.engine().unrecorded,
	}
	info.Ref, _ = a.reference.known()
	if a.atomic() {
		info.LeaseUntil = time.Time{}
	}
	return info, true
}

// atomic reports whether the attempt runs in atomic mode.
func (a *attempt) atomic() bool { return a.unwritten != nil }

// made is the record that the attempt makes, which in atomic mode depends on what its
// commit finds. It is for what comes after the handler.
func (a *attempt) made() *Record {
	if a.atomic() {
		return &a.unwritten.Record
	}
	return &a.rec
}

// kind says to the store how the attempt ran.
func (a *attempt) kind() protocol.AttemptKind {
	switch {
	case a.later != nil:
		return protocol.Atomic{Claim: a.later.claim(*a.unwritten)}
	case a.atomic():
		return protocol.Atomic{Claim: *a.unwritten}
	}
	return nil
}

// claimed reports whether the attempt holds a claim.
func (a *attempt) claimed() bool { return !a.shadow && !a.atomic() }

// watched reports whether the attempt's claim may be in the index.
func (a *attempt) watched() bool {
	return !a.rec.Due.IsZero() || a.journal.mayBeWatched()
}

// due is when a begin mark makes the claim due, zero if it stays as it is. No caller may
// return for work that was killed, and an open step must not be forgotten.
func (a *attempt) due() time.Time {
	if !a.rec.Due.IsZero() || a.key.op.Watch == WatchNever {
		return time.Time{}
	}
	return a.rec.LeaseUntil.Add(a.engine().opts.Margin)
}

func (a *attempt) engine() *Engine { return a.running.Load().x.engine }

func (a *attempt) notifyStep(ctx context.Context, kind notice.Kind, name string, err error) {
	a.running.Load().x.notify(ctx, kind, notice.Notice{Attempt: a.rec.Attempt, State: InProgress, Step: name, Err: err})
}

// SetNotExecuted says, in addition to a response and without an error, that nothing took effect:
// the next call with the key gets the claim, as after [NotExecuted]. Outside an operation, and inside
// a [Step], it does nothing. Of several calls of it and [SetCompleted] the last one counts.
func SetNotExecuted(ctx context.Context) { set(ctx, ClassNotExecuted) }

// SetCompleted says, in addition to a response and without an error, that the response
// is the operation's outcome although it looks like a refusal, such as HTTP 402: its
// [Unit] of work commits with it and its steps stay as they are, unless they are being undone
// already by an earlier attempt. Outside an operation, and inside a [Step], it does nothing.
func SetCompleted(ctx context.Context) { set(ctx, ClassCompleted) }

func set(ctx context.Context, c Class) {
	if a := attemptOf(ctx); a != nil && stepOf(ctx) == "" {
		a.says.Store(int32(c))
	}
}

// existing is the record that stood in the way of a write, nil if the error shows none.
func existing(err error) *Record {
	if conflict, ok := errors.AsType[*protocol.ConflictError](err); ok {
		return conflict.Existing
	}
	return nil
}

// parkedBy reports whether the record is the owner's open question.
func parkedBy(rec *Record, owner string) bool {
	return rec != nil && rec.State == Unknown && rec.HeldBy(owner)
}

// beginClaimed begins the attempt of a claim that was sent at the time and is written.
func (x *execution) beginClaimed(ctx context.Context, c protocol.Claim, sent time.Time) *attempt {
	a := &attempt{key: x.call.Key, rec: c.Record, until: sent.Add(x.engine.opts.Lease)}
	a.journal.room.extra = x.engine.traits.StepExtra
	a.journal.inherit(c.Record.Steps)
	a.reference.inherit(c.Record.Ref)
	kind := notice.Claimed
	if c.Seen != "" {
		kind = notice.TookOver
	}
	x.notify(ctx, kind, notice.Notice{Attempt: a.rec.Attempt, State: InProgress})
	return a
}

// beginAtomic begins an attempt in atomic mode, over the record that was seen. One that
// it replaces as a whole is as good as absent: its state says nothing of this attempt.
func (x *execution) beginAtomic(c protocol.Claim, seen *Record) *attempt {
	a := &attempt{key: x.call.Key, rec: c.Record, unwritten: &c, later: x.later}
	a.reference.inherit(c.Record.Ref)
	a.seenState = Absent
	if seen != nil && !c.Replace {
		a.seenState = seen.State
	}
	return a
}

// Token returns the idempotency key to send downstream. It depends on the key only, inside a
// [Step] also on the step's name: it is the same on every attempt, also after expiry. Its form is a
// UUID (version 8, RFC 9562). Outside an operation it panics.
func Token(ctx context.Context) string {
	a := attemptOf(ctx)
	if a == nil {
		panic("idem.Token: the context is not a handler's: pass the context that the handler was given")
	}
	a.signs.Store(true)
	return a.token(ctx)
}

// token is the key's, or that of the step that the context is inside of.
func (a *attempt) token(ctx context.Context) string { return protocol.Token(a.key.id, stepOf(ctx)) }
