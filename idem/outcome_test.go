package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// StopCause is the engine's own reason: what a step could not do in this operation, and not what
// another operation, or Abort, has said to the handler.
func TestOutcomeTellsWhatStoppedTheAttempt(t *testing.T) {
	own := errors.New("own")
	began := leaving(protocol.StepWrite{Name: "charge", Begin: true})
	charge := act{name: "charge", once: true, errs: []error{own}}
	hidden, asks, asksHidden := charge, charge, charge
	hidden.hidden, asksHidden.hidden = true, true
	asks.ask, asks.final = []error{idem.NotExecuted(own), idem.NotExecuted(own)}, time.Hour
	asksHidden.ask, asksHidden.final = asks.ask, asks.final
	open := &idem.StepInterruptedError{}
	for name, tc := range map[string]struct {
		before play
		tried  tried
		want   any // that StopCause matches
		again  bool
		ended  idem.State
	}{
		"interrupted":              {began, tried{acts: []act{charge}}, &open, false, idem.Unknown},
		"interrupted, and hidden":  {began, tried{acts: []act{hidden}, end: own}, &open, false, idem.Unknown},
		"interrupted, not reached": {began, tried{}, &open, false, idem.Unknown},
		"asked about again":        {began, tried{acts: []act{asks}}, &open, true, idem.Released},
		"asked again, hidden":      {began, tried{acts: []act{asksHidden}}, &open, true, idem.Released},
		"not recorded": {always(idemtest.Refuse, "RecordStep"), tried{acts: []act{charge}},
			idem.ErrStoreUnavailable, false, idem.Released},
		"its own error":             {nothing, tried{acts: []act{charge}}, nil, false, idem.Unknown},
		"its own error, and hidden": {nothing, tried{acts: []act{hidden}}, &open, false, idem.Unknown},
		"another operation's": {nothing, tried{end: &idem.StepInterruptedError{Name: "charge"}}, nil, false,
			idem.Released},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
				if name == "another operation's" {
					_, err := idem.Do(ctx, r.engine, safe.Key("t", "within"), 1, tried{acts: []act{charge}}.handler(r.e))
					require.ErrorIs(t, err, own)
				}
				return tc.tried.handler(r.e)(ctx, n)
			})
			require.Error(t, err)
			require.Equal(t, tc.ended, res.Outcome.AttemptState)
			expect(t, tc.want, res.Outcome.StopCause)
			require.Equal(t, tc.again, tc.want == any(&open) && !open.RetryAt.IsZero())
		})
	}
}

// A goroutine that outlives its handler asks what it likes of the context while the commit
// finds another record, or undoes: nothing is read while it is written.
func TestAGoroutineThatOutlivesItsHandlerRacesWithNothing(t *testing.T) {
	for name, ask := range map[string]func(context.Context){
		"reference": func(ctx context.Context) { _ = idem.SetReference(ctx, "pay_1") },
		"info":      func(ctx context.Context) { _, _ = idem.InfoOf(ctx) },
		"token":     func(ctx context.Context) { _ = idem.Token(ctx) },
		"abort": func(ctx context.Context) {
			if err := idem.Abort(ctx, declinedError{}); !errors.As(err, new(*idem.ConfigError)) {
				t.Errorf("late: %v", err)
			}
		},
		"step": func(ctx context.Context) {
			_, _ = idem.Step(ctx, "late", func(context.Context) (int, error) { return 1, nil }, nil)
		},
	} {
		for _, op := range []idem.Operation{atomically, safe} {
			t.Run(fmt.Sprint(name, "/", op.Mode), func(t *testing.T) {
				r, key := rigOn(t, op)
				var all sync.WaitGroup
				var asked atomic.Int32
				var once sync.Once
				begin, over := make(chan struct{}), make(chan struct{})
				// Each call to the store waits until something was asked since what comes before it.
				concurrent := func(ctx context.Context, c *idemtest.Call) error {
					once.Do(func() { close(begin) })
					for n := asked.Load() + 2; asked.Load() < n; {
						runtime.Gosched()
					}
					return c.Do(ctx)
				}
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
					if op.Mode == idem.Atomic {
						released(t, r.elsewhere(t), safe.Key("t", "k"))
					} else {
						_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return 1, nil },
							&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return nil }})
						require.NoError(t, err)
					}
					r.faults.Always(concurrent, idemtest.Finish, idemtest.RecordStep)
					all.Go(func() {
						<-begin
						for {
							select {
							case <-over:
								return
							default:
								ask(ctx)
								asked.Add(1)
							}
						}
					})
					return pay(effect{n: 1, refuse: idem.Permanent(errPlain)}, nil)(ctx, n)
				})
				close(over)
				all.Wait()
				require.ErrorIs(t, err, errPlain)
				require.Equal(t, idem.Failed, r.state(t, key))
			})
		}
	}
}

// A reference that waits for another one when its handler returns is not said any more: the
// attempt's end does not wait for it.
func TestAReferenceThatComesAfterTheHandlerIsRefused(t *testing.T) {
	r, key := rigOn(t, safe)
	inside, goOn := make(chan struct{}), make(chan struct{})
	r.faults.Next(idemtest.RecordReference, func(ctx context.Context, c *idemtest.Call) error {
		close(inside)
		<-goOn
		return c.Do(ctx)
	})
	var all sync.WaitGroup
	var late error
	must(t, r, key, func(ctx context.Context, n int) (int, error) {
		all.Go(func() { _ = idem.SetReference(ctx, "pay_1") })
		<-inside
		all.Go(func() { late = idem.SetReference(ctx, "pay_2") })
		for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
			for _, g := range bytes.Split(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
				if bytes.Contains(g, []byte("[sync.Mutex.Lock")) && bytes.Contains(g, []byte("idem.SetReference(")) {
					return n, nil // it waits
				}
			}
		}
	})
	close(goOn)
	all.Wait()
	require.ErrorAs(t, late, new(*idem.ConfigError))
	require.Equal(t, "pay_1", r.record(t, key).Ref)
	require.Equal(t, 1, r.count(idemtest.RecordReference))
}

func TestOperationCheck(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		op   idem.Operation
		says string // empty if the operation is fine
	}{
		"the least":          {idem.Operation{}, ""},
		"repeatable":         {idem.Operation{Repeat: idem.Repeatable}, ""},
		"no name":            {idem.Operation{}, "give the operation a name"},
		"longest name":       {idem.Operation{Name: strings.Repeat("o", 128)}, ""},
		"long name":          {idem.Operation{Name: strings.Repeat("o", 129)}, "129 bytes: use at most 128"},
		"unknown repeat":     {idem.Operation{Repeat: 2}, "use idem.NotRepeatable or idem.Repeatable"},
		"shortest retention": {idem.Operation{Retention: time.Second}, ""},
		"short retention":    {idem.Operation{Retention: time.Second - 1}, "at least one second"},
		"negative retention": {idem.Operation{Retention: -time.Hour}, "at least one second"},
		"longest retention":  {idem.Operation{Retention: 5 * year}, ""},
		"long retention":     {idem.Operation{Retention: 5*year + 1}, "at most five years"},
		"negative min time":  {idem.Operation{MinTime: -1}, "cannot be negative"},
		"min time unit":      {idem.Operation{MinTime: 3}, "MinTime is 3ns: use at least a millisecond"},
		"min time":           {idem.Operation{MinTime: time.Minute}, ""},
		"unknown policy":     {idem.Operation{OnStoreFailure: 3}, "use idem.FailClosed or idem.FailOpen"},
		"fail open":          {idem.Operation{Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}, ""},
		"fail open, not repeatable": {idem.Operation{OnStoreFailure: idem.FailOpen},
			"declare it idem.Repeatable, or use FailClosed"},
		"atomic":                 {idem.Operation{Repeat: idem.Repeatable, Mode: idem.Atomic}, ""},
		"atomic, not repeatable": {idem.Operation{Mode: idem.Atomic}, "declare it idem.Repeatable"},
		"atomic, fail open": {idem.Operation{Repeat: idem.Repeatable, Mode: idem.Atomic,
			OnStoreFailure: idem.FailOpen}, "no claim to do without"},
		"unknown mode": {idem.Operation{Mode: 2}, "use idem.Reserved or idem.Atomic"},
		"unknown watch": {idem.Operation{Watch: 3},
			"Watch is 3: use idem.WatchNotRepeatable, idem.WatchAlways or"},
		"watched, repeatable": {idem.Operation{Repeat: idem.Repeatable, Watch: idem.WatchAlways}, ""},
		"unnoticed":           {idem.Operation{Watch: idem.WatchNever}, ""},
		"atomic, watched": {idem.Operation{Repeat: idem.Repeatable, Mode: idem.Atomic, Watch: idem.WatchAlways},
			"leave it out"},
		"atomic, unnoticed": {idem.Operation{Repeat: idem.Repeatable, Mode: idem.Atomic, Watch: idem.WatchNever},
			"Watch has no meaning with idem.Atomic"},
		"attempts": {idem.Operation{Repeat: idem.Repeatable, MaxAttempts: 1}, ""},
		"negative attempts": {idem.Operation{Repeat: idem.Repeatable, MaxAttempts: -1},
			"MaxAttempts is -1: it cannot be negative"},
		"attempts of what never runs again": {idem.Operation{MaxAttempts: 3},
			"never runs again after an uncertain attempt"},
		"atomic, attempts": {idem.Operation{Repeat: idem.Repeatable, Mode: idem.Atomic, MaxAttempts: 3},
			"counts no attempts"},
		"classify": {idem.Operation{Classify: func(context.Context, any, error) idem.Class { return idem.ClassDefault }}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.op.Name == "" && name != "no name" {
				c.op.Name = "charge"
			}
			err := c.op.Check()
			if c.says == "" {
				require.NoError(t, err)
				require.NoError(t, c.op.Key("t", "v").Err())
				return
			}
			config := errorAs[*idem.ConfigError](t, err)
			require.Contains(t, config.What, c.op.Name)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, err, c.op.Key("t", "v").Err())
			require.Empty(t, c.op.Key("t", "v").ID())
		})
	}
}

// The zero values are the careful ones.
func TestZeroValuesAreCareful(t *testing.T) {
	var op idem.Operation
	require.Equal(t, idem.NotRepeatable, op.Repeat)
	require.Equal(t, idem.FailClosed, op.OnStoreFailure)
	require.Equal(t, idem.WatchNotRepeatable, op.Watch)
	require.Equal(t, "not_repeatable", op.Repeat.String())
	require.Equal(t, "repeatable", idem.Repeatable.String())
	require.Equal(t, "not_repeatable", idem.Repeat(7).String(), "what is not known is not repeated")
}

// A mark speaks for the scope that made it. In each of these the handler has had an
// effect whose end is unknown: it is not run again.
func TestMarksOfOthersReleaseNothing(t *testing.T) {
	notSent := idem.NotExecuted(errors.New("connection refused"))
	inner := func(mark func(error) error) func(context.Context, *rig) error {
		return func(ctx context.Context, r *rig) error {
			_, err := idem.Do(ctx, r.engine, safe.Key("t", "inner"), 1, fails(mark(errPlain)))
			return err
		}
	}
	step := func(ctx context.Context, name string, end error) error {
		_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 0, end }, nil)
		return err
	}
	for name, fail := range map[string]func(context.Context, *rig) error{
		"joined":     func(context.Context, *rig) error { return errors.Join(errPlain, notSent) },
		"several %w": func(context.Context, *rig) error { return fmt.Errorf("%w; undo: %w", errPlain, notSent) },
		"a step's": func(ctx context.Context, _ *rig) error {
			_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, notSent }, onceOnly)
			return err
		},
		"a step's, after an unknown one": func(ctx context.Context, _ *rig) error {
			return errors.Join(step(ctx, "reserve", errPlain), step(ctx, "ship", notSent))
		},
		"a step's, wrapped": func(ctx context.Context, _ *rig) error {
			return fmt.Errorf("order: %w", step(ctx, "ship", fmt.Errorf("shipping: %w", notSent)))
		},
		"a step's word with its response": func(ctx context.Context, _ *rig) error {
			_, err := idem.Step(ctx, "ship", func(ctx context.Context) (int, error) {
				idem.SetNotExecuted(ctx)
				return 0, errPlain
			}, nil)
			return err
		},
		"a compensation's": func(ctx context.Context, _ *rig) error {
			_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 0, nil },
				&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return notSent }})
			return errors.Join(err, idem.Abort(ctx, errPlain))
		},
		"a nested operation's": inner(idem.NotExecuted),
		"a nested operation's, wrapped": inner(func(err error) error {
			return fmt.Errorf("ship: %w", idem.NotExecuted(err))
		}),
		"a nested operation's, permanent": inner(func(err error) error {
			return fmt.Errorf("ship: %w", idem.Permanent(err))
		}),
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			effects := 0
			for range 2 {
				refused(t, r, key, nil, steps(func(ctx context.Context) (string, error) {
					effects++
					return "", fail(ctx, r)
				}))
			}
			require.Equal(t, 1, effects)
			require.Equal(t, idem.Unknown, r.state(t, key))
		})
	}
}

// A handler that means its own operation marks again.
func TestMarksMadeAgain(t *testing.T) {
	for want, mark := range map[idem.State]func(error) error{idem.Released: idem.NotExecuted,
		idem.Failed: idem.Permanent} {
		r, key := rigOn(t, unsafe)
		own := errors.New("refused")
		err := refused(t, r, key, own, steps(func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "ship",
				func(context.Context) (int, error) { return 0, fmt.Errorf("shipping: %w", idem.NotExecuted(own)) }, nil)
			return "", mark(err)
		}))
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
		"nothing":   {func(*rig, context.Context) {}, idem.Released},
		"token":     {func(_ *rig, ctx context.Context) { idem.Token(ctx) }, idem.Unknown},
		"info":      {func(_ *rig, ctx context.Context) { _, _ = idem.InfoOf(ctx) }, idem.Unknown},
		"reference": {func(_ *rig, ctx context.Context) { _ = idem.SetReference(ctx, "pay_1") }, idem.Unknown},
		"step": {func(_ *rig, ctx context.Context) {
			_, _ = idem.Step(ctx, "s", func(context.Context) (int, error) { return 0, errPlain }, nil)
		}, idem.Unknown},
		"unit of work": {func(_ *rig, ctx context.Context) {
			_, _ = idem.UnitOf(ctx, func() idem.Unit { return new(effect) })
		}, idem.Unknown},
		"another operation": {func(r *rig, ctx context.Context) {
			_, _ = idem.Do(ctx, r.engine, safe.Key("t", "inner"), 1, new(counter).run)
		}, idem.Unknown},
	} {
		for _, op := range both {
			testOn(t, name+"/"+op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
				out, err := r.engine.Execute(t.Context(),
					idem.Call{Key: key, Fingerprint: fingerprint.Bytes([]byte("1")), Run: func(ctx context.Context) idem.Answer {
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
