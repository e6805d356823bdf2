package idem

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

type declined struct{ reason string }

func (e *declined) Error() string     { return "declined: " + e.reason }
func (e *declined) ErrorCode() string { return "card_declined" }

type plainError string

func (e plainError) Error() string { return string(e) }

// uncomparable errors must not panic where errors are compared.
type uncomparable []string

func (e uncomparable) Error() string { return strings.Join(e, ",") }

func TestClassOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"nil":                              {nil, ClassCompleted},
		"plain":                            {io.EOF, ClassUncertain},
		"uncomparable":                     {uncomparable{"a"}, ClassUncertain},
		"not executed":                     {NotExecuted(io.EOF), ClassNotExecuted},
		"permanent":                        {Permanent(io.EOF), ClassFailed},
		"not executed nil":                 {NotExecuted(nil), ClassCompleted},
		"permanent nil":                    {Permanent(nil), ClassCompleted},
		"the outer mark wins":              {NotExecuted(Permanent(io.EOF)), ClassNotExecuted},
		"the outer mark wins, the reverse": {Permanent(NotExecuted(io.EOF)), ClassFailed},
		"wrapped":                          {fmt.Errorf("charging: %w", Permanent(io.EOF)), ClassFailed},
		"wrapped twice":                    {fmt.Errorf("a: %w", fmt.Errorf("b: %w", NotExecuted(io.EOF))), ClassNotExecuted},
		"wrapped without %w":               {fmt.Errorf("charging: %v", Permanent(io.EOF)), ClassUncertain},
		"joined":                           {errors.Join(io.EOF, Permanent(io.EOF)), ClassFailed},
		"a recorded error is not a mark":   {&RecordedError{Failure{Message: "x"}}, ClassUncertain},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, classOf(c.err)) })
	}
}

// A mark changes nothing of what the error says or matches.
func TestMarksAreTransparent(t *testing.T) {
	inner := &declined{"no funds"}
	for _, mark := range []func(error) error{NotExecuted, Permanent} {
		require.NoError(t, mark(nil))
		err := mark(inner)
		require.Equal(t, inner.Error(), err.Error())
		require.ErrorIs(t, err, inner)
		var as *declined
		require.ErrorAs(t, err, &as)
		require.Same(t, inner, unmark(err))
		require.Same(t, inner, unmark(mark(err)), "several marks come off together")
		wrapped := fmt.Errorf("x: %w", err)
		require.Equal(t, wrapped, unmark(wrapped), "what the handler wrapped stays as it is")
	}
	require.NoError(t, unmark(nil))
}

func TestFailureOf(t *testing.T) {
	recorded := &RecordedError{Failure{Message: "m", Type: "T", Code: "C"}}
	for name, c := range map[string]struct {
		err  error
		want Failure
	}{
		"plain":        {io.EOF, Failure{Message: "EOF", Type: "errorString"}},
		"own type":     {&declined{"x"}, Failure{Message: "declined: x", Type: "declined", Code: "card_declined"}},
		"value type":   {plainError("p"), Failure{Message: "p", Type: "plainError"}},
		"uncomparable": {uncomparable{"a", "b"}, Failure{Message: "a,b", Type: "uncomparable"}},
		"marked":       {Permanent(&declined{"x"}), Failure{Message: "declined: x", Type: "declined", Code: "card_declined"}},
		"marked twice": {NotExecuted(Permanent(plainError("p"))), Failure{Message: "p", Type: "plainError"}},
		"wrapped keeps its code": {fmt.Errorf("charging: %w", &declined{"x"}), Failure{
			Message: "charging: declined: x", Type: "wrapError", Code: "card_declined",
		}},
		"recorded before":         {recorded, recorded.Failure},
		"recorded before, marked": {Permanent(recorded), recorded.Failure},
		"recorded before, wrapped": {fmt.Errorf("again: %w", recorded), Failure{
			Message: "again: m", Type: "wrapError",
		}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, &c.want, failureOf(c.err)) })
	}
	require.Nil(t, failureOf(nil))
	require.NotSame(t, &recorded.Failure, failureOf(recorded), "the caller's error is not the record's memory")
}

// What is recorded of an error is bounded and valid text, whatever the error says.
func TestFailureTextIsBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", maxFailureText), strings.Repeat("x", maxFailureText+1), strings.Repeat("ü", maxFailureText),
		"x" + strings.Repeat("ü", maxFailureText), strings.Repeat("🙂", maxFailureText),
	} {
		got := failureOf(plainError(text)).Message
		require.True(t, utf8.ValidString(got))
		if len(text) <= maxFailureText {
			require.Equal(t, text, got)
			continue
		}
		kept, cut := strings.CutSuffix(got, "…")
		require.True(t, cut)
		require.True(t, strings.HasPrefix(text, kept))
		require.Greater(t, len(kept), maxFailureText-utf8.UTFMax)
		require.LessOrEqual(t, len(kept), maxFailureText)
	}
}

func TestStricterDeclarationHolds(t *testing.T) {
	require.Equal(t, Repeatable, stricter(Repeatable, Repeatable))
	require.Equal(t, NotRepeatable, stricter(Repeatable, NotRepeatable))
	require.Equal(t, NotRepeatable, stricter(NotRepeatable, Repeatable))
	require.Equal(t, NotRepeatable, stricter(NotRepeatable, NotRepeatable))
	require.Equal(t, NotRepeatable, stricter(Repeatable, Repeat(7)))
}
