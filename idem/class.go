package idem

import (
	"errors"
	"reflect"
	"strings"
)

// Class is what the end of an attempt means.
type Class uint8

const (
	// ClassDefault leaves the decision to the default rules.
	ClassDefault Class = iota
	// ClassCompleted: the result is the outcome; it is recorded and replayed. An
	// error beside it is not: this caller does not get it either.
	ClassCompleted
	// ClassFailed: the error is the outcome; it is recorded and replayed. Without an
	// error the result is, as with ClassCompleted.
	ClassFailed
	// ClassNotExecuted: surely nothing took effect; the next call gets the claim,
	// whatever the declaration.
	ClassNotExecuted
	// ClassUncertain: nobody knows. A repeatable operation becomes Retryable, any
	// other Unknown.
	ClassUncertain
)

// NotExecuted marks an error that proves that nothing took effect, such as a
// refused connection or a validation before the first call. The next call with
// the key gets the claim. The handler's caller gets err itself. NotExecuted(nil)
// is nil.
func NotExecuted(err error) error { return mark(err, ClassNotExecuted) }

// Permanent marks an error that is the operation's outcome, such as a declined
// card: it is recorded and replayed. The handler's caller gets err itself.
// Permanent(nil) is nil.
func Permanent(err error) error { return mark(err, ClassFailed) }

type markedError struct {
	error
	class Class
}

func (e *markedError) Unwrap() error { return e.error }

func mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &markedError{err, c}
}

// classOf reads the outermost mark in the error's tree.
func classOf(err error) Class {
	if err == nil {
		return ClassCompleted
	}
	var m *markedError
	if errors.As(err, &m) {
		return m.class
	}
	return ClassUncertain
}

// unmark takes off the marks around an error, so that the runtime and the caller
// get the handler's own. Marks deeper inside stay: errors.Is and As see through.
func unmark(err error) error {
	for {
		m, ok := err.(*markedError)
		if !ok {
			return err
		}
		err = m.error
	}
}

// failureOf describes an error as it is recorded.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	err = unmark(err)
	var rec *RecordedError
	if errors.As(err, &rec) && err == error(rec) {
		f := rec.Failure
		return &f
	}
	f := Failure{Message: textOf(err, err.Error), Type: typeName(err)}
	var coded interface{ ErrorCode() string }
	if errors.As(err, &coded) {
		f.Code = textOf(err, coded.ErrorCode)
	}
	return &f
}

// textOf asks an error for a text. An error that panics over it, such as a nil
// pointer in an interface, must not cost the record of the attempt.
func textOf(err error, ask func() string) (s string) {
	defer func() {
		if recover() != nil {
			s = "an error of type " + typeName(err) + " that cannot say what it is"
		}
	}()
	return truncate(strings.ToValidUTF8(ask(), "\uFFFD"))
}

// maxFailureText keeps a recorded error from filling the record: a failed
// condition is billed by the record's size.
const maxFailureText = 2048

func truncate(s string) string {
	if len(s) <= maxFailureText {
		return s
	}
	return strings.ToValidUTF8(s[:maxFailureText], "") + "…"
}

// typeName is the error's type as aws-lambda-go reports it: without package path
// and pointer.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}
