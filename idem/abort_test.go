package idem_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Handlers that fail with a response undo by hand.
func TestAbort(t *testing.T) {
	r, key := rigOn(t, safe)
	out := must(t, r, key, func(ctx context.Context, _ int) (string, error) {
		_, err := tried{acts: trip()}.handler(r.e)(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, idem.Abort(ctx, declinedError{}))
		require.NoError(t, idem.Abort(ctx, declinedError{}), "nothing is left to undo")
		_, err = idem.Step(ctx, "new", r.e.step("new"), nil)
		require.EqualError(t, err, "card declined")
		return "402", nil
	})
	require.Equal(t, "402", out)
	require.Equal(t, []int{1, 1, 1}, r.e.all(tripUndone...))
	require.Equal(t, idem.Completed, r.state(t, key))

	require.ErrorAs(t, idem.Abort(t.Context(), errPlain), new(*idem.ConfigError))
	must(t, r, safe.Key("t", "2"), func(ctx context.Context, _ int) (string, error) {
		require.ErrorAs(t, idem.Abort(ctx, nil), new(*idem.ConfigError))
		_, err := idem.Step(ctx, "s", func(ctx context.Context) (int, error) { return 0, idem.Abort(ctx, errPlain) }, nil)
		require.ErrorAs(t, err, new(*idem.ConfigError))
		return "", nil
	})
}

// inside runs a step whose function has begun when it returns. leave lets that end, and waits for the step.
func (e *effects) inside(ctx context.Context, name string, c *idem.StepConfig[receiptOf]) (leave func() error) {
	entered, left, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idem.Step(ctx, name, func(ctx context.Context) (receiptOf, error) {
			close(entered)
			<-left
			return e.step(name)(ctx)
		}, c)
		done <- err
	}()
	<-entered
	return func() error {
		close(left)
		return <-done
	}
}

// A step that runs while Abort is called is undone once it has ended.
func TestAStepThatRunsDuringAnAbortIsUndone(t *testing.T) {
	for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
		r := newRig(t, nil)
		got := must(t, r, safe.Key("t", "k"), func(ctx context.Context, _ int) (string, error) {
			leave := r.e.inside(ctx, "charge", &idem.StepConfig[receiptOf]{Semantics: semantics, Compensate: r.e.undo("charge")})
			err := idem.Abort(ctx, declinedError{})
			require.ErrorAs(t, err, new(*idem.StepInterruptedError))
			require.ErrorContains(t, err, `step "charge": it still runs`)
			require.NoError(t, leave())
			_, err = idem.Step(ctx, "later", r.e.step("later"), nil)
			require.EqualError(t, err, "card declined", "as after any other Abort")
			return "402", nil
		})
		require.Equal(t, "402", got)
		require.Equal(t, []int{1, 1, 0}, r.e.all("charge", "undo charge", "later"))
	}
}

// An Abort that came too late to undo anything is no end of the operation, whatever the
// handler answers: the next attempt undoes it.
func TestAnAbortWithoutTimeLeavesNoOutcome(t *testing.T) {
	r, key := rigOn(t, safe)
	deliver := func(ctx context.Context, stop func()) (string, error) {
		return idem.Do(ctx, r.engine, key, 1, func(ctx context.Context, _ int) (string, error) {
			r.e.book(ctx, t, "charge")
			stop()
			_ = idem.Abort(ctx, declinedError{})
			return "402", nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := deliver(ctx, cancel)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, idem.Released, r.state(t, key))

	got, err := deliver(t.Context(), func() {})
	require.NoError(t, err)
	require.Equal(t, "402", got)
	require.Equal(t, []int{1, 1}, r.e.all("charge", "undo charge"))
}

// Nothing is undone whose mark may be missing in the record: without it the next attempt
// would take the step for done and complete over it.
func TestNothingIsUndoneWithoutAMarkInTheRecord(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"request lost": idemtest.LoseRequest,
		"reply lost": idemtest.LoseReply} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			pay := &idem.StepConfig[receiptOf]{Compensate: r.e.undo("charge")}
			refused(t, r, key, idem.ErrStoreUnavailable, func(ctx context.Context, _ int) (string, error) {
				_, err := idem.Step(ctx, "charge", r.e.step("charge"), pay)
				require.NoError(t, err)
				r.faults.Next(idemtest.RecordStep, fault)
				for range 2 { // the second one with the mark in mind
					err = idem.Abort(context.WithoutCancel(ctx), declinedError{})
					require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				}
				return "", err
			})
			require.Zero(t, r.e.ran("undo charge"))
			require.Equal(t, idem.Released, r.state(t, key))

			_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
				_, err := idem.Step(ctx, "charge", r.e.step("charge"), pay)
				return "paid", err
			})
			if name == "request lost" {
				require.NoError(t, err, "nothing was undone: it goes on")
				require.Equal(t, []int{1, 0}, r.e.all("charge", "undo charge"))
			} else {
				require.EqualError(t, err, "card declined", "the mark has landed")
				require.Equal(t, []int{1, 1}, r.e.all("charge", "undo charge"))
			}
		})
	}
}

// A step that has a compensation and runs while Abort is called keeps the operation from being
// undone: once that was marked, no later attempt would run the step again and learn what
// it has to undo. Here it takes effect, and what it did is not recorded.
func TestNothingIsUndoneWhileAStepHasNoKnownOutcome(t *testing.T) {
	r, key := rigOn(t, safe)
	deliver := func(first bool) (string, error) {
		return doSteps(t, r, key, func(ctx context.Context) (string, error) {
			r.e.book(ctx, t, "flight")
			leave := r.e.inside(ctx, "hotel", &idem.StepConfig[receiptOf]{Compensate: r.e.undo("hotel")})
			require.ErrorAs(t, idem.Abort(ctx, declinedError{}), new(*idem.StepInterruptedError))
			require.Zero(t, r.e.ran("undo flight"))
			if first {
				r.faults.Next(idemtest.RecordStep, idemtest.LoseRequest)
			}
			require.Equal(t, first, leave() != nil)
			return "402", nil
		})
	}
	_, err := deliver(true)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, idem.Released, r.state(t, key))
	got, err := deliver(false)
	require.NoError(t, err)
	require.Equal(t, "402", got)
	require.Equal(t, []int{1, 2, 1, 1}, r.e.all("flight", "hotel", "undo flight", "undo hotel"))
}

// watched runs a function when it is first asked whether it has ended.
type watched struct {
	context.Context
	asked func()
}

func (w *watched) Err() error {
	if asked := w.asked; asked != nil {
		w.asked = nil
		asked()
	}
	return w.Context.Err()
}

// An Abort in the middle of a step's beginning is before it or after it: a step that was
// not seen to run does not run.
func TestAStepThatIsAboutToRunIsRefusedByAnAbort(t *testing.T) {
	for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
		r := newRig(t, nil)
		got := must(t, r, safe.Key("t", "k"), func(ctx context.Context, _ int) (string, error) {
			r.e.book(ctx, t, "flight")
			begins := &watched{ctx, func() { require.NoError(t, idem.Abort(ctx, declinedError{})) }}
			_, err := idem.Step(begins, "hotel", r.e.step("hotel"), &idem.StepConfig[receiptOf]{Semantics: semantics})
			require.EqualError(t, err, "card declined")
			return "402", nil
		})
		require.Equal(t, "402", got)
		require.Equal(t, []int{1, 0, 1}, r.e.all("flight", "hotel", "undo flight"))
	}
}

// An Abort waits for another one, as long as its context does. A compensation that calls Abort waits for itself.
func TestAnAbortInsideAnAbortEndsWithItsContext(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		key := safe.Key("t", "k")
		err := refused(t, r.in(ctx), key, context.DeadlineExceeded, func(ctx context.Context, _ int) (string, error) {
			_, err := idem.Step(ctx, "charge", r.e.step("charge"), &idem.StepConfig[receiptOf]{
				Compensate: func(undo context.Context, _ receiptOf) error {
					require.ErrorAs(t, idem.Abort(undo, errPlain), new(*idem.ConfigError))
					return idem.Abort(ctx, errPlain) // the handler's own context
				}})
			require.NoError(t, err)
			return "", idem.Abort(ctx, declinedError{})
		})
		require.ErrorContains(t, err, "a compensation must not call Abort")
		require.Equal(t, idem.Released, r.state(t, key))
	})
}

// Parallel calls of Abort undo once, and each returns when that is done, also with the clock's
// goroutines. After the handler's end there is nothing to abort.
func TestTwoAbortsSideBySideUndoOnce(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		var escaped context.Context
		must(t, r.inLambda(), key, func(ctx context.Context, _ int) (string, error) {
			escaped = ctx
			_, err := tried{acts: trip()}.handler(r.e)(ctx, 1)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					assert.NoError(t, idem.Abort(ctx, declinedError{}))
					assert.Equal(t, []int{1, 1, 1}, r.e.all(tripUndone...))
				})
			}
			wg.Wait()
			return "402", nil
		})
		mistaken(t, idem.Abort(escaped, errPlain), "has returned")
	})
}

// What could not be undone needs somebody to look, whatever the handler answers.
func TestNothingExecutedIsNoAnswerToAnAbortThatCouldNotUndo(t *testing.T) {
	for _, op := range both {
		for name, handler := range map[string]func(ctx context.Context, e *effects) (string, error){
			"an error": func(ctx context.Context, e *effects) (string, error) {
				return "", idem.NotExecuted(idem.Abort(ctx, declinedError{}))
			},
			"a response": func(ctx context.Context, e *effects) (string, error) {
				_ = idem.Abort(ctx, declinedError{})
				idem.SetNotExecuted(ctx)
				return "402", nil
			},
		} {
			testOn(t, op.Name+" "+name, op, func(t *testing.T, r *rig, key idem.Key) {
				_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
					r.e.book(ctx, t, "charge", idem.Permanent(errPlain))
					return handler(ctx, r.e)
				})
				require.Equal(t, name == "an error", err != nil)
				require.Equal(t, idem.Unknown, r.state(t, key))
			})
		}
	}
}

// A retry that an Abort refuses is no outcome of the step: where nothing was undone, the next attempt goes forward.
func TestARetryThatIsRefusedIsNoOutcomeOfItsStep(t *testing.T) {
	r, key := rigOn(t, safe)
	deliver := func(aborts bool) error {
		_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
			inside, goOn := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			var sErr error
			charge := r.e.step("charge")
			wg.Go(func() {
				_, sErr = idem.Step(ctx, "charge", func(ctx context.Context) (receiptOf, error) {
					if !aborts {
						return charge(ctx)
					}
					close(inside)
					<-goOn
					return receiptOf{}, idem.NotExecuted(errPlain)
				}, &idem.StepConfig[receiptOf]{Semantics: idem.AtMostOnce, Retry: idem.Retry{MaxTries: 2}})
			})
			if aborts {
				<-inside
				require.ErrorAs(t, idem.Abort(ctx, declinedError{}), new(*idem.StepInterruptedError))
				close(goOn)
			}
			wg.Wait()
			return "paid", sErr
		})
		return err
	}
	require.EqualError(t, deliver(true), "card declined")
	require.Equal(t, idem.Released, r.state(t, key))
	require.True(t, r.record(t, key).Steps["charge"].NotExecuted)
	require.NoError(t, deliver(false))
	require.Equal(t, 1, r.e.ran("charge"))
}

// Attempts whose steps run in parallel with each other and with calls of Abort, over a store that loses requests and
// replies: once the operation has failed, all that took effect was undone, and once it has succeeded nothing was.
func TestWhateverIsLostWhatTookEffectCountsOrIsUndone(t *testing.T) {
	ends := map[idem.State]int{}
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			x := &abortable{rig: newRig(t, nil), rand: rand.New(rand.NewPCG(seed, 1))}
			key := []idem.Operation{safe, unsafe}[x.n(2)].Key("t", "k")
			for i := range x.semantics {
				x.semantics[i] = idem.StepSemantics(x.n(3) / 2)
			}
			for attempt := 0; ; attempt++ {
				x.fail(attempt)
				got, err := doSteps(t, x.rig, key, func(ctx context.Context) (string, error) { return x.run(ctx, attempt > 0) })
				x.faults.Heal()
				require.NoError(t, x.engine.Flush(t.Context()))
				switch s := x.state(t, key); s {
				case idem.Unknown: // somebody must look
					ends[s]++
					return
				case idem.Completed, idem.Failed:
					ends[s]++
					for i := range x.semantics {
						name := string(rune('a' + i))
						if paid := err == nil && got == "paid"; paid {
							require.Zero(t, x.ran("undo "+name), "seed %d: paid over %v", seed, x.runs)
						} else if x.ran(name) > 0 {
							require.NotZero(t, x.ran("undo "+name), "seed %d: %s after %v", seed, s, x.runs)
						}
					}
					return
				}
			}
		})
	}
	require.Len(t, ends, 3, "all ends were reached")
}

// abortable is one operation with random steps and ends.
type abortable struct {
	*rig
	effects
	rand      *rand.Rand // the handler's own goroutine draws
	semantics [3]idem.StepSemantics
}

func (x *abortable) n(n int) int { return x.rand.IntN(n) }

func pause(r *rand.Rand) { time.Sleep(time.Duration(1+r.IntN(20)) * time.Millisecond) }

// fail has calls to the store fail, in the first attempts.
func (x *abortable) fail(attempt int) {
	if x.n(2) == 0 {
		x.faults.Next(idemtest.Acquire, []idemtest.Fault{idemtest.Refuse, idemtest.LoseReply}[x.n(2)]) // some fail open
	}
	for range x.n(max(4-attempt, 1)) {
		faults := make([]idemtest.Fault, x.n(4), 5)
		for i := range faults {
			faults[i] = idemtest.Pass
		}
		faults = append(faults, []idemtest.Fault{idemtest.LoseReply, idemtest.LoseRequest, idemtest.Refuse}[x.n(3)])
		x.faults.Next([]idemtest.Method{idemtest.RecordStep, idemtest.RecordStep, idemtest.Finish,
			idemtest.StepResult}[x.n(4)], faults...)
	}
}

// run is the handler. It aborts, but may find in a later attempt that it can go on.
func (x *abortable) run(ctx context.Context, later bool) (string, error) {
	var all sync.WaitGroup
	var errs [3]error
	for i, semantics := range x.semantics {
		name, own := string(rune('a'+i)), rand.New(rand.NewPCG(x.rand.Uint64(), 1))
		all.Go(func() {
			_, errs[i] = idem.Step(ctx, name, func(ctx context.Context) (receiptOf, error) {
				pause(own)
				if semantics == idem.AtMostOnce && own.IntN(3) == 0 {
					return receiptOf{}, idem.NotExecuted(errPlain)
				}
				return x.step(name)(ctx)
			}, &idem.StepConfig[receiptOf]{Semantics: semantics, Retry: idem.Retry{MaxTries: 2}, Compensate: x.undo(name)})
		})
	}
	if later && x.n(2) == 0 {
		all.Wait()
		return "paid", errors.Join(errs[:]...)
	}
	abort := ctx
	if x.n(3) == 0 {
		abort = context.WithoutCancel(ctx)
	}
	for range x.n(3) {
		pause(x.rand)
		_ = idem.Abort(abort, declinedError{})
	}
	all.Wait()
	_ = idem.Abort(abort, declinedError{})
	return "402", []error{nil, nil, errPlain, idem.Permanent(errPlain), idem.NotExecuted(errPlain)}[x.n(5)]
}

const (
	booked = "flight, hotel, car"
	undone = ", undo car, undo hotel, undo flight"
)

// trip books three things that can be undone. The hotel's compensation ends so first.
func trip(undo ...error) []act {
	return []act{{name: "flight", undo: works}, {name: "hotel", undo: append(works, undo...)}, {name: "car", undo: works}}
}

func (e *effects) all(names ...string) (runs []int) {
	for _, n := range names {
		runs = append(runs, e.ran(n))
	}
	return runs
}

var (
	// declines is the failure of what cannot go on.
	declines         = idem.Permanent(declinedError{})
	recordedDeclined = &idem.RecordedError{
		Failure: idem.Failure{Message: "card declined", Type: "declinedError", Code: "card_declined"}}
	tripUndone = []string{"undo flight", "undo hotel", "undo car"}
)

// Compensations run in reverse, of a permanent failure alone. Once undoing has begun its cause is the outcome: a later
// attempt finishes undoing, each compensation that is recorded stays done, and fails with it, whatever its handler
// returns, unless that undoes by hand and answers in its own words. An attempt that ends before it has come by all
// that must be undone leaves that to the next one, and what cannot be undone is parked.
func TestWhatIsBeingUndoneFails(t *testing.T) {
	cutShort := tried{acts: trip(errPlain), end: declines, want: []any{declinedError{}, errPlain,
		`compensation of step "hotel"`}, log: booked + ", undo car, undo hotel", state: idem.Released}
	forward := append(trip(errPlain), act{name: "new", hidden: true}) // which runs no more
	excluded := idem.NotExecuted(errPlain)
	pay := []act{{name: "plain"}, {name: "pay", undo: works, errs: []error{declines}}}
	playAll(t,
		scenario{name: "a step fails", op: safe, attempts: []tried{
			{acts: slices.Concat(trip(), pay), own: true, want: declinedError{}, log: booked + ", plain, pay" + undone,
				state: idem.Failed},
			{want: recordedDeclined, state: idem.Failed},
		}},
		scenario{name: "plain error", op: safe, attempts: []tried{
			{acts: trip(), end: errPlain, want: errPlain, log: booked, state: idem.Released},
			{acts: trip(), state: idem.Completed},
		}},
		scenario{name: "not executed", op: safe, attempts: []tried{
			{acts: trip(), end: excluded, want: errPlain, log: booked, state: idem.Released},
		}},
		scenario{name: "a compensation fails for good", op: safe, attempts: []tried{
			{acts: trip(idem.Permanent(errPlain)), end: declines, want: errPlain, log: booked + ", undo car, undo hotel",
				state: idem.Unknown},
		}},
		scenario{name: "undone by hand in a later attempt", op: safe, attempts: []tried{cutShort,
			{acts: trip(errPlain), abort: errPlain, log: "undo hotel, undo flight", state: idem.Completed},
		}},
	)
	for name, end := range map[string]error{"success": nil, "plain": errPlain, "not executed": excluded,
		"another failure": idem.Permanent(errPlain)} {
		then := tried{acts: forward, end: end, want: recordedDeclined, log: "undo hotel, undo flight", state: idem.Failed}
		replay := tried{want: recordedDeclined, state: idem.Failed}
		scenario{name: "then " + name, op: safe, attempts: []tried{cutShort, then, replay}}.play(t)
	}
	for end, state := range map[error]idem.State{errPlain: idem.Released, excluded: idem.Released,
		declines: idem.Unknown} {
		scenario{name: "then too early " + string(state), op: safe, attempts: []tried{cutShort,
			{end: end, want: idem.Unmark(end), state: state},
		}}.play(t)
	}
}

// An attempt that does not come by a step cannot undo it, and must not pretend so.
func TestWhatAnAttemptDoesNotComeByParks(t *testing.T) {
	for name, then := range map[string]tried{"a failure": {end: declines}, "an abort": {abort: declinedError{}}} {
		then.want, then.state = "cannot be undone", idem.Unknown
		scenario{name: name, op: safe, attempts: []tried{
			{acts: trip(), end: errPlain, want: errPlain, log: booked, state: idem.Released}, then,
		}}.play(t)
	}
}
