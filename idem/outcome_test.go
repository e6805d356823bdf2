package idem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// The outcome says how the call's own attempt ended, whether or not that could be
// written, and what the record says of a failure, live as on replay.
func TestOutcomeTellsHowTheAttemptEnded(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name   string
		repeat idem.Repeat
		answer idem.Answer
		want   idem.State
	}{
		{"success", idem.NotRepeatable, idem.Answer{}, idem.Completed},
		{"success that is none", idem.NotRepeatable, idem.Answer{Class: idem.ClassNotExecuted}, idem.Released},
		{"failure", idem.NotRepeatable, idem.Answer{Err: idem.Permanent(down)}, idem.Failed},
		{"uncertain", idem.NotRepeatable, idem.Answer{Err: down}, idem.Unknown},
		{"repeatable", idem.Repeatable, idem.Answer{Err: down}, idem.Released},
	} {
		for _, written := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				h := idemtest.New(t, nil)
				if !written {
					h.Faults.Always(idemtest.Refuse, idemtest.Finish)
				}
				key := idem.Operation{Name: "op", Repeat: c.repeat}.Key(idem.NoTenant, "k")
				call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(context.Context) idem.Answer { return c.answer }}
				out, _ := h.Engine.Execute(t.Context(), call)
				require.Equal(t, c.want, out.Ended)
				require.True(t, out.Executed)
				require.Equal(t, c.answer.Err != nil, out.Failure != nil)
				if !written {
					require.Equal(t, idem.InProgress, out.State)
					return
				}
				require.Equal(t, c.want, out.State)
				if c.want == idem.Completed || c.want == idem.Failed {
					again, _ := h.Engine.Execute(t.Context(), call)
					require.Empty(t, again.Ended, "the handler did not run")
					require.False(t, again.Executed)
					require.Equal(t, out.Failure, again.Failure)
				}
			})
		}
	}
}

// The outcome of an attempt that lost its claim is another's.
func TestOutcomeOfALostAttemptIsNotItsOwn(t *testing.T) {
	h := idemtest.New(t, nil)
	key := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key(idem.NoTenant, "k")
	call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil)}
	call.Run = func(context.Context) idem.Answer {
		h.Clock.Advance(2 * idem.DefaultLease)
		winner := call
		winner.Run = func(context.Context) idem.Answer { return idem.Answer{Body: []byte("2")} }
		out, err := h.Engine.Execute(t.Context(), winner)
		require.NoError(t, err)
		require.Equal(t, idem.Completed, out.Ended)
		require.True(t, out.Executed)
		return idem.Answer{Err: errors.New("late")}
	}
	out, err := h.Engine.Execute(t.Context(), call)
	require.NoError(t, err)
	require.True(t, out.Replayed)
	require.Equal(t, "2", string(out.Body))
	require.Empty(t, out.Ended)
	require.False(t, out.Executed, "its own result is nobody's")
	require.Nil(t, out.Failure)
}
