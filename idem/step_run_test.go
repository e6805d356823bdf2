package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The context of a step's caller may end while its begin mark is written, such as by a sibling's failure under an
// errgroup. That leaves no write in doubt, no step open that has not begun, and does not say for the handler that
// nothing was executed.
func TestCancelledStep(t *testing.T) {
	for _, op := range both {
		r, key := rigOn(t, op)
		attempt := func(end error) error {
			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				inner, cancel := context.WithCancel(ctx)
				defer cancel()
				r.faults.Next(idemtest.RecordStep, func(ctx context.Context, c *idemtest.Call) error {
					cancel()
					return c.Do(ctx)
				})
				err := act{name: "ship", once: true}.run(inner, r.e)
				require.ErrorIs(t, err, context.Canceled)
				require.NoError(t, ctx.Err(), "the operation goes on")
				return "", cmp.Or(end, err)
			})
			return err
		}
		require.ErrorIs(t, attempt(nil), context.Canceled)
		require.Equal(t, under(op, idem.Released, idem.Unknown), r.state(t, key))
		require.True(t, r.record(t, key).Steps["ship"].NotExecuted)
		if op.Repeat == idem.Repeatable {
			require.ErrorIs(t, attempt(declines), declinedError{})
			require.Equal(t, idem.Failed, r.state(t, key))
		}
		require.Zero(t, r.e.ran("ship"))
	}
}

// What is recorded is needed to undo it too, cancelled or not.
func TestCancelledReplay(t *testing.T) {
	r, key := rigOn(t, safe)
	for _, last := range []error{errPlain, idem.Permanent(declinedError{})} {
		refused(t, r, key, nil, steps(func(ctx context.Context) (string, error) {
			inner, cancel := context.WithCancel(ctx)
			if r.e.ran("flight") > 0 {
				cancel()
			}
			defer cancel()
			_, err := idem.Step(inner, "flight", r.e.step("flight"), &idem.StepConfig[receiptOf]{Compensate: r.e.undo("flight")})
			require.NoError(t, err)
			return "", last
		}))
	}
	require.Equal(t, []int{1, 1}, r.e.all("flight", "undo flight"))
	require.Equal(t, idem.Failed, r.state(t, key))
}

// A handler that returns while a step still runs has no outcome: it would be one of
// effects that are not there yet. And nothing begins behind its back.
func TestHandlerThatReturnsBeforeItsSteps(t *testing.T) {
	for name, result := range map[string]error{"with a result": nil, "with a failure": idem.Permanent(declinedError{})} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			inside, finish := make(chan struct{}), make(chan struct{})
			var left sync.WaitGroup
			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				left.Go(func() {
					_, _ = idem.Step(ctx, "ship", func(context.Context) (int, error) {
						close(inside)
						<-finish
						return 1, nil
					}, nil)
				})
				<-inside
				return "too early", result
			})
			mistaken(t, err, `step "ship"`)
			if result != nil {
				require.ErrorIs(t, err, declinedError{})
			}
			require.Equal(t, idem.Released, r.state(t, key))
			close(finish)
			left.Wait()
			require.Empty(t, r.record(t, key).Steps, "it has lost the claim")
			must(t, r, key, tried{acts: []act{{name: "ship"}}}.handler(r.e))
		})
	}
}

// A compensation that fails permanently while the attempt is parked from the side.
func TestCompensationAtTheDeadline(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		kill := time.Now().Add(10 * time.Second)
		parks := kill.Add(-500 * time.Millisecond)
		_, err := idem.Do(idem.WithKillTime(t.Context(), kill), r.engine, key, 1,
			func(ctx context.Context, _ int) (string, error) {
				_, err := idem.Step(ctx, "pay", r.e.step("pay"),
					&idem.StepConfig[receiptOf]{Compensate: func(context.Context, receiptOf) error {
						time.Sleep(time.Until(parks)) // ignores its context
						return idem.Permanent(errPlain)
					}})
				require.NoError(t, err)
				return "", idem.Abort(ctx, declinedError{})
			})
		require.ErrorIs(t, err, errPlain)
		require.Equal(t, idem.Unknown, r.state(t, key))
	})
}

// Whatever the rate, a delay stays within its bound.
func TestRetryDelaysDoNotOverflow(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		day := 24 * time.Hour
		many := make([]error, 20)
		for i := range many {
			many[i] = errPlain
		}
		must(t, r, key, steps(func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "r", r.e.step("r"),
				&idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxTries: 3, MaxDelay: math.MaxInt64}})
			require.ErrorContains(t, err, "over a day")
			_, err = idem.Step(ctx, "ship", r.e.step("ship", many...),
				&idem.StepConfig[receiptOf]{Retry: idem.Retry{MaxTries: 21, InitialDelay: day, MaxDelay: day, BackoffRate: 100}})
			return "done", err
		}))
		require.Equal(t, 21, r.e.ran("ship"))
	})
}

// Steps and references side by side, over several renewals of the lease, some of them retried, some
// failing; the next attempt runs only what has no result.
func TestParallelStepsUnderARenewedLease(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		const n = 30
		for round := range 2 {
			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				var wg sync.WaitGroup
				errs := make([]error, n)
				for i := range n {
					wg.Go(func() {
						name := "step-" + strconv.Itoa(i)
						var once []error
						if i%3 == 0 {
							once = []error{idem.NotExecuted(errPlain)}
						}
						got, err := idem.Step(ctx, name, func(ctx context.Context) (receiptOf, error) {
							time.Sleep(time.Duration(i) * time.Second)
							if err := idem.SetReference(ctx, "pay-"+name); err != nil {
								return receiptOf{}, err
							}
							return r.e.step(name, once...)(ctx)
						}, &idem.StepConfig[receiptOf]{Semantics: idem.StepSemantics(i % 2), Compensate: r.e.undo(name),
							Reference: map[int]string{1: "order-" + name}[i%2]})
						assert.True(t, err != nil || got.ID == name, "it has the result of its own")
						errs[i] = err
					})
				}
				wg.Wait()
				return "done", errors.Join(errs...)
			})
			require.Equal(t, round == 1, err == nil, "%v", err)
		}
		for i := range n {
			want := 1
			if i%3 == 0 {
				want = 2
			}
			require.Equal(t, want, r.e.ran("step-"+strconv.Itoa(i)))
		}
		require.True(t, slices.Contains(r.faults.Calls(), idemtest.Extend))
		require.Equal(t, "pay-step-27", r.record(t, key).Ref, "of the last step that ran")
	})
}

// A step for which there might be no room does not run, and what came before it can still be undone.
func TestStepsBeyondTheRoom(t *testing.T) {
	long := strings.Repeat("n", 90) // fewer steps fill the room
	for name, result := range map[string]string{"small": "", "large": strings.Repeat("x", 2000)} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			var last string
			ran, undone := 0, 0
			handler := func(end func(error) error) func(context.Context) (string, error) {
				return func(ctx context.Context) (string, error) {
					for n := 0; ; n++ {
						last = fmt.Sprintf("%s-%d", long, n)
						_, err := idem.Step(ctx, last, func(context.Context) (string, error) { ran++; return result, nil },
							&idem.StepConfig[string]{Compensate: func(context.Context, string) error { undone++; return nil }})
						if err != nil {
							return "", end(err)
						}
					}
				}
			}
			_, err := doSteps(t, r, key, handler(func(err error) error { return err }))
			limit := errorAs[*idem.StepLimitError](t, err)
			require.Equal(t, last, limit.Name)
			require.LessOrEqual(t, limit.Taken, limit.Limit)
			require.Equal(t, protocol.StepRoom, limit.Limit)
			require.Greater(t, ran, 300)
			require.NotContains(t, r.record(t, key).Steps, last)
			require.Equal(t, idem.Released, r.state(t, key))
			before, where := ran, last

			refused(t, r, key, new(*idem.StepLimitError), steps(handler(idem.Permanent)))
			require.Equal(t, where, last, "the same one in every attempt")
			require.Equal(t, before, ran)
			require.Equal(t, ran, undone)
			require.Equal(t, idem.Failed, r.state(t, key))
		})
	}
}

// Steps that end side by side share what the record keeps of results.
func TestStepsSideBySideKeepToTheRoom(t *testing.T) {
	const steps, size = 400, 1000
	synctest.Test(t, func(t *testing.T) {
		store := &stepWatch{Store: memstore.New(), all: make(chan struct{})}
		engine := engineOver(t, store, nil)
		_, err := idem.Do(t.Context(), engine, safe.Key("t", "k"), "in", func(ctx context.Context, _ string) (string, error) {
			var done sync.WaitGroup
			for n := range steps {
				done.Go(func() {
					_, err := idem.Step(ctx, fmt.Sprint("step-", n),
						func(context.Context) (string, error) { return strings.Repeat("x", size), nil }, nil)
					if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			close(store.all)
			done.Wait()
			return "", nil
		})
		require.NoError(t, err)
		require.Equal(t, steps, store.writes)
		require.Greater(t, store.inline, 32<<10)
		require.LessOrEqual(t, store.inline, 64<<10, "else the record is too large for what ends it")
	})
}

// stepWatch is a store that adds up what the record is to keep of steps' results.
type stepWatch struct {
	idem.Store
	all chan struct{}

	mu             sync.Mutex
	writes, inline int
}

func (s *stepWatch) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	<-s.all
	s.mu.Lock()
	s.writes++
	if !w.InParts {
		s.inline += len(w.Result) - 128 // so much it keeps of every one
	}
	s.mu.Unlock()
	return s.Store.RecordStep(ctx, now, w)
}

// Errors that are steps' outcomes are cut where there is room for no more.
func TestErrorsOfStepsDoNotFillTheRecord(t *testing.T) {
	r, key := rigOn(t, safe)
	taken := 0
	must(t, r, key, func(ctx context.Context, _ int) (string, error) {
		for n := 0; ; n++ {
			_, err := idem.Step(ctx, fmt.Sprintf("step-%d", n), func(context.Context) (int, error) {
				return 0, idem.Permanent(fmt.Errorf("%s: %w", strings.Repeat("x", 1<<20), declinedError{}))
			}, nil)
			if _, full := err.(*idem.StepLimitError); full {
				break
			}
		}
		for name, s := range r.record(t, key).Steps {
			taken += 192 + len(name) + len(s.Failure.Message) + len(s.Failure.Type) + len(s.Failure.Code)
		}
		return "", nil
	})
	require.Greater(t, taken, protocol.StepRoom*9/10)
	require.LessOrEqual(t, taken, protocol.StepRoom)
}

// A takeover keeps the record's identity and steps, and shows the same outcome live as on replay.
func TestTakeoverKeepsIdentityAndSteps(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		op := safe
		op.Values = idem.KeepValues
		key := op.Key("t", "k")
		killedWith(t, r, key, charged)
		before := r.record(t, key)
		live := mustRun(t, r, key, func(context.Context, int) (int, error) {
			rec := r.record(t, key)
			require.Equal(t, 2, rec.Attempt)
			require.Equal(t, before.Steps, rec.Steps)
			require.Equal(t, "k", rec.Value)
			require.Zero(t, rec.ExpiresAt, "a record with steps waits for its next attempt")
			return 1, nil
		})
		replay := mustRun(t, r, key, new(counter).run)
		require.Equal(t, before.CreatedAt, live.Outcome.CreatedAt)
		live.Outcome.Executed, live.Outcome.Replayed, live.Outcome.AttemptState = false, true, ""
		live.Outcome.Class = idem.ClassDefault
		require.Equal(t, live.Outcome, replay.Outcome)
	})
}

// The other system may not know the request yet. That it does not is proof only once its longest delay is over; until
// then the step stays open and is asked about again.
func TestAbsenceIsProofOnlyAfterTheLongestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 10 * time.Minute
		r, key := rigOn(t, safe)
		var began []time.Time
		handler := func(ctx context.Context) (string, error) {
			got, err := idem.Step(ctx, "charge", r.e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce,
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
			require.Zero(t, r.e.ran("charge"))
		}
		r.clock.Advance(idem.DefaultMargin)
		require.Equal(t, "charge", must(t, r, key, steps(handler)))
		require.Equal(t, 1, r.e.ran("charge"))
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

// A function that runs after all has a begin mark of its own time, and so has each try of one that had no effect.
func TestEachRunHasABeginMarkOfItsOwn(t *testing.T) {
	for name, tries := range map[string]int{"after it was asked about": 1, "tried again": 2} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, shipping)
			runs := 0
			must(t, r, key, steps(func(ctx context.Context) (string, error) {
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
			}))
			require.Equal(t, tries, runs)
		})
	}
}

// A handler may return while a begin mark is on its way. The attempt ends as if nothing
// had begun, so nothing does: the next one would run it a second time.
func TestNothingRunsWhoseMarkLandsAfterTheHandler(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		key, landed := safe.Key("t", "k"), make(chan struct{})
		r.faults.Next(idemtest.RecordStep, func(ctx context.Context, c *idemtest.Call) error {
			err := c.Do(ctx)
			<-landed
			return err
		})
		charge := func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", r.e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce,
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
		require.Zero(t, r.e.ran("charge"))

		must(t, r, key, func(ctx context.Context, _ int) (string, error) { return "", charge(ctx) })
		require.Equal(t, 1, r.e.ran("charge"))
	})
}

// The write of a step that cannot be shown to have landed stops the operation, and
// the handler's result does not count.
func TestStepThatIsNotRecordedStopsTheOperation(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"reply lost": idemtest.LoseReply,
		"request lost": idemtest.LoseRequest, "in Lambda": idemtest.Refuse} {
		for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
			testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Always(fault, idemtest.RecordStep)
				process := r.in(inside(t, name == "in Lambda"))
				refused(t, process, key, idem.ErrStoreUnavailable, func(ctx context.Context, _ int) (string, error) {
					_, err := idem.Step(ctx, "ship", r.e.step("ship"), &idem.StepConfig[receiptOf]{Semantics: semantics})
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					require.ErrorIs(t, context.Cause(ctx), idem.ErrStoreUnavailable)
					_, again := idem.Step(ctx, "more", r.e.step("more"), nil)
					require.Equal(t, err, again)
					return "pretends", nil
				})
				require.Zero(t, r.e.ran("more"))
				if semantics == idem.AtMostOnce {
					require.Zero(t, r.e.ran("ship"))
				}
				require.Equal(t, idem.Released, r.state(t, key), "nothing runs that is not recorded as begun")
				r.faults.Heal()
				must(t, r, key, tried{acts: []act{{name: "ship", once: semantics == idem.AtMostOnce}}}.handler(r.e))
				require.LessOrEqual(t, r.e.ran("ship"), 2-int(semantics))
			})
		}
	}
}

// An attempt that was taken over finds out with what it records next, and its caller gets the recorded outcome.
func TestZombieStopsAtItsNextStep(t *testing.T) {
	never := func(context.Context) (int, error) { panic("it must not run") }
	for name, next := range map[string]func(context.Context) error{
		"a step": func(ctx context.Context) error { _, err := idem.Step(ctx, "ship", one, nil); return err },
		"a step of at most once": func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", never, onceOnly)
			return err
		},
		"a reference": func(ctx context.Context) error { return idem.SetReference(ctx, "pay_1") },
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			require.Equal(t, 1, must(t, r.inLambda(), key, func(ctx context.Context, _ int) (int, error) {
				r.clock.Advance(time.Hour)
				must(t, r.elsewhere(t), key, refer(t, "pay_2"))
				require.ErrorIs(t, next(ctx), idem.ErrLeaseLost)
				require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
				_, err := idem.Step(ctx, "more", never, nil)
				require.ErrorIs(t, err, idem.ErrLeaseLost)
				return 7, nil
			}))
			require.Equal(t, "pay_2", r.record(t, key).Ref)
		})
	}
}

// No handler runs into a panic of the engine's when its step panics: it goes on, and the record says what is known.
func TestPanicInAStep(t *testing.T) {
	for semantics, want := range map[idem.StepSemantics]idem.State{idem.AtLeastOnce: idem.Released,
		idem.AtMostOnce: idem.Unknown} {
		r, key := rigOn(t, safe)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { panic("boom") },
					&idem.StepConfig[int]{Semantics: semantics})
				return "", err
			})
		})
		require.Equal(t, want, r.state(t, key))
	}
}
