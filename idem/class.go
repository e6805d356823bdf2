package idem

import (
	"slices"
)

// Class is what the end of an attempt means.
type Class uint8

const (
	// ClassDefault leaves the decision to the default rules.
	ClassDefault Class = iota
	// ClassCompleted: the result is recorded and replayed. An error returned with it is dropped.
	ClassCompleted
	// ClassFailed: the error is recorded and replayed, or without one the result, in
	// state Completed. The [Unit] of work is dropped and the steps are undone.
	ClassFailed
	// ClassNotExecuted: nothing took effect; the next call gets the claim, as after [NotExecuted].
	ClassNotExecuted
	// ClassUncertain: it may have taken effect. A repeatable operation becomes Released, another one Unknown.
	ClassUncertain
	// ClassRejected: the answer is one that handlers give before they do anything, such as
	// HTTP 429. It is ClassNotExecuted while the attempt has shown no sign of an effect (a call of
	// [Token], [InfoOf] or another operation, a [Step], a [Unit] of work), else ClassUncertain.
	ClassRejected
	// ClassRefused: the answer turns the input down, such as HTTP 400 after a validation. It is
	// ClassNotExecuted while the attempt has shown no sign of an effect, else ClassFailed.
	ClassRefused
)

// NotExecuted marks an error that proves that nothing took effect, such as a refused
// connection. The next call with the key gets the claim, with another input too as long
// as no step is recorded. The call gets err itself. NotExecuted(nil) is nil.
//
// A mark, this one and [Permanent], speaks for the function that made it: the marks of a [Step]'s
// function, and of an operation that a handler calls, end there. The outermost mark around an error
// counts. Of the branches of errors.Join the strictest counts: one without a mark, then Permanent,
// then NotExecuted. errors.Is and errors.As see through marks.
func NotExecuted(err error) error { return mark(err, ClassNotExecuted) }

// Permanent marks an error that is the operation's outcome, such as a declined card. The call that ran
// the handler gets err itself, later calls a [*RecordedError] with its text, its type and, if it has a
// method ErrorCode() string, its code. Permanent(nil) is nil.
func Permanent(err error) error { return mark(err, ClassFailed) }

// PermanentStep marks the error of a [Step] as [Permanent] if it is the step's recorded
// outcome, live or of an earlier attempt, and returns any other error as it is. Around several errors
// it marks only if each of them is a step's outcome. PermanentStep(nil) is nil.
func PermanentStep(err error) error {
	if isFinal(err) {
		return Permanent(err)
	}
	return err
}

// markedError is a mark around an error. One of ClassUncertain is a border: it says
// nothing, and hides the marks inside.
type markedError struct {
	error
	class Class
	final bool // a border around the outcome of a step
}

func (e *markedError) Unwrap() error { return e.error }

func mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &markedError{error: err, class: c}
}

// border ends the reach of the marks in an error that leaves its scope. Errors
// without a mark that counts stay as they are.
func border(err error) error {
	if c := classOf(err); c != ClassFailed && c != ClassNotExecuted {
		return err
	}
	if err = Unmark(err); classOf(err) == ClassUncertain {
		return err
	}
	return mark(err, ClassUncertain)
}

// stepBorder is the border of a step.
func stepBorder(err error) error {
	if classOf(err) != ClassFailed {
		return border(err)
	}
	return &markedError{error: Unmark(err), class: ClassUncertain, final: true}
}

func isFinal(err error) bool {
	for err != nil {
		switch e := err.(type) {
		case *markedError:
			return e.final
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			return len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !isFinal(err) })
		default:
			return false
		}
	}
	return false
}

// classOf reads the marks in the error's tree.
func classOf(err error) Class {
	for err != nil {
		switch e := err.(type) {
		case *markedError:
			return e.class
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			if err == nil {
				return ClassUncertain
			}
		case interface{ Unwrap() []error }:
			return strictest(e.Unwrap())
		default:
			return ClassUncertain
		}
	}
	return ClassCompleted
}

// strictest is what the branches of an error say together. What may have taken
// effect in one of them has, whatever the others say. A branch that is over for
// good beats one that had no effect: run again, both would be.
func strictest(branches []error) Class {
	all := ClassDefault
	for _, err := range branches {
		switch c := classOf(err); {
		case c == ClassCompleted: // nil
		case c == ClassUncertain:
			return c
		case all != ClassFailed:
			all = c
		}
	}
	if all == ClassDefault {
		return ClassUncertain
	}
	return all
}

// Unmark takes the marks of [NotExecuted], [Permanent] and [PermanentStep] off an error, as the
// engine does before it returns one. Marks deeper inside stay.
func Unmark(err error) error {
	for {
		m, ok := err.(*markedError)
		if !ok {
			return err
		}
		err = m.error
	}
}
