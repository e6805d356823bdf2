package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// A mark speaks for the scope that made it. In each of these the handler has had an
// effect that nobody knows the end of: it is not run again.
func TestMarksOfOthersReleaseNothing(t *testing.T) {
	refused := idem.NotExecuted(errors.New("connection refused"))
	inner := func(r *rig, mark func(error) error) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := idem.Do(ctx, r.engine, safe.Key("t", "inner"), 1, fails(mark(errPlain)))
			return err
		}
	}
	for name, fail := range map[string]func(r *rig) func(context.Context) error{
		"joined": func(*rig) func(context.Context) error {
			return func(context.Context) error { return errors.Join(errPlain, refused) }
		},
		"several %w": func(*rig) func(context.Context) error {
			return func(context.Context) error { return fmt.Errorf("%w; undo: %w", errPlain, refused) }
		},
		"a step's": func(*rig) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, refused }, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
				return err
			}
		},
		"a step's, after one that nobody knows": func(*rig) func(context.Context) error {
			return func(ctx context.Context) error {
				_, first := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return 0, errPlain }, nil)
				_, second := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, refused }, nil)
				return errors.Join(first, second)
			}
		},
		"a step's, wrapped": func(*rig) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, fmt.Errorf("shipping: %w", refused) }, nil)
				return fmt.Errorf("order: %w", err)
			}
		},
		"a step's word beside its response": func(*rig) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := idem.Step(ctx, "ship", func(ctx context.Context) (int, error) {
					idem.SetNotExecuted(ctx)
					return 0, errPlain
				}, nil)
				return err
			}
		},
		"a compensation's": func(*rig) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, nil },
					&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return refused }})
				return errors.Join(err, idem.Abort(ctx, errPlain))
			}
		},
		"a nested operation's": func(r *rig) func(context.Context) error { return inner(r, idem.NotExecuted) },
		"a nested operation's, wrapped": func(r *rig) func(context.Context) error {
			return inner(r, func(err error) error { return fmt.Errorf("ship: %w", idem.NotExecuted(err)) })
		},
		"a nested operation's, permanent": func(r *rig) func(context.Context) error {
			return inner(r, func(err error) error { return fmt.Errorf("ship: %w", idem.Permanent(err)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := unsafe.Key("t", "k")
			effects := 0
			for range 2 {
				_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
					effects++
					return "", fail(r)(ctx)
				})
				require.Error(t, err)
			}
			require.Equal(t, 1, effects)
			require.Equal(t, idem.Unknown, r.state(t, key))
		})
	}
}

// A handler that means its own operation marks again.
func TestMarksMadeAgain(t *testing.T) {
	for want, mark := range map[idem.State]func(error) error{idem.Released: idem.NotExecuted, idem.Failed: idem.Permanent} {
		r := newRig(t, nil)
		key := unsafe.Key("t", "k")
		own := errors.New("refused")
		_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, fmt.Errorf("shipping: %w", idem.NotExecuted(own)) }, nil)
			return "", mark(err)
		})
		require.ErrorIs(t, err, own)
		require.EqualError(t, err, "shipping: refused")
		require.Equal(t, want, r.state(t, key))
	}
}

// An answer that handlers give before they do anything excludes an execution only
// while nothing has happened that comes with an effect.
func TestRejectedAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		does  func(r *rig, ctx context.Context)
		state idem.State // of a not repeatable operation
	}{
		"nothing": {func(*rig, context.Context) {}, idem.Released},
		"token":   {func(_ *rig, ctx context.Context) { idem.Token(ctx) }, idem.Unknown},
		"info":    {func(_ *rig, ctx context.Context) { _, _ = idem.InfoOf(ctx) }, idem.Unknown},
		"step": {func(_ *rig, ctx context.Context) {
			_, _ = idem.Step(ctx, "s", func(context.Context) (int, error) { return 0, errPlain }, nil)
		}, idem.Unknown},
		"unit of work": {func(_ *rig, ctx context.Context) { _, _ = idem.UnitOf(ctx, func() idem.Unit { return new(effect) }) }, idem.Unknown},
		"another operation": {func(r *rig, ctx context.Context) {
			_, _ = idem.Do(ctx, r.engine, safe.Key("t", "inner"), 1, new(counter).run)
		}, idem.Unknown},
	} {
		for _, op := range both {
			t.Run(name+"/"+op.Name, func(t *testing.T) {
				r := newRig(t, nil)
				key := op.Key("t", "k")
				out, err := r.engine.Execute(t.Context(), idem.Call{Key: key, Fingerprint: fingerprint.Bytes([]byte("1")), Run: func(ctx context.Context) idem.Answer {
					tc.does(r, ctx)
					return idem.Answer{Body: []byte("429"), Class: idem.ClassRejected}
				}})
				require.NoError(t, err)
				require.Equal(t, "429", string(out.Body))
				want := tc.state
				if op.Repeat == idem.Repeatable {
					want = idem.Released
				}
				require.Equal(t, want, r.state(t, key))
				require.Equal(t, tc.state == idem.Unknown, r.record(t, key).Uncertain)
			})
		}
	}
}
