package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// A response that is a refusal is the outcome, and is to the rest what an error is:
// nothing commits with it, and the steps are undone. A handler that wants it
// otherwise says so.
func TestRefusalDropsTheUnitAndUndoesTheSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		says   func(context.Context)
		class  idem.Class
		total  int
		undone int
		cause  string
	}{
		"refusal":            {nil, idem.ClassFailed, 0, 1, "status 402"},
		"said to be the end": {idem.SetCompleted, idem.ClassFailed, 30, 0, ""},
		"the last word counts": {func(ctx context.Context) {
			idem.SetNotExecuted(ctx)
			idem.SetCompleted(ctx)
		}, idem.ClassFailed, 30, 0, ""},
		"success": {nil, idem.ClassCompleted, 30, 0, ""},
	} {
		for _, op := range both {
			t.Run(name+"/"+op.Name, func(t *testing.T) {
				r, e := newBankRig(t), new(effects)
				key := op.Key("t", "k")
				call := idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(ctx context.Context) idem.Answer {
					_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve")})
					require.NoError(t, err)
					_, err = idem.UnitOf(ctx, func() idem.Unit { return &effect{n: 30} })
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
					require.Equal(t, tc.total, r.ledger.sum())
					require.Equal(t, tc.undone, e.ran("undo reserve"))
				}
			})
		}
	}
}

// Where undoing for a response was cut short, the steps tell the next attempt why.
func TestRefusalIsTheCauseOfUndoing(t *testing.T) {
	r, e := newRig(t, nil), new(effects)
	key := safe.Key("t", "k")
	var second error
	call := func(cause error) idem.Call {
		return idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Run: func(ctx context.Context) idem.Answer {
			_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve", errPlain)})
			require.NoError(t, err)
			if e.ran("undo reserve") > 0 {
				_, second = idem.Step(ctx, "pay", e.step("pay"), nil)
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
	require.Zero(t, e.ran("pay"))
	require.Equal(t, idem.Completed, r.state(t, key))
	require.Equal(t, 2, e.ran("undo reserve"))
}

// Once undoing has begun nothing commits, although a later attempt's handler
// succeeds.
func TestWhatIsBeingUndoneCommitsNothing(t *testing.T) {
	for name, dies := range map[string]bool{"a compensation failed": false, "the process died before the failure was written": true} {
		t.Run(name, func(t *testing.T) {
			r, e := newBankRig(t), new(effects)
			key := safe.Key("t", "k")
			handler := func(refuse error, undo ...error) func(context.Context) (string, error) {
				return func(ctx context.Context) (string, error) {
					if _, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve", undo...)}); err != nil {
						return "", err
					}
					return pay(effect{n: 30, refuse: refuse}, nil)(ctx, 1)
				}
			}
			if dies {
				r.faults.Next(idemtest.Finish, idemtest.Pass)
				r.faults.Always(idemtest.LoseRequest, idemtest.Finish)
			}
			undo := []error{errPlain}
			if dies {
				undo = nil
			}
			_, err := doSteps(t, r.rig, key, handler(idem.Permanent(declinedError{}), undo...))
			require.ErrorIs(t, err, declinedError{})
			r.clock.Advance(2 * idem.DefaultLease)
			other, err := idem.New(r.ledger, &idem.Options{Now: r.clock.Now})
			require.NoError(t, err)
			_, err = idem.Do(t.Context(), other, key, 1, func(ctx context.Context, _ int) (string, error) { return handler(nil)(ctx) })
			require.EqualError(t, err, "card declined")
			require.Zero(t, r.ledger.sum())
			require.Equal(t, idem.Failed, r.state(t, key))
			require.Equal(t, len(undo)+1, e.ran("undo reserve"))
		})
	}
}

// A handler that aborts commits only what it asks for afterwards, steps or not.
func TestUnitBesideAbort(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(context.Context)
		commits       bool
	}{
		"says nothing":         {},
		"said to be the end":   {after: idem.SetCompleted, commits: true},
		"the last word counts": {before: idem.SetCompleted},
	} {
		for _, steps := range []bool{false, true} {
			for _, op := range []idem.Operation{safe, charge, atomically} {
				if steps && op.Mode == idem.Atomic {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/mode %d/steps %v", name, op.Name, op.Mode, steps), func(t *testing.T) {
					r, e := newBankRig(t), new(effects)
					key, runs := op.Key("t", "k"), 0
					for range 2 {
						v, err := doSteps(t, r.rig, key, func(ctx context.Context) (string, error) {
							runs++
							if steps {
								_, err := trip(e, nil)(ctx)
								require.NoError(t, err)
							}
							if c.before != nil {
								c.before(ctx)
							}
							require.NoError(t, idem.Abort(ctx, declinedError{}))
							if c.after != nil {
								c.after(ctx)
							}
							return pay(effect{n: 30}, nil)(ctx, 1)
						})
						require.NoError(t, err)
						require.Equal(t, "paid", v, "the answer is the handler's own")
					}
					require.Equal(t, 1, runs)
					require.Equal(t, c.commits, r.ledger.sum() == 30)
					if steps {
						require.Equal(t, []int{1, 1, 1}, e.all(tripUndone...))
					}
				})
			}
		}
	}
}
