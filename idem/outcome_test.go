package idem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
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
				key := idem.Operation{Name: "op", Repeat: c.repeat}.Key(idem.SingleTenant, "k")
				call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(context.Context) idem.Answer { return c.answer }}
				out, _ := h.Engine.Execute(t.Context(), call)
				require.Equal(t, c.want, out.AttemptState)
				require.True(t, out.Executed)
				require.Equal(t, c.answer.Err != nil, out.Failure != nil)
				if !written {
					require.Equal(t, idem.InProgress, out.RecordState)
					return
				}
				require.Equal(t, c.want, out.RecordState)
				if c.want == idem.Completed || c.want == idem.Failed {
					again, _ := h.Engine.Execute(t.Context(), call)
					require.Empty(t, again.AttemptState, "the handler did not run")
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
	key := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key(idem.SingleTenant, "k")
	call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil)}
	call.Run = func(context.Context) idem.Answer {
		h.Clock.Advance(2 * idem.DefaultLease)
		winner := call
		winner.Run = func(context.Context) idem.Answer { return idem.Answer{Body: []byte("2")} }
		out, err := h.Engine.Execute(t.Context(), winner)
		require.NoError(t, err)
		require.Equal(t, idem.Completed, out.AttemptState)
		require.True(t, out.Executed)
		return idem.Answer{Err: errors.New("late")}
	}
	out, err := h.Engine.Execute(t.Context(), call)
	require.NoError(t, err)
	require.True(t, out.Replayed)
	require.Equal(t, "2", string(out.Body))
	require.Empty(t, out.AttemptState)
	require.False(t, out.Executed, "its own result is nobody's")
	require.Nil(t, out.Failure)
}

// StopCause is the engine's own reason: what a step could not do in this operation, and not what
// another operation, or Abort, has said to the handler.
func TestOutcomeTellsWhatStoppedTheAttempt(t *testing.T) {
	own := errors.New("own")
	open := func(ctx context.Context, after time.Duration) error {
		c := &idem.StepConfig[string]{Semantics: idem.AtMostOnce}
		if after > 0 {
			c.NotFoundFinalAfter = after
			c.Interrupted = func(context.Context, time.Time) (string, error) { return "", idem.NotExecuted(own) }
		}
		_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) { return "", own }, c)
		return err
	}
	within, interrupted := safe.Key("t", "within"), &idem.StepInterruptedError{}
	for name, tc := range map[string]struct {
		began bool // by an earlier attempt
		run   func(context.Context, *rig) error
		want  error // that StopCause matches; nil for none
		ended idem.State
	}{
		"interrupted":              {true, func(ctx context.Context, _ *rig) error { return open(ctx, 0) }, interrupted, idem.Unknown},
		"interrupted, and hidden":  {true, func(ctx context.Context, _ *rig) error { _ = open(ctx, 0); return own }, interrupted, idem.Unknown},
		"interrupted, not reached": {true, func(context.Context, *rig) error { return nil }, interrupted, idem.Unknown},
		"asked about again":        {true, func(ctx context.Context, _ *rig) error { return open(ctx, time.Hour) }, interrupted, idem.Released},
		"asked again, hidden":      {true, func(ctx context.Context, _ *rig) error { _ = open(ctx, time.Hour); return nil }, interrupted, idem.Released},
		"not recorded": {false, func(ctx context.Context, r *rig) error {
			r.faults.Always(idemtest.Refuse, idemtest.RecordStep)
			return open(ctx, 0)
		}, idem.ErrStoreUnavailable, idem.Released},
		"its own error":             {false, func(ctx context.Context, _ *rig) error { return open(ctx, 0) }, nil, idem.Unknown},
		"its own error, and hidden": {false, func(ctx context.Context, _ *rig) error { _ = open(ctx, 0); return nil }, interrupted, idem.Unknown},
		"another operation's": {false, func(ctx context.Context, r *rig) error {
			_, err := idem.Do(ctx, r.engine, within, 1, func(ctx context.Context, _ int) (string, error) { return "", open(ctx, 0) })
			require.ErrorIs(t, err, own)
			return &idem.StepInterruptedError{Name: "charge"}
		}, nil, idem.Released},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t, nil), safe.Key("t", "k")
			if tc.began {
				killedWith(t, r, key, protocol.StepWrite{Name: "charge", Begin: true})
			}
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (string, error) { return "", tc.run(ctx, r) })
			require.Error(t, err)
			require.Equal(t, tc.ended, res.Outcome.AttemptState)
			if tc.want == nil {
				require.NoError(t, res.Outcome.StopCause)
				return
			}
			if tc.want != interrupted {
				require.ErrorIs(t, res.Outcome.StopCause, tc.want)
				return
			}
			open := interrupted
			require.ErrorAs(t, res.Outcome.StopCause, &open)
			require.Equal(t, tc.ended == idem.Released, !open.RetryAt.IsZero())
		})
	}
}
