package idemlambda

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// What an attempt in atomic mode saw before it ran is not its own end: over a failure
// that has expired, one that is not recorded still asks for another delivery.
func TestSQSFailureOverAnExpiredOneIsRedelivered(t *testing.T) {
	now := noon
	e, err := idem.New(memory(), &idem.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	answer := idem.Permanent(errors.New("no such account"))
	var told told
	h := SQS(e, idem.Operation{Name: "move", Repeat: idem.Repeatable, Mode: idem.Atomic}, byAttribute,
		&SQSOptions{Logger: quiet, OnOutcome: told.hook}, func(context.Context, order) error { return answer })

	res, err := h(t.Context(), batchOf(messageOf("m1", "k", `{"id":"1"}`)))
	require.NoError(t, err)
	require.Empty(t, named(res))

	now = now.Add(SQSRetention + time.Hour)
	answer = errors.New("timeout")
	res, err = h(t.Context(), batchOf(messageOf("m2", "k", `{"id":"1"}`)))
	require.NoError(t, err)
	require.Equal(t, []string{"m2"}, named(res), "%v", told.reasons())
}
