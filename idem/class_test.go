package idem

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/protocol"
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

// branches is an error of several. Some may be nil.
type branches []error

func (b branches) Error() string   { return "several" }
func (b branches) Unwrap() []error { return b }

type wraps struct{ err error }

func (w wraps) Error() string { return "wraps" }
func (w wraps) Unwrap() error { return w.err }

// as shows what is inside by As, as lists of errors do that know one of them at a time.
type as struct{ error }

func (a as) As(target any) bool { return errors.As(a.error, target) }

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
		"joined, one without a mark":       {errors.Join(io.EOF, Permanent(io.EOF)), ClassUncertain},
		"the same, the reverse":            {errors.Join(Permanent(io.EOF), io.EOF), ClassUncertain},
		"joined, one not executed":         {errors.Join(io.EOF, NotExecuted(io.EOF)), ClassUncertain},
		"several %w":                       {fmt.Errorf("%w; undo: %w", io.EOF, NotExecuted(io.EOF)), ClassUncertain},
		"joined, both not executed":        {errors.Join(NotExecuted(io.EOF), NotExecuted(io.EOF)), ClassNotExecuted},
		"joined, over and not executed":    {errors.Join(Permanent(io.EOF), NotExecuted(io.EOF)), ClassFailed},
		"not executed and over":            {errors.Join(NotExecuted(io.EOF), Permanent(io.EOF)), ClassFailed},
		"joined in a join": {errors.Join(NotExecuted(io.EOF), errors.Join(NotExecuted(io.EOF), io.EOF)),
			ClassUncertain},
		"a mark around a join":           {Permanent(errors.Join(io.EOF, NotExecuted(io.EOF))), ClassFailed},
		"joined with nil":                {branches{nil, Permanent(io.EOF)}, ClassFailed},
		"joined of nothing":              {branches{}, ClassUncertain},
		"joined of nil":                  {branches{nil}, ClassUncertain},
		"wraps nothing":                  {wraps{}, ClassUncertain},
		"found by As alone":              {as{NotExecuted(io.EOF)}, ClassUncertain},
		"a recorded error is not a mark": {&RecordedError{Failure{Message: "x"}}, ClassUncertain},
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
		require.Same(t, inner, Unmark(err))
		require.Same(t, inner, Unmark(mark(err)), "several marks come off together")
		wrapped := fmt.Errorf("x: %w", err)
		require.Equal(t, wrapped, Unmark(wrapped), "what the handler wrapped stays as it is")
	}
	require.NoError(t, Unmark(nil))
}

// A border hides the marks inside, and nothing else.
func TestBorder(t *testing.T) {
	inner := &declined{"no funds"}
	for name, err := range map[string]error{
		"marked": NotExecuted(inner), "marked twice": Permanent(NotExecuted(inner)),
		"wrapped":               fmt.Errorf("x: %w", NotExecuted(inner)),
		"joined":                errors.Join(NotExecuted(inner), Permanent(inner)),
		"marked inside and out": Permanent(fmt.Errorf("x: %w", NotExecuted(inner))),
	} {
		t.Run(name, func(t *testing.T) {
			for _, out := range []error{border(err), stepBorder(err)} {
				require.Equal(t, ClassUncertain, classOf(out))
				require.Equal(t, ClassUncertain, classOf(fmt.Errorf("further out: %w", out)))
				require.Equal(t, ClassFailed, classOf(Permanent(out)), "the next scope may mark it again")
				require.ErrorIs(t, out, inner)
				require.Equal(t, err.Error(), out.Error())
				require.Equal(t, Unmark(err), Unmark(out), "the caller gets what the handler gave")
			}
		})
	}
	require.Equal(t, io.EOF, border(io.EOF), "without a mark it stays as it is")
	require.Same(t, inner, border(Permanent(inner)))
	require.NoError(t, border(nil))
	require.NoError(t, stepBorder(nil))
}

func TestPermanentStep(t *testing.T) {
	failed := stepBorder(Permanent(io.EOF))
	for name, c := range map[string]struct {
		err  error
		want Class
	}{
		"nil":                      {nil, ClassCompleted},
		"a step's outcome":         {failed, ClassFailed},
		"wrapped":                  {fmt.Errorf("paying: %w", failed), ClassFailed},
		"two of them":              {errors.Join(failed, failed), ClassFailed},
		"joined with another":      {errors.Join(failed, io.EOF), ClassUncertain},
		"a step's plain error":     {stepBorder(io.EOF), ClassUncertain},
		"a step not executed":      {stepBorder(NotExecuted(io.EOF)), ClassUncertain},
		"plain":                    {io.EOF, ClassUncertain},
		"a nested operation's":     {border(fmt.Errorf("x: %w", Permanent(io.EOF))), ClassUncertain},
		"marked by the handler":    {NotExecuted(io.EOF), ClassNotExecuted},
		"wraps nothing":            {wraps{}, ClassUncertain},
		"several that are nothing": {branches{}, ClassUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, classOf(PermanentStep(c.err)))
			require.Equal(t, Unmark(c.err), Unmark(PermanentStep(c.err)))
		})
	}
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
		"wrapped keeps its code": {fmt.Errorf("charging: %w", &declined{"x"}), Failure{Message: "charging: declined: x",
			Type: "wrapError", Code: "card_declined"}},
		"recorded before":          {recorded, recorded.Failure},
		"recorded before, marked":  {Permanent(recorded), recorded.Failure},
		"recorded before, wrapped": {fmt.Errorf("again: %w", recorded), Failure{Message: "again: m", Type: "wrapError"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, &c.want, failureOf(c.err)) })
	}
	require.Nil(t, failureOf(nil))
	require.NotSame(t, &recorded.Failure, failureOf(recorded), "the caller's error is not the record's memory")
}

// What is recorded of an error is bounded and valid text, whatever the error says.
func TestFailureTextIsBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", protocol.MaxFailureText), strings.Repeat("x", protocol.MaxFailureText+1),
		strings.Repeat("ü", protocol.MaxFailureText),
		"x" + strings.Repeat("ü", protocol.MaxFailureText), strings.Repeat("🙂", protocol.MaxFailureText),
	} {
		got := failureOf(plainError(text)).Message
		require.True(t, utf8.ValidString(got))
		if len(text) <= protocol.MaxFailureText {
			require.Equal(t, text, got)
			continue
		}
		kept, cut := strings.CutSuffix(got, "…")
		require.True(t, cut)
		require.True(t, strings.HasPrefix(text, kept))
		require.Greater(t, len(kept), protocol.MaxFailureText-utf8.UTFMax)
		require.LessOrEqual(t, len(kept), protocol.MaxFailureText)
	}
}

func TestStricterDeclarationHolds(t *testing.T) {
	require.Equal(t, Repeatable, protocol.Stricter(Repeatable, Repeatable))
	require.Equal(t, NotRepeatable, protocol.Stricter(Repeatable, NotRepeatable))
	require.Equal(t, NotRepeatable, protocol.Stricter(NotRepeatable, Repeatable))
	require.Equal(t, NotRepeatable, protocol.Stricter(NotRepeatable, NotRepeatable))
	require.Equal(t, NotRepeatable, protocol.Stricter(Repeatable, Repeat(7)))
}

type nilError struct{ text string }

func (e *nilError) Error() string     { return e.text }
func (e *nilError) ErrorCode() string { return e.text }

type rawError string

func (e rawError) Error() string { return string(e) }

// A handler's error is recorded whatever it does when asked for its text.
func TestFailureOfDifficultErrors(t *testing.T) {
	f := failureOf((*nilError)(nil))
	require.Equal(t, "nilError", f.Type)
	require.Contains(t, f.Message, "cannot say what it is")
	require.Contains(t, f.Code, "cannot say what it is")

	f = failureOf(rawError("caf\xe9"))
	require.True(t, utf8.ValidString(f.Message), "stores keep text as UTF-8")
	require.Equal(t, "caf\uFFFD", f.Message)
}

// BoundQueue bounds what may wait in the engine's queue, in bytes.
func BoundQueue(e *Engine, bytes int) { e.pending.Bound(bytes) }
