package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// The other system may not know the request yet. That it does not is proof only
// once its longest delay is over; until then the step stays open and is asked about
// again.
func TestAbsenceIsProofOnlyAfterTheLongestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 10 * time.Minute
		r, e, key := stepsOn(t, safe)
		var began []time.Time
		handler := func(ctx context.Context) (string, error) {
			got, err := idem.Step(ctx, "charge", e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce,
				NotFoundFinalAfter: longest, Interrupted: func(_ context.Context, at time.Time) (receiptOf, error) {
					began = append(began, at)
					return receiptOf{}, idem.NotExecuted(errPlain)
				}})
			return got.ID, err
		}
		killed(t, r, key)
		rec := r.record(t, key)
		start := r.clock.Now()
		require.NoError(t, r.mem.RecordStep(t.Context(), start,
			protocol.StepWrite{ID: key.ID(), Owner: rec.Owner, Write: "w", Name: "charge", Begin: true}))
		proof := start.Add(longest + idem.DefaultMargin)
		for _, wait := range []time.Duration{time.Minute, time.Minute, longest - 2*time.Minute} {
			r.clock.Advance(wait)
			_, err := doSteps(t, r, key, handler)
			open := errorAs[*idem.StepInterruptedError](t, err)
			require.WithinDuration(t, proof, open.RetryAt, time.Second)
			require.ErrorIs(t, err, errPlain)
			require.Equal(t, idem.Released, r.state(t, key), "a later attempt asks again")
			require.True(t, r.record(t, key).Steps["charge"].Begun)
			require.True(t, r.record(t, key).Uncertain)
			require.Zero(t, e.ran("charge"))
		}
		r.clock.Advance(idem.DefaultMargin)
		require.Equal(t, "charge", must(t, r, key, steps(handler)))
		require.Equal(t, 1, e.ran("charge"))
		for _, at := range began {
			require.WithinDuration(t, start, at, time.Second)
		}
	})
}

// An answer says what was so when the question was asked, however long it took.
func TestAbsenceCountsFromWhenItWasAskedFor(t *testing.T) {
	r, key := rigOn(t, safe)
	killedWith(t, r, key, shipping)
	runs := 0
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { runs++; return 1, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: 24 * time.Hour,
				Interrupted: func(_ context.Context, began time.Time) (int, error) {
					r.clock.Advance(began.Add(48 * time.Hour).Sub(r.clock.Now()))
					return 0, idem.NotExecuted(errPlain)
				}})
		return "", err
	})
	open := errorAs[*idem.StepInterruptedError](t, err)
	require.False(t, open.RetryAt.IsZero())
	require.Zero(t, runs)
	require.True(t, r.record(t, key).Steps["ship"].Begun)
}

// A function that runs after all has a begin mark of its own time, and so has each
// try of one that had no effect.
func TestEachRunHasABeginMarkOfItsOwn(t *testing.T) {
	for name, tries := range map[string]int{"after it was asked about": 1, "tried again": 2} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, shipping)
			runs := 0
			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) {
					runs++
					require.WithinDuration(t, r.clock.Now(), r.record(t, key).Steps["ship"].BegunAt, 20*time.Second)
					if runs < tries {
						r.clock.Advance(time.Minute)
						return 0, idem.NotExecuted(errPlain)
					}
					return 1, nil
				}, &idem.StepConfig[int]{Semantics: idem.AtMostOnce, Retry: idem.Retry{MaxTries: 3, InitialDelay: time.Nanosecond},
					NotFoundFinalAfter: time.Minute, Interrupted: func(context.Context, time.Time) (int, error) {
						return 0, idem.NotExecuted(errPlain)
					}})
				return "", err
			})
			require.NoError(t, err)
			require.Equal(t, tries, runs)
		})
	}
}

// booking reserves, charges at most once, and fails by hand if the charge does.
type booking struct {
	log      []string
	lost     bool // the charge's reply
	answered error
}

func (b *booking) handler(ctx context.Context) (string, error) {
	undo := func(name string) func(context.Context, string) error {
		return func(context.Context, string) error { b.log = append(b.log, "undo "+name); return nil }
	}
	if _, err := idem.Step(ctx, "reserve", func(context.Context) (string, error) { return "r", nil },
		&idem.StepConfig[string]{Compensate: undo("reserve")}); err != nil {
		return "", err
	}
	_, err := idem.Step(ctx, "charge", func(context.Context) (string, error) {
		b.log = append(b.log, "charge")
		if b.lost {
			return "", errPlain
		}
		return "c", nil
	}, &idem.StepConfig[string]{Compensate: undo("charge"), Semantics: idem.AtMostOnce,
		NotFoundFinalAfter: idem.Immediately, Interrupted: func(context.Context, time.Time) (string, error) {
			b.log = append(b.log, "asked")
			return "c", b.answered
		}})
	if err != nil {
		return "402", idem.Abort(ctx, declinedError{})
	}
	return "ok", nil
}

// Nobody knows whether the charge took effect: what came before is not undone.
func TestCompensateWaitsForAnOpenStep(t *testing.T) {
	r, key, b := newRig(t, nil), safe.Key("t", "k"), &booking{lost: true}
	_, err := doSteps(t, r, key, b.handler)
	open := errorAs[*idem.StepInterruptedError](t, err)
	require.Equal(t, "charge", open.Name)
	require.Equal(t, []string{"charge"}, b.log)
	require.Equal(t, idem.Unknown, r.state(t, key))
	require.NotContains(t, r.record(t, key).Steps, "idem:compensating")
}

// A process that dies there leaves a step that the next attempt asks about.
func TestOpenStepIsAskedAboutBeforeAnythingIsUndone(t *testing.T) {
	r, key, b := newRig(t, nil), safe.Key("t", "k"), &booking{lost: true}
	r.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	_, err := doSteps(t, r, key, b.handler)
	require.Error(t, err)
	r.clock.Advance(time.Hour)
	v, err := doSteps(t, r.elsewhere(t), key, b.handler)
	require.NoError(t, err)
	require.Equal(t, "ok", v)
	require.Equal(t, []string{"charge", "asked"}, b.log)
}

// An operation that is being undone asks about its open step, closes it, and undoes
// it in its turn; it does not run it.
func TestOpenStepOfAnOperationThatIsBeingUndone(t *testing.T) {
	for name, tc := range map[string]struct {
		answered error
		log      []string
		state    idem.State
	}{
		"took effect":     {nil, []string{"asked", "undo charge", "undo reserve"}, idem.Failed},
		"had no effect":   {idem.NotExecuted(errPlain), []string{"asked", "undo reserve"}, idem.Completed},
		"nobody can tell": {errPlain, []string{"asked"}, idem.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			r, key, b := newRig(t, nil), safe.Key("t", "k"), &booking{answered: tc.answered}
			killedWith(t, r, key,
				protocol.StepWrite{Name: "reserve", Result: []byte(`"r"`), Compensates: true},
				protocol.StepWrite{Name: "charge", Begin: true},
				protocol.StepWrite{Name: "idem:compensating", Failure: &idem.Failure{Message: "card declined"}})
			_, _ = doSteps(t, r, key, b.handler)
			require.Equal(t, tc.log, b.log)
			require.Equal(t, tc.state, r.state(t, key))
		})
	}
}

// A handler may return while a begin mark is on its way. The attempt ends as if nothing
// had begun, so nothing does: the next one would run it a second time.
func TestNothingRunsWhoseMarkLandsAfterTheHandler(t *testing.T) {
	rigInBubble(t, func(t *testing.T, r *rig) {
		e := new(effects)
		key, landed := safe.Key("t", "k"), make(chan struct{})
		r.faults.Next(idemtest.RecordStep, func(ctx context.Context, c *idemtest.Call) error {
			err := c.Do(ctx)
			<-landed
			return err
		})
		charge := func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce,
				NotFoundFinalAfter: idem.Immediately, Interrupted: func(context.Context, time.Time) (receiptOf, error) {
					return receiptOf{}, idem.NotExecuted(errPlain)
				}})
			return err
		}
		late := make(chan error)
		refused(t, r, key, errPlain, func(ctx context.Context, _ int) (string, error) {
			go func() { late <- charge(context.WithoutCancel(ctx)) }()
			synctest.Wait()
			return "", errPlain
		})
		require.Equal(t, idem.Released, r.state(t, key))
		close(landed)
		require.Error(t, <-late)
		require.Zero(t, e.ran("charge"))

		must(t, r, key, func(ctx context.Context, _ int) (string, error) { return "", charge(ctx) })
		require.Equal(t, 1, e.ran("charge"))
	})
}

// An operation that is not repeatable runs no attempt that could ask: its record is parked.
func TestInterruptedIsNotAskedOfAnOperationThatIsNotRepeatable(t *testing.T) {
	for name, abandonedAs := range map[string]protocol.Repeat{"always": idem.NotRepeatable,
		"since a deployment": idem.Repeatable} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			op := idem.Operation{Name: "order", Repeat: abandonedAs}
			killedWith(t, r, op.Key("t", "k"), shipping)
			op.Repeat = idem.NotRepeatable
			refused(t, r, op.Key("t", "k"), idem.ErrOutcomeUnknown, func(ctx context.Context, _ int) (string, error) {
				t.Error("the handler ran")
				return idem.Step(ctx, "ship", func(context.Context) (string, error) { return "", nil }, &idem.StepConfig[string]{
					Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately,
					Interrupted: func(context.Context, time.Time) (string, error) { return "shipped", nil },
				})
			})
			require.Equal(t, idem.Unknown, r.state(t, op.Key("t", "k")))
		})
	}
}
