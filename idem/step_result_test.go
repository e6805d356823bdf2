package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
)

// What has succeeded is done, although its result cannot be kept: it is not run
// again, neither in its attempt nor in a later one, and all of them are told the same.
func TestStepWhoseResultCannotBeKept(t *testing.T) {
	for _, kind := range []string{"error", "panic", "panic back", "too large"} {
		for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
			t.Run(kind, func(t *testing.T) {
				r := newRigAt(t, memstore.Options{MaxResult: 1000}.New(), new(idemtest.Clock), nil)
				key := safe.Key("t", "k")
				runs := 0
				var told []*idem.StepUnavailableError
				handler := func(end func(error) error) func(context.Context) (string, error) {
					return func(ctx context.Context) (string, error) {
						retry := idem.Retry{MaxTries: 3, InitialDelay: time.Nanosecond}
						var err error
						if kind == "too large" {
							_, err = idem.Step(ctx, "s", func(context.Context) ([]byte, error) { runs++; return make([]byte, 1000), nil },
								&idem.StepConfig[[]byte]{Semantics: semantics, Retry: retry})
						} else {
							_, err = idem.Step(ctx, "s", func(context.Context) (awkward, error) { runs++; return awkward{kind}, nil },
								&idem.StepConfig[awkward]{Semantics: semantics, Retry: retry})
						}
						require.ErrorAs(t, err, new(*idem.StepUnavailableError))
						var of *idem.StepUnavailableError
						require.ErrorAs(t, err, &of)
						told = append(told, of)
						return "", end(err)
					}
				}
				_, err := doSteps(t, r, key, handler(func(err error) error { return err }))
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				require.Equal(t, idem.Released, r.state(t, key))
				require.True(t, r.record(t, key).Steps["s"].Omitted)
				_, err = doSteps(t, r, key, handler(idem.PermanentStep))
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				require.Equal(t, idem.Failed, r.state(t, key), "it is the step's outcome")
				require.Equal(t, 1, runs)
				require.Equal(t, told[0], told[1])
				require.Equal(t, "s", told[0].Name)
				require.NotEmpty(t, told[0].Reason)
			})
		}
	}
}

// The compensation would need the result: somebody must look.
func TestStepWithoutItsResultCannotBeUndone(t *testing.T) {
	for _, again := range []bool{false, true} {
		r, e := newRig(t, nil), new(effects)
		key := safe.Key("t", "k")
		handler := func(end error) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "flight", e.step("flight"), &idem.StepConfig[receiptOf]{Compensate: e.undo("flight")})
				require.NoError(t, err)
				_, err = idem.Step(ctx, "s", func(context.Context) (awkward, error) { return awkward{"error"}, nil },
					&idem.StepConfig[awkward]{Compensate: func(context.Context, awkward) error { panic("there is no result") }})
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				return "", end
			}
		}
		if again {
			_, err := doSteps(t, r, key, handler(errPlain))
			require.Same(t, errPlain, err)
		}
		_, err := doSteps(t, r, key, handler(idem.Permanent(declinedError{})))
		require.ErrorContains(t, err, `step "s" cannot be undone`)
		require.Equal(t, idem.Unknown, r.state(t, key))
		require.Zero(t, e.ran("undo flight"), "nothing is undone across it")
	}
}

// What was found out about an interrupted step is kept like what the step gave.
func TestInterruptedStepWhoseResultCannotBeKept(t *testing.T) {
	r := newRig(t, nil)
	key := safe.Key("t", "k")
	killedWith(t, r, key, shipping)
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "ship", func(context.Context) (awkward, error) { panic("not run") }, &idem.StepConfig[awkward]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately, Interrupted: func(context.Context, time.Time) (awkward, error) { return awkward{"error"}, nil }})
		return "", err
	})
	require.ErrorAs(t, err, new(*idem.StepUnavailableError))
	require.True(t, r.record(t, key).Steps["ship"].Omitted)
}
