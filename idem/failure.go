package idem

import (
	"errors"
	"reflect"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// failureOf describes an error as it is recorded.
func failureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	err = Unmark(err)
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
	return protocol.FailureText(strings.ToValidUTF8(ask(), "\uFFFD"))
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
