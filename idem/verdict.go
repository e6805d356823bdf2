package idem

import (
	"context"
	"errors"
)

var errResponse = errors.New("the handler answered with a failure")

// applySteps decides what the steps make of the handler's end: an operation that was stopped, or has an open step,
// has no outcome; one that fails is undone first.
func (x *execution) applySteps(ctx context.Context, a *attempt, ans *Answer, class Class) Class {
	j := &a.journal
	halted := j.close()
	if halted == nil && !j.any() {
		return class
	}
	if halted != nil {
		a.stopped = j.stopped()
		switch {
		case ans.Err == nil:
			ans.Err = halted
		case !errors.Is(ans.Err, halted):
			ans.Err = errors.Join(Unmark(ans.Err), halted)
		}
		return ClassUncertain
	}
	if open, interrupted := j.open(); open != nil {
		if interrupted || ans.Err == nil {
			a.stopped = open
		}
		if ans.Err == nil {
			ans.Err = open
		}
		return ClassUncertain
	}
	if class == ClassNotExecuted && j.leftOver() {
		class = ClassUncertain // what is left to undo was executed
	}
	cause := ans.Err
	if cause == nil {
		cause = ans.Cause
	}
	if cause == nil {
		cause = errResponse
	}
	verdict := j.verdict(class, ans.Err)
	switch {
	case verdict != nil:
		if class != ClassCompleted && class != ClassFailed && !j.complete() {
			return class // it has not reached all that must be undone
		}
	case class != ClassFailed && (class != ClassCompleted || j.undone() == nil):
		return class
	}
	if err := a.compensate(ctx, cause); err != nil {
		ans.Err, a.stopped = errors.Join(Unmark(cause), err), j.stopped()
		return ClassUncertain
	}
	if verdict != nil {
		*ans = Answer{Err: verdict, Value: ans.Value}
		return ClassFailed
	}
	return class
}

// verdict is the failure for which an earlier attempt has begun to undo the operation. It is the outcome, whatever
// this attempt's handler returns, with two exceptions: a response that is a refusal, and any answer of a handler that
// has called Abort, say it in their own words.
func (j *journal) verdict(class Class, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	refusal := class == ClassFailed && err == nil
	if !j.found || refusal || j.aborts && class == ClassCompleted {
		return nil
	}
	return &RecordedError{*j.cause}
}

// aborted reports whether the handler has called Abort.
func (j *journal) aborted() bool { return locked(j, func() bool { return j.aborts }) }

// leftOver reports whether something is left to undo that this attempt could not undo, and that an
// operator must look at.
func (j *journal) leftOver() bool {
	todo, err := j.compensations()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.parks && (err != nil || len(todo) > 0)
}

// complete reports whether this attempt can undo all that is left to undo.
func (j *journal) complete() bool {
	_, err := j.compensations()
	return err == nil
}
