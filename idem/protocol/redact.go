package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// redacted is an error whose text has nothing of its cause's.
type redacted struct {
	text  string
	cause error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.cause }

// Redact returns an error for logs and records, whose text is doing and what kind of cause
// it has. The texts of encoders, decoders and panics quote requests and results: of them it has
// types and places alone. Cause is an error, which Unwrap returns, or the value of a panic.
func Redact(doing string, cause any) error {
	err, _ := cause.(error)
	return &redacted{doing + ": " + kindOf(cause), err}
}

// RedactPanic is [Redact] for the value of a panic, and names the line that panicked. It is
// called by the function that has recovered it.
func RedactPanic(doing string, value any) error {
	err, _ := value.(error)
	return &redacted{doing + " panicked" + panickedAt() + ": " + kindOf(value), err}
}

// RedactedText is the text of the error by [Redact] or [RedactPanic] that err is or wraps. ok is
// false if there is none.
func RedactedText(err error) (text string, ok bool) {
	u, ok := errors.AsType[*redacted](err)
	if !ok {
		return "", false
	}
	return u.text, true
}

// kindOf describes an error or the value of a panic without its text.
func kindOf(cause any) string {
	err, ok := cause.(error)
	if !ok {
		return fmt.Sprintf("a value of type %T", cause)
	}
	if text, ok := RedactedText(err); ok {
		return text
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		value, _, _ := strings.Cut(e.Value, " ") // a number's digits follow
		member := ""
		if e.Field != "" {
			member = fmt.Sprintf("%q of ", e.Field)
		}
		return fmt.Sprintf("the JSON %s at byte %d does not fit %stype %v", value, e.Offset, member, e.Type)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("no JSON from byte %d on", e.Offset)
	}
	if e, ok := errors.AsType[runtime.Error](err); ok {
		text, _, _ := strings.Cut(e.Error(), " [") // an index follows
		return text
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return fmt.Sprintf("an error of type %T", err)
}

// panickedAt is the file and line that panicked, for a deferred function. Package json panics
// again with the value of another's panic.
func panickedAt() string {
	var calls [64]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(2, calls[:])])
	for thrown := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			thrown = true
		case thrown && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "encoding/json."):
			return fmt.Sprintf(" at %s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return ""
		}
	}
}
