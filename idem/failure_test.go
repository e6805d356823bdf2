package idem

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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
