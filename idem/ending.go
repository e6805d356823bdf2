package idem

import (
	"context"
	"math"

	"github.com/idem-go/idempotency/idem/protocol"
)

// maxKept bounds what is kept of a result that is not: see [Answer.Summary].
const maxKept = 1 << 10

// rule decides what an answer means. The operation's own rule counts first, then
// the handler's word, then the wrapper's rule, then the error.
func (x *execution) rule(ctx context.Context, a *attempt, ans Answer) Class {
	c := ClassDefault
	if f := x.call.Key.op.Classify; f != nil {
		c = f(ctx, ans.Value, ans.Err)
	}
	if c == ClassDefault || c > ClassRefused {
		c = a.handlerClass(ans)
	}
	signs := a.signs.Load()
	switch {
	case c == ClassRejected && signs:
		return ClassUncertain
	case c == ClassRefused && signs:
		return ClassFailed
	case c == ClassRejected, c == ClassRefused:
		return ClassNotExecuted
	}
	return c
}

// handlerClass is how the handler and its wrapper class the answer.
func (a *attempt) handlerClass(ans Answer) Class {
	if c := Class(a.says.Load()); c == ClassNotExecuted || c == ClassCompleted && ans.Err == nil {
		return c
	}
	if ans.Class != ClassDefault {
		return ans.Class
	}
	return classOf(ans.Err)
}

// response is what becomes of an answer that fails without an error: it is the
// outcome, without its unit of work. [Abort] drops it too.
func (a *attempt) response(c Class, ans Answer, unit Unit) (Class, Unit) {
	switch {
	case c == ClassFailed && ans.Err == nil:
		return ClassCompleted, nil
	case a.journal.aborted() && Class(a.says.Load()) != ClassCompleted:
		return c, nil
	}
	return c, unit
}

// ending is how an attempt ends: what its record becomes.
type ending struct {
	protocol.Ending
	class Class
	// kept is recorded in place of a result that turns out not to be storable.
	kept []byte
}

// ending turns the class into what the record becomes, by the declaration.
func (x *execution) ending(a *attempt, c Class, ans Answer, f *Failure) ending {
	en := ending{Ending: x.recordEnding(a, c, ans, f), class: c}
	_, en.Ref = a.reference.known()
	if len(ans.Summary) <= maxKept {
		en.kept = ans.Summary
	}
	if ans.Omitted != nil && c == ClassCompleted {
		en.Result, en.Omitted = en.kept, true
	}
	return en
}

// recordable is the version of a result's schema, none if no store could read it again.
func recordable(version int) int {
	if version < 0 || version > math.MaxInt32 {
		return 0
	}
	return version
}

func (x *execution) recordEnding(a *attempt, c Class, ans Answer, f *Failure) protocol.Ending {
	// The expiry is set again when the end is written: it counts from then.
	expires := x.engine.expiry(x.engine.now(), x.call.Key.op.retention(), len(ans.Body))
	switch c {
	case ClassCompleted:
		return protocol.Ending{State: Completed, Result: ans.Body, ExpiresAt: expires,
			ResponseVersion: recordable(ans.ResponseVersion)}
	case ClassFailed:
		return protocol.Ending{State: Failed, Failure: f.OfAttempt(), ExpiresAt: expires}
	}
	if f == nil {
		f = failureOf(ans.Cause)
	}
	en := protocol.Ending{State: Unknown, Failure: f, Uncertain: true}
	if c == ClassNotExecuted {
		en.State, en.Uncertain = Released, a.rec.Uncertain
	} else if a.rec.Repeat == Repeatable && !a.journal.mustPark() {
		switch last := x.call.Key.op.MaxAttempts; {
		case a.journal.waits():
			// It came too early, and says nothing of what a later one finds.
			en.State, en.Unsettled = Released, a.rec.Unsettled
		case last == 0 || a.rec.Unsettled+1 < last:
			en.State, en.Unsettled = Released, a.rec.Unsettled+1
		default:
			en.Failure = protocol.LastAttempt(last, f)
		}
	}
	if en.State == Released && !a.journal.any() {
		en.ExpiresAt = expires
	}
	return en
}
