package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	log  []string
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
		e.log = append(e.log, name)
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

// act is a step of an attempt. Its function, its compensation and the question about it are logged as "x", "undo x"
// and "ask x".
type act struct {
	name   string
	errs   []error       // of the function's first runs
	once   bool          // at most once
	undo   []error       // of the compensation's first runs; nil without a compensation
	ask    []error       // of the first questions; nil where nothing can be asked
	final  time.Duration // when an answer is final; zero for at once
	retry  idem.Retry
	hidden bool // the handler does not look at the error
}

// works is how a compensation or a question ends that never fails.
var works = []error{}

// run runs the step.
func (a act) run(ctx context.Context, e *effects) error {
	c := &idem.StepConfig[receiptOf]{Retry: a.retry}
	if a.once {
		c.Semantics = idem.AtMostOnce
	}
	if a.undo != nil {
		c.Compensate = e.undo(a.name, a.undo...)
	}
	if a.ask != nil {
		c.NotFoundFinalAfter = cmp.Or(a.final, idem.Immediately)
		c.Interrupted = func(ctx context.Context, _ time.Time) (receiptOf, error) {
			_, err := e.step("ask "+a.name, a.ask...)(ctx)
			return receiptOf{a.name}, err
		}
	}
	got, err := idem.Step(ctx, a.name, e.step(a.name, a.errs...), c)
	if err == nil && got.ID != a.name {
		return errors.New("not what " + a.name + " returned: " + got.ID)
	}
	return err
}

// tried is an attempt, and what comes of it.
type tried struct {
	before play // of this attempt
	acts   []act
	other  bool    // another process makes it
	abort  error   // the handler calls Abort with it after the steps, and answers "402"
	gives  error   // so it does with this once a step has failed
	unit   *effect // that the handler's unit of work has
	ref    string  // the reference that it says, after the steps
	end    error   // what it returns
	own    bool    // a step's permanent error is the handler's own
	want   any     // that the caller gets: see expect
	log    string  // what ran, in order
	state  idem.State
}

// handler runs the steps until one fails.
func (a tried) handler(e *effects) handler[string] {
	return func(ctx context.Context, _ int) (string, error) {
		for _, step := range a.acts {
			if err := step.run(ctx, e); err != nil && !step.hidden {
				switch {
				case a.gives != nil:
					return "402", idem.Abort(ctx, a.gives)
				case a.own:
					return "", idem.PermanentStep(err)
				}
				return "", err
			}
		}
		if a.abort != nil {
			if err := idem.Abort(ctx, a.abort); err != nil {
				return "", err
			}
			return "402", a.end
		}
		if a.ref != "" {
			if err := idem.SetReference(ctx, a.ref); err != nil {
				return "", err
			}
		}
		if a.unit != nil {
			return pay(*a.unit, a.end)(ctx, 1)
		}
		return "done", a.end
	}
}

// scenario is an operation with steps, attempt after attempt.
type scenario struct {
	name     string
	op       idem.Operation
	before   play
	attempts []tried
}

func (s scenario) play(t *testing.T) {
	testOn(t, s.name, s.op, func(t *testing.T, r *rig, key idem.Key) {
		if s.before != nil {
			s.before(t, r, key)
		}
		for n, a := range s.attempts {
			if a.before != nil {
				a.before(t, r, key)
			}
			r.e.log = nil
			process := r
			if a.other {
				process = r.elsewhere(t)
			}
			_, err := idem.Do(t.Context(), process.engine, key, 1, a.handler(r.e))
			expect(t, a.want, err)
			require.Equal(t, a.log, strings.Join(r.e.log, ", "), "attempt %d", n+1)
			require.Equal(t, a.state, r.state(t, key), "attempt %d", n+1)
			if rec := r.record(t, key); rec != nil {
				waits := rec.Open() || rec.State == idem.InProgress
				require.Equal(t, waits, rec.ExpiresAt.IsZero(), "steps wait for their operation")
				over := rec.State == idem.Completed || rec.State == idem.Failed
				require.True(t, !over || len(rec.Steps) == 0, "they go with the outcome")
			}
			require.Zero(t, r.committed(), "a scenario is about units of work that do not commit")
		}
	})
}

func playAll(t *testing.T, scenarios ...scenario) {
	for _, s := range scenarios {
		s.play(t)
	}
}

func TestRecordedStepIsSkipped(t *testing.T) {
	order := func(once bool) []act {
		return []act{{name: "charge", once: once}, {name: "ship", errs: []error{errPlain}}}
	}
	twice := func(once bool) []tried {
		return []tried{
			{acts: order(once), want: errPlain, log: "charge, ship", state: idem.Released},
			{acts: order(once), log: "ship", state: idem.Completed},
			{acts: order(once), state: idem.Completed},
		}
	}
	playAll(t,
		scenario{"at least once", safe, nil, twice(false)},
		scenario{"at most once", safe, nil, twice(true)},
		scenario{"of a not repeatable operation that executed nothing more", unsafe, nil, []tried{
			{acts: []act{{name: "charge"}}, end: idem.NotExecuted(errPlain), want: errPlain, log: "charge",
				state: idem.Released},
			{acts: []act{{name: "charge"}}, state: idem.Completed},
		}},
	)
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

// A permanent error is the step's outcome, and the operation's if its handler says so.
func TestPermanentErrorIsTheStepsOutcome(t *testing.T) {
	fails := act{name: "charge", errs: []error{idem.Permanent(declinedError{})}}
	hidden := fails
	hidden.hidden = true
	playAll(t, scenario{"declined", safe, nil, []tried{
		{acts: []act{hidden}, end: errPlain, want: errPlain, log: "charge", state: idem.Released},
		{acts: []act{fails}, want: new(*idem.RecordedError), state: idem.Released},
		{acts: []act{fails}, own: true, want: "card declined", state: idem.Failed},
		{want: recordedDeclined, state: idem.Failed},
	}}, scenario{"declined at once", safe, nil, []tried{
		{acts: []act{fails}, want: declinedError{}, log: "charge", state: idem.Released},
	}})
}

// An at-most-once step whose process died is not run again: a handler that cannot close it parks the operation,
// even if it is repeatable. The mark holds, whatever the step has been declared as since.
func TestInterruptedStepIsNotRunAgain(t *testing.T) {
	open := new(*idem.StepInterruptedError)
	for name, ship := range map[string]act{
		"returned": {name: "ship", once: true}, "swallowed": {name: "ship", once: true, hidden: true},
		"of an old declaration": {name: "ship"},
	} {
		scenario{name, safe, leaving(charged, shipping), []tried{
			{acts: []act{ship}, want: open, state: idem.Unknown},
			{acts: []act{ship}, want: idem.ErrOutcomeUnknown, state: idem.Unknown},
		}}.play(t)
		require.Equal(t, "ship", (*open).Name)
	}
}

// An interrupted step is asked about before anything else, and closed. An operation that is being undone asks about
// it, closes it, and undoes it in its turn; it does not run it. No attempt of an operation that is not repeatable
// could ask: its record is parked.
func TestInterruptedStepIsClosed(t *testing.T) {
	excluded, declined := idem.NotExecuted(errPlain), idem.Permanent(declinedError{})
	asked := func(op idem.Operation, found error, want any, log string, state idem.State) scenario {
		return scenario{fmt.Sprint(op.Repeat, " ", want, " ", log), op, leaving(shipping), []tried{
			{acts: []act{{name: "ship", once: true, ask: []error{found}}}, own: true, want: want, log: log, state: state},
		}}
	}
	booked := protocol.StepWrite{Name: "reserve", Result: []byte(`{"ID":"reserve"}`), Compensates: true}
	undoing := protocol.StepWrite{Name: "idem:compensating", Failure: &idem.Failure{Message: "card declined"}}
	booking := func(charge ...error) []act {
		return []act{{name: "reserve", undo: works}, {name: "charge", once: true, errs: charge, undo: works, ask: works}}
	}
	undone := func(name string, found error, want any, log string, state idem.State) scenario {
		acts := booking()
		acts[1].ask = []error{found}
		return scenario{name, safe, leaving(booked, protocol.StepWrite{Name: "charge", Begin: true}, undoing), []tried{
			{acts: acts, gives: declinedError{}, want: want, log: log, state: state},
		}}
	}
	open := new(*idem.StepInterruptedError)
	playAll(t,
		asked(safe, nil, nil, "ask ship", idem.Completed),
		asked(safe, excluded, nil, "ask ship, ship", idem.Completed),
		asked(safe, declined, "card declined", "ask ship", idem.Failed),
		asked(safe, errPlain, "plain", "ask ship", idem.Unknown),
		asked(unsafe, nil, idem.ErrOutcomeUnknown, "", idem.Unknown),
		scenario{"not repeatable since a deployment", strictly, func(t *testing.T, r *rig, _ idem.Key) {
			killedWith(t, r, safe.Key("t", "k"), shipping)
		}, []tried{{acts: []act{{name: "ship", once: true, ask: works}}, want: idem.ErrOutcomeUnknown, state: idem.Unknown}}},
		undone("undone, took effect", nil, "card declined", "ask charge, undo charge, undo reserve", idem.Failed),
		undone("undone, had no effect", excluded, nil, "ask charge, undo reserve", idem.Completed),
		undone("undone, cannot be known", errPlain, open, "ask charge", idem.Unknown),
		scenario{"what came before an open step is not undone", safe, nil, []tried{
			{acts: booking(errPlain), gives: declinedError{}, want: open, log: "reserve, charge", state: idem.Unknown},
		}},
		scenario{"a process dies there", safe, nil, []tried{
			{before: always(idemtest.LoseRequest, "Finish"), acts: booking(errPlain), gives: declinedError{}, want: open,
				log: "reserve, charge", state: idem.InProgress},
			{before: after(time.Hour), other: true, acts: booking(errPlain), log: "ask charge", state: idem.Completed},
		}},
	)
}

// What an at-most-once step's own error says decides whether it is open.
func TestErrorsOfAnAtMostOnceStep(t *testing.T) {
	for state, tc := range map[idem.State]struct {
		err  error
		then tried
	}{
		idem.Unknown:  {errPlain, tried{want: idem.ErrOutcomeUnknown, state: idem.Unknown}},
		idem.Released: {idem.NotExecuted(errPlain), tried{log: "ship", state: idem.Completed}},
		idem.Failed:   {idem.Permanent(errPlain), tried{want: recordedPlain, state: idem.Failed}},
	} {
		first := tried{acts: []act{{name: "ship", once: true, errs: []error{tc.err}}}, own: true, want: errPlain, log: "ship",
			state: state}
		tc.then.acts = first.acts
		scenario{string(state), safe, nil, []tried{first, tc.then}}.play(t)
	}
}

func TestStepRetries(t *testing.T) {
	const day = 24 * time.Hour
	many := []error{errPlain, errPlain, errPlain, errPlain, errPlain}
	permanent, excluded := idem.Permanent(errPlain), idem.NotExecuted(errPlain)
	for name, tc := range map[string]struct {
		once  bool
		retry idem.Retry
		errs  []error
		runs  int
		ok    bool
	}{
		"not without being asked":         {false, idem.Retry{}, many[:1], 1, false},
		"until it works":                  {false, idem.Retry{MaxTries: 3}, many[:2], 3, true},
		"up to the limit":                 {false, idem.Retry{MaxTries: 4}, many, 4, false},
		"not a permanent error":           {false, idem.Retry{MaxTries: 3}, []error{permanent}, 1, false},
		"at most once: not a plain error": {true, idem.Retry{MaxTries: 3}, many[:1], 1, false},
		"at most once: no effect":         {true, idem.Retry{MaxTries: 3}, []error{excluded, excluded}, 3, true},
		"not past the deadline":           {false, idem.Retry{MaxTries: 9, InitialDelay: day, MaxDelay: day}, many, 1, false},
		"with delays that grow to a bound": {false, idem.Retry{MaxTries: 5, MaxDelay: time.Second, BackoffRate: 100},
			many[:4], 5, true},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			ship := act{name: "ship", once: tc.once, retry: tc.retry, errs: tc.errs}
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, tried{acts: []act{ship}}.handler(r.e))
			require.Equal(t, tc.ok, err == nil, "%v", err)
			require.Equal(t, tc.runs, r.e.ran("ship"))
		})
	}
}

// A recorded result that no longer fits stops the operation: guessing would be worse.
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

// No function would be asked after a crash where the operation is not repeatable: that is said at the first call,
// before the step runs.
func TestInterruptedIsRefusedWhereItWouldNotBeCalled(t *testing.T) {
	for _, op := range both {
		r, key := rigOn(t, op)
		asks := tried{acts: []act{{name: "ship", once: true, ask: works}}}
		_, err := idem.Do(t.Context(), r.engine, key, 1, asks.handler(r.e))
		require.Equal(t, under(op, 1, 0), r.e.ran("ship"))
		if op.Repeat == idem.NotRepeatable {
			mistaken(t, err, "Declare it idem.Repeatable")
			require.Empty(t, r.record(t, key).Steps)
		}
	}
}

// What has succeeded is done, although its result cannot be kept: it is not run
// again, neither in its attempt nor in a later one, and all of them get the same error.
func TestStepWhoseResultCannotBeKept(t *testing.T) {
	for _, kind := range []string{"error", "panic", "panic back", "too large"} {
		for _, semantics := range []idem.StepSemantics{idem.AtLeastOnce, idem.AtMostOnce} {
			t.Run(kind, func(t *testing.T) {
				r := rigOver(t, memstore.Options{MaxResult: 1000}.New(), new(idemtest.Clock), nil)
				key := safe.Key("t", "k")
				runs := 0
				var errs []*idem.StepUnavailableError
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
						errs = append(errs, of)
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
				require.Equal(t, errs[0], errs[1])
				require.Equal(t, "s", errs[0].Name)
				require.NotEmpty(t, errs[0].Reason)
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
