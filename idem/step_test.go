package idem_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

type receiptOf struct{ ID string }

// errDeclined has a type of its own, which survives being recorded.
type declinedError struct{}

func (declinedError) Error() string     { return "card declined" }
func (declinedError) ErrorCode() string { return "card_declined" }

// effects counts how often each step's function ran.
type effects struct {
	mu   sync.Mutex
	runs map[string]int
}

func (e *effects) ran(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[name]
}

func (e *effects) step(name string, errs ...error) func(context.Context) (receiptOf, error) {
	return func(context.Context) (receiptOf, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.runs == nil {
			e.runs = map[string]int{}
		}
		e.runs[name]++
		if n := e.runs[name]; n <= len(errs) && errs[n-1] != nil {
			return receiptOf{}, errs[n-1]
		}
		return receiptOf{name}, nil
	}
}

// found is what there is to find out about a step that was interrupted.
func (e *effects) found(name string, errs ...error) func(context.Context, time.Time) (receiptOf, error) {
	return func(ctx context.Context, _ time.Time) (receiptOf, error) { return e.step(name, errs...)(ctx) }
}

// undo is the compensation of a step.
func (e *effects) undo(name string, errs ...error) func(context.Context, receiptOf) error {
	return func(ctx context.Context, r receiptOf) error {
		if r.ID != name {
			return errors.New("not what " + name + " returned: " + r.ID)
		}
		_, err := e.step("undo "+name, errs...)(ctx)
		return err
	}
}

// alone is a handler with one step, whose result is its own.
func (e *effects) alone(
	name string, c *idem.StepConfig[receiptOf], errs ...error,
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		got, err := idem.Step(ctx, name, e.step(name, errs...), c)
		return got.ID, err
	}
}

// book runs a step that takes effect, and is undone with its operation.
func (e *effects) book(ctx context.Context, t *testing.T, name string, undo ...error) {
	t.Helper()
	_, err := idem.Step(ctx, name, e.step(name), &idem.StepConfig[receiptOf]{Compensate: e.undo(name, undo...)})
	require.NoError(t, err)
}

// steps is a handler whose input does not matter.
func steps(fn func(context.Context) (string, error)) func(context.Context, int) (string, error) {
	return func(ctx context.Context, _ int) (string, error) { return fn(ctx) }
}

func doSteps(t *testing.T, r *rig, key idem.Key, fn func(context.Context) (string, error)) (string, error) {
	t.Helper()
	return idem.Do(t.Context(), r.engine, key, 1, steps(fn))
}

func TestRecordedStepIsSkipped(t *testing.T) {
	for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
		r, key := rigOn(t, safe)
		handler := func(last error) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				first, err := idem.Step(ctx, "charge", r.e.step("charge"), &idem.StepConfig[receiptOf]{Semantics: semantics})
				if err != nil {
					return "", err
				}
				second, err := idem.Step(ctx, "ship", r.e.step("ship", last), nil)
				return first.ID + second.ID, err
			}
		}
		errs(t, r, key, steps(handler(errPlain)))
		require.Equal(t, idem.Released, r.state(t, key))
		require.Zero(t, r.record(t, key).ExpiresAt, "steps wait for their operation, however long")
		out := must(t, r, key, steps(handler(errPlain)))
		require.Equal(t, "chargeship", out)
		require.Equal(t, 1, r.e.ran("charge"))
		require.Equal(t, 2, r.e.ran("ship"))
		require.Empty(t, r.record(t, key).Steps, "they go with the outcome")
		require.NotZero(t, r.record(t, key).ExpiresAt)
		require.Equal(t, out, must(t, r, key, steps(nil2)))
	}
}

func nil2(context.Context) (string, error) { panic("the outcome is recorded") }

// A not repeatable operation that executed nothing more keeps its steps.
func TestStepsOfANotRepeatableOperation(t *testing.T) {
	r, key := rigOn(t, unsafe)
	handler := func(err error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			if _, err := idem.Step(ctx, "charge", r.e.step("charge"), nil); err != nil {
				return "", err
			}
			return "done", err
		}
	}
	errs(t, r, key, steps(handler(idem.NotExecuted(errPlain))))
	require.Equal(t, idem.Released, r.state(t, key))
	require.Equal(t, "done", must(t, r, key, steps(handler(nil))))
	require.Equal(t, 1, r.e.ran("charge"))
}

// The value is the same live and on replay, though JSON does not keep it.
func TestStepResultGoesThroughItsCodec(t *testing.T) {
	type lossy struct {
		Kept   int
		hidden int
	}
	r, key := rigOn(t, safe)
	for range 2 {
		errs(t, r, key, func(ctx context.Context, _ int) (string, error) {
			v, err := idem.Step(ctx, "s", func(context.Context) (lossy, error) { return lossy{1, 2}, nil }, nil)
			require.NoError(t, err)
			require.Equal(t, lossy{Kept: 1}, v)
			return "", errPlain
		})
	}
}

func TestPermanentErrorIsTheStepsOutcome(t *testing.T) {
	r, key := rigOn(t, safe)
	var got []error
	for range 2 {
		errs(t, r, key, func(ctx context.Context, _ int) (string, error) {
			_, err := idem.Step(ctx, "charge", r.e.step("charge", idem.Permanent(declinedError{})), nil)
			got = append(got, err)
			return "", errPlain // and not the step's
		})
	}
	require.Equal(t, 1, r.e.ran("charge"))
	require.ErrorIs(t, got[0], declinedError{})
	rec := errorAs[*idem.RecordedError](t, got[1])
	require.Equal(t, idem.Failure{Message: "card declined", Type: "declinedError", Code: "card_declined"}, rec.Failure)
	// The handler may make it the operation's outcome too.
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "charge", r.e.step("charge"), nil)
		return "", idem.PermanentStep(err)
	})
	require.EqualError(t, err, "card declined")
	require.Equal(t, idem.Failed, r.state(t, key))
	require.Equal(t, rec.Failure, *r.record(t, key).Failure)
}

// An at-most-once step whose process died is not run again: a handler that cannot
// close it parks the operation, even if it is repeatable. The mark holds, whatever the step has been
// declared as since.
func TestInterruptedStepIsNotRunAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		swallow  bool
		declared idem.StepSemantics
	}{
		"returned":              {false, idem.AtMostOnce},
		"swallowed":             {true, idem.AtMostOnce},
		"of an old declaration": {false, idem.AtLeastOnce},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, charged, shipping)
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
				_, err := idem.Step(ctx, "ship", r.e.step("ship"), &idem.StepConfig[receiptOf]{Semantics: tc.declared})
				require.ErrorAs(t, err, new(*idem.StepInterruptedError))
				if tc.swallow {
					return 1, nil
				}
				return 0, err
			})
			interrupted := errorAs[*idem.StepInterruptedError](t, err)
			require.Equal(t, "ship", interrupted.Name)
			require.Equal(t, idem.Unknown, r.state(t, key))
			require.Zero(t, r.e.ran("ship"))
			refused(t, r, key, idem.ErrOutcomeUnknown, new(counter).run)
		})
	}
}

func TestInterruptedStepIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		found error
		runs  int
		state idem.State
		err   string
	}{
		"took effect":     {nil, 0, idem.Completed, ""},
		"had no effect":   {idem.NotExecuted(errPlain), 1, idem.Completed, ""},
		"was declined":    {idem.Permanent(declinedError{}), 0, idem.Failed, "card declined"},
		"cannot be known": {errPlain, 0, idem.Unknown, "plain"},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, shipping)
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, _ int) (int, error) {
				got, err := idem.Step(ctx, "ship", r.e.step("ship"), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce,
					NotFoundFinalAfter: idem.Immediately, Interrupted: r.e.found("found", c.found)})
				if err == nil && c.runs == 0 {
					require.Equal(t, "found", got.ID)
				}
				return 0, idem.PermanentStep(err)
			})
			require.Equal(t, c.state, r.state(t, key))
			require.Equal(t, c.runs, r.e.ran("ship"))
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

// What an at-most-once step's own error says decides whether it is open.
func TestErrorsOfAnAtMostOnceStep(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		state idem.State
		runs  int // after a second call
	}{
		"plain":        {errPlain, idem.Unknown, 1},
		"not executed": {idem.NotExecuted(errPlain), idem.Released, 2},
		"permanent":    {idem.Permanent(errPlain), idem.Failed, 1},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			handler := func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "ship", r.e.step("ship", c.err), &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce})
				return "done", idem.PermanentStep(err)
			}
			refused(t, r, key, errPlain, steps(handler))
			require.Equal(t, c.state, r.state(t, key))
			_, _ = doSteps(t, r, key, handler)
			require.Equal(t, c.runs, r.e.ran("ship"))
		})
	}
}

func TestStepRetries(t *testing.T) {
	many := []error{errPlain, errPlain, errPlain, errPlain, errPlain}
	permanent, excluded := idem.Permanent(errPlain), idem.NotExecuted(errPlain)
	for name, c := range map[string]struct {
		semantics idem.StepSemantics
		retry     idem.Retry
		errs      []error
		runs      int
		ok        bool
	}{
		"not without being asked":         {idem.AtLeastOnce, idem.Retry{}, many[:1], 1, false},
		"until it works":                  {idem.AtLeastOnce, idem.Retry{MaxTries: 3}, many[:2], 3, true},
		"up to the limit":                 {idem.AtLeastOnce, idem.Retry{MaxTries: 4}, many, 4, false},
		"not a permanent error":           {idem.AtLeastOnce, idem.Retry{MaxTries: 3}, []error{permanent}, 1, false},
		"at most once: not a plain error": {idem.AtMostOnce, idem.Retry{MaxTries: 3}, many[:1], 1, false},
		"at most once: no effect":         {idem.AtMostOnce, idem.Retry{MaxTries: 3}, []error{excluded, excluded}, 3, true},
		"not past the deadline": {idem.AtLeastOnce,
			idem.Retry{MaxTries: 99, InitialDelay: time.Hour, MaxDelay: time.Hour}, many, 1, false},
		"with delays that grow to a bound": {idem.AtLeastOnce,
			idem.Retry{MaxTries: 5, MaxDelay: time.Second, BackoffRate: 100}, many[:4], 5, true},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1,
				steps(r.e.alone("ship", &idem.StepConfig[receiptOf]{Semantics: c.semantics, Retry: c.retry}, c.errs...)))
			require.Equal(t, c.ok, err == nil, "%v", err)
			require.Equal(t, c.runs, r.e.ran("ship"))
		})
	}
}

// A recorded result that no longer fits stops the operation: guessing would be
// worse.
func TestRecordedStepResultThatDoesNotFit(t *testing.T) {
	r, key := rigOn(t, safe)
	killedWith(t, r, key, protocol.StepWrite{Name: "charge", Result: []byte(`"panic back"`)})
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", func(context.Context) (receiptOf, error) { panic("recorded") }, nil)
			return err
		},
		func(ctx context.Context) error {
			_, err := idem.Step(ctx, "charge", func(context.Context) (awkward, error) { panic("recorded") }, nil)
			return err
		},
	} {
		refused(t, r, key, idem.ErrRecordUnreadable, func(ctx context.Context, _ int) (int, error) {
			require.ErrorIs(t, step(ctx), idem.ErrRecordUnreadable)
			return 1, nil // swallowed
		})
		require.Equal(t, idem.Released, r.state(t, key), "the code that recorded it reads it")
		require.Contains(t, r.events.take(), "record_unreadable")
	}
}

// Each step has a token of its own, the same in every attempt.
func TestStepTokens(t *testing.T) {
	r, key := rigOn(t, safe)
	seen := map[string][]string{}
	note := func(ctx context.Context, what string) {
		info, ok := idem.InfoOf(ctx)
		require.True(t, ok)
		require.Equal(t, idem.Token(ctx), info.Token)
		if what != "handler" {
			require.Equal(t, strings.TrimPrefix(what, "undo "), strings.TrimPrefix(info.Step, "idem:undo:"))
		}
		seen[what] = append(seen[what], idem.Token(ctx))
	}
	for range 2 {
		refused(t, r, key, nil, steps(func(ctx context.Context) (string, error) {
			note(ctx, "handler")
			for _, name := range []string{"a", "b"} {
				_, err := idem.Step(ctx, name, func(ctx context.Context) (int, error) {
					note(ctx, name)
					return 0, idem.NotExecuted(errPlain)
				}, nil)
				require.Error(t, err)
			}
			return "", errPlain
		}))
	}
	all := map[string]bool{}
	for what, tokens := range seen {
		require.Len(t, tokens, 2, what)
		require.Equal(t, tokens[0], tokens[1], what)
		all[tokens[0]] = true
	}
	require.Len(t, all, 3)
}

func TestStepMistakes(t *testing.T) {
	r := newRig(t, nil)
	_, err := idem.Step(t.Context(), "s", r.e.step("s"), nil)
	mistaken(t, err, "pass the context that the handler was given")
	var escaped context.Context
	must(t, r, safe.Key("t", "k"), steps(func(ctx context.Context) (string, error) {
		escaped = ctx
		_, err := idem.Step(ctx, "once", r.e.step("once"), nil)
		require.NoError(t, err)
		for problem, try := range map[string]func() error{
			"used twice": func() error { _, err := idem.Step(ctx, "once", r.e.step("s"), nil); return err },
			"is empty":   func() error { _, err := idem.Step(ctx, "", r.e.step("s"), nil); return err },
			"101 bytes":  func() error { _, err := idem.Step(ctx, strings.Repeat("x", 101), r.e.step("s"), nil); return err },
			"control":    func() error { _, err := idem.Step(ctx, "a\nb", r.e.step("s"), nil); return err },
			"own":        func() error { _, err := idem.Step(ctx, "idem:undo:once", r.e.step("s"), nil); return err },
			"is nil":     func() error { _, err := idem.Step[int](ctx, "nil", nil, nil); return err },
			"chan": func() error {
				_, err := idem.Step(ctx, "c", func(context.Context) (chan int, error) { return nil, nil }, nil)
				return err
			},
			"do not nest": func() error {
				_, err := idem.Step(ctx, "outer", func(ctx context.Context) (int, error) {
					return idem.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil }, nil)
				}, nil)
				return err
			},
		} {
			mistaken(t, try(), problem)
		}
		for problem, config := range map[string]idem.StepConfig[receiptOf]{
			"MaxTries is -1":                 {Retry: idem.Retry{MaxTries: -1}},
			"delay":                          {Retry: idem.Retry{MaxTries: 3, MaxDelay: -1}},
			"BackoffRate":                    {Retry: idem.Retry{MaxTries: 3, BackoffRate: 0.5}},
			"no MaxTries":                    {Retry: idem.Retry{MaxDelay: time.Second}},
			"Semantics is 7":                 {Semantics: 7},
			"with its unit":                  {Semantics: idem.AtMostOnce, NotFoundFinalAfter: 10, Interrupted: r.e.found("s")},
			"NotFoundFinalAfter is missing":  {Semantics: idem.AtMostOnce, Interrupted: r.e.found("s")},
			"no meaning without Interrupted": {Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately},
			"cannot be negative": {
				Semantics: idem.AtMostOnce, NotFoundFinalAfter: -time.Minute, Interrupted: r.e.found("s"),
			},
			"just run again": {NotFoundFinalAfter: idem.Immediately, Interrupted: r.e.found("s")},
		} {
			_, err := idem.Step(ctx, "r", r.e.step("s"), &config)
			mistaken(t, err, problem)
		}
		require.Zero(t, r.e.ran("s"), "nothing runs after a mistake")
		return "", nil
	}))
	_, err = idem.Step(escaped, "late", r.e.step("s"), nil)
	require.ErrorContains(t, err, "the handler has returned")
}

// No function would be asked after a crash. Whoever declares that learns it at the first call, before the
// step runs.
func TestInterruptedIsRefusedWhereNobodyWouldBeAsked(t *testing.T) {
	r := newRig(t, nil)
	for name, tc := range map[string]struct {
		op   idem.Operation
		runs int
	}{
		"not repeatable": {unsafe, 0}, "repeatable": {safe, 1},
	} {
		_, err := doSteps(t, r, tc.op.Key("t", name), r.e.alone(name, &idem.StepConfig[receiptOf]{
			Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately, Interrupted: r.e.found(name),
		}))
		require.Equal(t, tc.runs, r.e.ran(name))
		if tc.runs == 0 {
			mistaken(t, err, "Declare it idem.Repeatable")
			require.Empty(t, r.record(t, tc.op.Key("t", name)).Steps)
			continue
		}
		require.NoError(t, err)
	}
}

// What has succeeded is done, although its result cannot be kept: it is not run
// again, neither in its attempt nor in a later one, and all of them are told the same.
func TestStepWhoseResultCannotBeKept(t *testing.T) {
	for _, kind := range []string{"error", "panic", "panic back", "too large"} {
		for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
			t.Run(kind, func(t *testing.T) {
				r := rigOver(t, memstore.Options{MaxResult: 1000}.New(), new(idemtest.Clock), nil)
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
						of := errorAs[*idem.StepUnavailableError](t, err)
						told = append(told, of)
						return "", end(err)
					}
				}
				_, err := doSteps(t, r, key, handler(func(err error) error { return err }))
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				require.Equal(t, idem.Released, r.state(t, key))
				require.True(t, r.record(t, key).Steps["s"].Omitted)
				refused(t, r, key, new(*idem.StepUnavailableError), steps(handler(idem.PermanentStep)))
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
		r, key := rigOn(t, safe)
		handler := func(end error) func(context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				r.e.book(ctx, t, "flight")
				_, err := idem.Step(ctx, "s", func(context.Context) (awkward, error) { return awkward{"error"}, nil },
					&idem.StepConfig[awkward]{Compensate: func(context.Context, awkward) error { panic("there is no result") }})
				require.ErrorAs(t, err, new(*idem.StepUnavailableError))
				return "", end
			}
		}
		if again {
			errs(t, r, key, steps(handler(errPlain)))
		}
		_, err := doSteps(t, r, key, handler(idem.Permanent(declinedError{})))
		require.ErrorContains(t, err, `step "s" cannot be undone, its result could not be kept`)
		require.Equal(t, idem.Unknown, r.state(t, key))
		require.Zero(t, r.e.ran("undo flight"), "nothing is undone across it")
	}
}

// What was found out about an interrupted step is kept like what the step gave.
func TestInterruptedStepWhoseResultCannotBeKept(t *testing.T) {
	r, key := rigOn(t, safe)
	killedWith(t, r, key, shipping)
	refused(t, r, key, new(*idem.StepUnavailableError), steps(func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "ship", func(context.Context) (awkward, error) {
			panic("not run")
		}, &idem.StepConfig[awkward]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately,
			Interrupted: func(context.Context, time.Time) (awkward, error) { return awkward{"error"}, nil }})
		return "", err
	}))
	require.True(t, r.record(t, key).Steps["ship"].Omitted)
}
