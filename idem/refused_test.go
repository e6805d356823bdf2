package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A refused unit is the handler's error, by the rules for every error.
func TestRefusedUnit(t *testing.T) {
	says := func(c idem.Class) func(context.Context, any, error) idem.Class {
		return func(_ context.Context, v any, err error) idem.Class {
			if err == nil {
				return idem.ClassDefault
			}
			if v != "paid" {
				panic("the rule gets what the handler returned")
			}
			return c
		}
	}
	for _, tc := range []struct {
		name     string
		refuse   error
		classify func(context.Context, any, error) idem.Class
		safe     idem.State
		unsafe   idem.State
	}{
		{"plain", errPlain, nil, idem.Released, idem.Unknown},
		{"permanent", idem.Permanent(errPlain), nil, idem.Failed, idem.Failed},
		{"not executed", idem.NotExecuted(errPlain), nil, idem.Released, idem.Released},
		{"hook: failed", errPlain, says(idem.ClassFailed), idem.Failed, idem.Failed},
		{"hook: completed", errPlain, says(idem.ClassCompleted), idem.Failed, idem.Failed},
	} {
		for _, op := range append(both, atomically) {
			for _, ambiguous := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s %d/ambiguous %v", tc.name, op.Name, op.Mode, ambiguous), func(t *testing.T) {
					r := newRig(t, nil)
					op.Classify = tc.classify
					key, want := op.Key("t", "k"), under(op, tc.safe, tc.unsafe)
					if op.Mode == idem.Atomic && want == idem.Released && !ambiguous {
						want = idem.Absent // nothing is written, and nothing need be fenced
					}
					res, err := idem.Run(t.Context(), r.engine, key,
						1, pay(effect{n: 1, refuse: tc.refuse, ambiguous: ambiguous}, nil))
					require.Same(t, errPlain, err)
					require.Equal(t, want, res.Outcome.RecordState)
					require.Equal(t, want, r.state(t, key))
					require.NotEmpty(t, res.Outcome.AttemptState)
					require.Equal(t, 1, res.Outcome.Attempt, "it is the caller's own")
					require.NotContains(t, r.events.take(), "outcome_queued")

					_, err = idem.Do(t.Context(), r.engine, key, 1, pay(effect{n: 1}, nil))
					switch want {
					case idem.Failed:
						require.ErrorAs(t, err, new(*idem.RecordedError))
						require.Zero(t, r.committed())
					case idem.Unknown:
						require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
					default:
						require.NoError(t, err)
						require.Equal(t, 1, r.committed())
					}
				})
			}
		}
	}
}

// foreign is a unit of work that the store cannot commit.
type foreign struct{ protocol.Unit }

// unitless is a store that commits no unit of work, as dynamostore without transactions.
type unitless struct{ *memstore.Store }

func (unitless) Traits() protocol.Traits {
	return protocol.Traits{NoUnits: fmt.Errorf("no units here: %w", errors.ErrUnsupported)}
}

// A store that cannot commit such writes says so, and nothing is written. One that says so in advance is asked before
// the handler runs, through all guards.
func TestUnitOverAStoreWithoutTransactions(t *testing.T) {
	for _, op := range []idem.Operation{safe, atomically} {
		for _, store := range []idem.Store{memstore.New(), unitless{memstore.New()}} {
			ran, made := false, false
			_, known := store.(unitless)
			_, err := idem.Do(t.Context(), engineOver(t, store, nil), op.Key("t", "k"), 1,
				func(ctx context.Context, _ int) (string, error) {
					ran = true
					_, err := idem.UnitOf(ctx, func() idem.Unit { made = true; return foreign{&effect{n: 1}} })
					return "paid", err
				})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.Equal(t, !known || op.Mode == idem.Reserved, ran)
			require.Equal(t, !known, made)
			rec, err := store.Get(t.Context(), op.Key("t", "k").ID())
			require.NoError(t, err)
			require.True(t, rec == nil || rec.State != idem.Completed)
		}
	}
}

// lossy is a store that may lose what it has confirmed, as redisstore with an ordinary server.
type lossy struct{ *memstore.Store }

func (lossy) Traits() protocol.Traits { return protocol.Traits{Lossy: errLossy} }

var errLossy = &idem.ConfigError{What: "store", Problem: "is lossy"}

// Over a store that may lose a claim nothing runs that must not run again, and nothing is accepted. What is repeatable
// runs, but for its steps of AtMostOnce and those with a compensation: without the mark that they were undone the
// operation completes. In shadow the handler runs, and the notice says what would be refused.
func TestOverALossyStore(t *testing.T) {
	var noticed []notice.Notice
	e := engineOver(t, lossy{memstore.New()}, &idem.Options{Observer: func(_ context.Context, n notice.Notice) {
		noticed = append(noticed, n)
	}})
	runs, once := 0, 0
	call := func(op idem.Operation, l *protocol.Later) error {
		_, err := e.Execute(t.Context(), idem.Call{Key: op.Key("t", "k"), Fingerprint: fingerprint.Bytes(nil), Later: l,
			Run: func(ctx context.Context) idem.Answer {
				runs++
				err := idem.StepEffect(ctx, "charge", func(context.Context) error { once++; return nil },
					&idem.EffectConfig{Semantics: idem.AtMostOnce})
				if op.Shadow {
					return idem.Answer{Err: err}
				}
				if !errors.Is(err, errLossy) {
					return idem.Answer{Err: fmt.Errorf("the step is not refused: %w", err)}
				}
				err = idem.StepEffect(ctx, "book", func(context.Context) error { once++; return nil },
					&idem.EffectConfig{Compensate: func(context.Context) error { return nil }})
				if !errors.Is(err, errLossy) {
					return idem.Answer{Err: fmt.Errorf("the step with a compensation is not refused: %w", err)}
				}
				return idem.Answer{Err: idem.StepEffect(ctx, "reserve", func(context.Context) error { return nil }, nil)}
			}})
		return err
	}
	require.ErrorIs(t, call(idem.Operation{Name: "once"}, nil), errLossy)
	require.ErrorIs(t, call(safe, &protocol.Later{}), errLossy)
	require.Zero(t, runs)
	for _, op := range []idem.Operation{{Name: "once"}, {Name: "again", Repeat: idem.Repeatable}} {
		rec, err := e.Lookup(t.Context(), op.Key("t", "k"))
		require.NoError(t, err)
		require.Nil(t, rec)
	}
	require.NoError(t, call(idem.Operation{Name: "again", Repeat: idem.Repeatable}, nil))
	require.Equal(t, []int{1, 0}, []int{runs, once})
	noticed = nil
	require.NoError(t, call(idem.Operation{Name: "once", Shadow: true}, nil))
	require.Equal(t, []int{2, 1}, []int{runs, once})
	require.Len(t, noticed, 1)
	require.Equal(t, notice.ShadowRefused, noticed[0].Kind)
	require.ErrorIs(t, noticed[0].Err, errLossy)
}

// An operation that fails permanently because its unit was refused undoes its steps, as one does whose handler says
// so. In doubt the commit may still land. Once undoing has begun nothing commits, although a later attempt's handler
// succeeds.
func TestRefusedUnitUndoesSteps(t *testing.T) {
	reserve := func(undo ...error) []act { return []act{{name: "reserve", undo: append(works, undo...)}} }
	refused := &effect{n: 1, refuse: declines}
	inDoubt := &effect{n: 1, refuse: declines, ambiguous: true}
	playAll(t,
		scenario{name: "definite", op: safe, attempts: []tried{
			{acts: reserve(), unit: refused, want: declinedError{}, log: "reserve, undo reserve", state: idem.Failed},
		}},
		scenario{name: "in doubt", op: safe, attempts: []tried{
			{acts: reserve(), unit: inDoubt, want: declinedError{}, log: "reserve", state: idem.Released},
			{acts: reserve(), unit: refused, want: declinedError{}, log: "undo reserve", state: idem.Failed},
		}},
		scenario{name: "a compensation failed", op: safe, attempts: []tried{
			{acts: reserve(errPlain), unit: refused, want: declinedError{}, log: "reserve, undo reserve", state: idem.Released},
			{acts: reserve(errPlain), unit: &effect{n: 30}, want: recordedDeclined, log: "undo reserve", state: idem.Failed},
		}},
		scenario{name: "the process died before the failure was written", op: safe, attempts: []tried{
			{before: all(faulty("Finish", idemtest.Pass), always(idemtest.LoseRequest, "Finish")),
				acts: reserve(), unit: refused, want: declinedError{}, log: "reserve, undo reserve", state: idem.InProgress},
			{before: after(time.Minute), other: true, acts: reserve(), unit: &effect{n: 30}, want: recordedDeclined,
				state: idem.Failed},
		}},
	)
}

// A call may make an answer of the refusal: it is the outcome, without the unit, and
// steps are undone as for every operation that did not go through.
func TestRefusedUnitHasAnAnswer(t *testing.T) {
	for _, op := range append(both, atomically) {
		for _, ambiguous := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %d/ambiguous %v", op.Name, op.Mode, ambiguous), func(t *testing.T) {
				r, key := rigOn(t, op)
				undone := 0
				call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(ctx context.Context) idem.Answer {
					if op.Mode == idem.Reserved && !ambiguous {
						_, err := idem.Step(ctx, "book", func(context.Context) (int, error) { return 1, nil },
							&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undone++; return nil }})
						require.NoError(t, err)
					}
					_, err := pay(effect{n: 1, refuse: errPlain, ambiguous: ambiguous}, nil)(ctx, 1)
					require.NoError(t, err)
					return idem.Answer{Body: []byte("paid"), OnRefused: func(reason error) idem.Answer {
						require.Same(t, errPlain, reason)
						return idem.Answer{Body: []byte("declined")}
					}}
				}}
				out, err := r.engine.Execute(t.Context(), call)
				require.NoError(t, err)
				require.Equal(t, "declined", string(out.Body))
				require.Equal(t, idem.Completed, out.RecordState)
				if op.Mode == idem.Reserved && !ambiguous {
					require.Equal(t, 1, undone)
				}
				again, err := r.engine.Execute(t.Context(), call)
				require.NoError(t, err)
				require.True(t, again.Replayed)
				require.Equal(t, "declined", string(again.Body))
				require.Zero(t, r.committed())
			})
		}
	}
}

// A response that is a refusal is the outcome, and is to the rest what an error is: nothing commits with it, and the
// steps are undone. A handler that wants it otherwise says so.
func TestRefusalDropsTheUnitAndUndoesTheSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		says   func(context.Context)
		class  idem.Class
		total  int
		undone int
	}{
		"refusal":            {nil, idem.ClassFailed, 0, 1},
		"said to be the end": {idem.SetCompleted, idem.ClassFailed, 30, 0},
		"the last word counts": {func(ctx context.Context) {
			idem.SetNotExecuted(ctx)
			idem.SetCompleted(ctx)
		}, idem.ClassFailed, 30, 0},
		"success": {nil, idem.ClassCompleted, 30, 0},
	} {
		for _, op := range both {
			t.Run(name+"/"+op.Name, func(t *testing.T) {
				r := newRig(t, nil)
				key := op.Key("t", "k")
				call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(ctx context.Context) idem.Answer {
					r.e.book(ctx, t, "reserve")
					_, err := idem.UnitOf(ctx, func() idem.Unit { return &effect{n: 30} })
					require.NoError(t, err)
					if tc.says != nil {
						tc.says(ctx)
					}
					return idem.Answer{Body: []byte("402"), Class: tc.class, Cause: errors.New("status 402")}
				}}
				for range 2 {
					out, err := r.engine.Execute(t.Context(), call)
					require.NoError(t, err)
					require.Equal(t, "402", string(out.Body))
					require.Equal(t, idem.Completed, r.state(t, key))
					require.Equal(t, tc.total, r.committed())
					require.Equal(t, tc.undone, r.e.ran("undo reserve"))
				}
			})
		}
	}
}

// Where undoing for a response was cut short, the steps tell the next attempt why.
func TestRefusalIsTheCauseOfUndoing(t *testing.T) {
	r, key := rigOn(t, safe)
	var second error
	call := func(cause error) idem.Call {
		return idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(ctx context.Context) idem.Answer {
			r.e.book(ctx, t, "reserve", errPlain)
			if r.e.ran("undo reserve") > 0 {
				_, second = idem.Step(ctx, "pay", r.e.step("pay"), nil)
			}
			return idem.Answer{Body: []byte("402"), Class: idem.ClassFailed, Cause: cause}
		}}
	}
	_, err := r.engine.Execute(t.Context(), call(declinedError{}))
	require.ErrorIs(t, err, errPlain)
	require.ErrorIs(t, err, declinedError{})
	require.Equal(t, idem.Released, r.state(t, key))
	out, err := r.engine.Execute(t.Context(), call(nil))
	require.NoError(t, err)
	require.Equal(t, "402", string(out.Body), "it says the failure in its own words")
	require.EqualError(t, second, "card declined")
	require.Zero(t, r.e.ran("pay"))
	require.Equal(t, idem.Completed, r.state(t, key))
	require.Equal(t, 2, r.e.ran("undo reserve"))
}
