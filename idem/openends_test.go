package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// A commit in doubt of an attempt without a claim, whose fence is in doubt too: its process
// knows that the operation has run, and does not run it again before the fence is written.
func TestACommitInDoubtIsNotRunBesideBeforeItIsFenced(t *testing.T) {
	for _, before := range []string{"nothing", "an expired record"} {
		for name, lost := range map[string]idemtest.Fault{"requests": idemtest.LoseRequest, "replies": idemtest.LoseReply} {
			t.Run(name+" lost over "+before, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, key := newBankRig(t), openOp(true).Key("t", "k")
					leftExpired(t, r.rig, key)
					if before == "nothing" {
						r.mem.Delete(key.ID())
					}
					ran := 0
					call := func() error {
						_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
							ran++
							return pay(effect{n: 1}, nil)(ctx, n)
						})
						return err
					}
					r.faults.Next(idemtest.Acquire, idemtest.Refuse)
					r.faults.Always(lost, idemtest.Finish)
					r.faults.Always(idemtest.LoseRequest, idemtest.Get)
					require.ErrorIs(t, call(), idem.ErrNotCommitted)
					r.faults.Always(idemtest.Refuse)
					require.ErrorIs(t, call(), idem.ErrStoreUnavailable)
					r.faults.Heal()
					err := call()
					require.Equal(t, 1, ran, "it is not repeatable")
					if r.state(t, key) == idem.Completed {
						require.NoError(t, err)
						require.Equal(t, 1, r.ledger.sum())
						return
					}
					require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
					require.Zero(t, r.ledger.sum())
				})
			})
		}
	}
}

// reserved leaves a record with a step that has a compensation.
func reserved(t *testing.T, r *rig, key idem.Key, e *effects, end error, undo ...error) {
	t.Helper()
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve", undo...)})
		require.NoError(t, err)
		return "", end
	})
	require.Error(t, err)
	require.Equal(t, idem.Released, r.state(t, key))
	require.NotEmpty(t, r.record(t, key).Steps)
}

// An attempt without a claim knows nothing of the steps of earlier attempts. Whatever its
// end is, they stay, and what is not repeatable is not run again.
func TestAnEndWithoutAClaimForgetsNoSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		end, undone error // of the attempt without a claim; of what undoes its own step
		replies     idemtest.Fault
	}{
		"completed":     {},
		"failed":        {end: idem.Permanent(errPlain)},
		"uncertain":     {end: errPlain},
		"not undone":    {end: idem.Permanent(errPlain), undone: errPlain},
		"a reply lost":  {replies: idemtest.LoseReply},
		"a request too": {replies: idemtest.LoseRequest},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, e, key := newRig(t, nil), new(effects), openOp(strict).Key("t", "k")
					reserved(t, r, key, e, idem.NotExecuted(errPlain))
					r.faults.Next(idemtest.Acquire, idemtest.Refuse)
					if tc.replies != nil {
						r.faults.Next(idemtest.Settle, tc.replies)
						r.faults.Next(idemtest.Finish, tc.replies)
					}
					_, _ = doSteps(t, r, key, func(ctx context.Context) (string, error) {
						_, err := idem.Step(ctx, "pay", e.step("pay"), &idem.StepConfig[receiptOf]{Compensate: e.undo("pay", tc.undone)})
						return "", errors.Join(err, tc.end)
					})
					require.NoError(t, r.engine.Flush(t.Context()))
					require.Contains(t, r.record(t, key).Steps, "reserve")
					c := new(counter)
					_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, c.run)
					if strict || e.ran("undo pay") > 0 {
						require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
						require.Zero(t, c.count())
						why := r.record(t, key).Failure
						require.NotNil(t, why)
						require.Contains(t, why.Message, "parked by an attempt without a claim")
						if tc.end != nil {
							require.Contains(t, why.Message, errPlain.Error())
						}
						return
					}
					require.NoError(t, err)
				})
			})
		}
	}
}

// One that executed nothing leaves the steps as they are.
func TestNothingExecutedWithoutAClaimLeavesSteps(t *testing.T) {
	r, e, key := newRig(t, nil), new(effects), openOp(true).Key("t", "k")
	reserved(t, r, key, e, idem.NotExecuted(errPlain))
	before := r.record(t, key)
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	_, err := idem.Do(t.Context(), r.engine, key, 1, fails(idem.NotExecuted(errPlain)))
	require.Error(t, err)
	require.Equal(t, before, r.record(t, key))
}

// An operation that is being undone does not succeed in an attempt that does not know it.
func TestWhatIsBeingUndoneDoesNotCompleteWithoutAClaim(t *testing.T) {
	r, e, key := newRig(t, nil), new(effects), openOp(false).Key("t", "k")
	reserved(t, r, key, e, idem.Permanent(declinedError{}), errPlain)
	r.faults.Next(idemtest.Acquire, idemtest.Refuse)
	book := func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve")})
		return "booked", err
	}
	_, err := doSteps(t, r, key, book)
	require.ErrorIs(t, err, idem.ErrLeaseLost)
	_, err = doSteps(t, r, key, book)
	var recorded *idem.RecordedError
	require.ErrorAs(t, err, &recorded, "the cause of undoing")
	require.Equal(t, idem.Failed, r.state(t, key))
}

// What an attempt without a claim has begun to undo, no later attempt knows of: without an
// outcome it is parked, or the operation would go forward over what is undone.
func TestWhatWasUndoneWithoutAClaimDoesNotGoForward(t *testing.T) {
	for _, undone := range []error{nil, errPlain} {
		for name, end := range map[string]error{"uncertain": errPlain, "not executed": idem.NotExecuted(errPlain)} {
			t.Run(name, func(t *testing.T) {
				r, e, key := newRig(t, nil), new(effects), openOp(false).Key("t", "k")
				r.faults.Next(idemtest.Acquire, idemtest.Refuse)
				book := func(ctx context.Context) (string, error) {
					_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve", undone)})
					return "booked", err
				}
				_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
					_, err := book(ctx)
					require.NoError(t, err)
					require.ErrorIs(t, idem.Abort(ctx, declinedError{}), undone)
					return "", end
				})
				require.Error(t, err)
				_, err = doSteps(t, r, key, book)
				require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
				require.Equal(t, 1, e.ran("reserve"))
			})
		}
	}
}

// A step of an attempt without a claim runs while Abort is called: nothing is undone beside
// it, and once it has returned, it is undone with the others.
func TestAnAbortWithoutAClaimUndoesNothingBesideAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, key := newRig(t, nil), new(effects), openOp(false).Key("t", "k")
		r.faults.Next(idemtest.Acquire, idemtest.Refuse)
		var open *idem.StepInterruptedError
		var first, second error
		var between int
		out, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
			_, err := idem.Step(ctx, "reserve", e.step("reserve"), &idem.StepConfig[receiptOf]{Compensate: e.undo("reserve")})
			require.NoError(t, err)
			shipped := make(chan error)
			go func() {
				_, err := idem.Step(ctx, "ship", func(ctx context.Context) (receiptOf, error) {
					time.Sleep(time.Second)
					return e.step("ship")(ctx)
				}, &idem.StepConfig[receiptOf]{Compensate: e.undo("ship")})
				shipped <- err
			}()
			synctest.Wait()
			first, between = idem.Abort(ctx, declinedError{}), e.ran("undo reserve")
			err = <-shipped
			second = idem.Abort(ctx, declinedError{})
			return "402", err
		})
		require.NoError(t, err)
		require.Equal(t, "402", out)
		require.ErrorAs(t, first, &open)
		require.Zero(t, between)
		require.NoError(t, second)
		require.Equal(t, []int{1, 1}, e.all("undo reserve", "undo ship"))
	})
}

// A first claim in doubt meets an expired record, and so does its withdrawal: it does not
// land once TTL has deleted that. So it is where the withdrawal waits in the queue.
func TestAWithdrawnClaimDoesNotLandBehindAnExpiredRecord(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){
		"expired": leftExpired,
		"about to expire": func(t *testing.T, r *rig, key idem.Key) {
			released(t, r, key)
			r.clock.Advance(idem.DefaultRetention - time.Minute)
		},
		"expired when it comes, gone when it comes again": func(t *testing.T, r *rig, key idem.Key) {
			leftExpired(t, r, key)
			r.faults.Next(idemtest.Withdraw, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
				r.mem.Delete(key.ID())
				return c.Do(ctx)
			})
		},
		"not shown": func(t *testing.T, r *rig, key idem.Key) {
			leftExpired(t, r, key)
			r.faults.Next(idemtest.Withdraw, idemtest.BareConflict)
		},
	} {
		for _, queued := range []bool{false, true} {
			for _, op := range both {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r, c, key := newRig(t, nil), new(counter), op.Key("t", "k")
						if queued {
							r.faults.Next(idemtest.Withdraw, idemtest.LoseRequest)
						}
						before(t, r, key)
						var claim *idemtest.Call
						r.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
						_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
						require.ErrorIs(t, err, idem.ErrStoreUnavailable)
						require.NoError(t, r.engine.Flush(t.Context()))
						r.clock.Advance(15 * time.Minute) // as long as AWS accepts a signature
						if rec := r.record(t, key); rec.Expired(r.clock.Now()) {
							r.mem.Delete(key.ID())
						}
						require.Error(t, claim.Do(t.Context()), "the delayed claim comes too late")
						v, err := idem.Do(t.Context(), r.engine, key, 1, c.run)
						require.NoError(t, err)
						require.Equal(t, 1, v)
					})
				})
			}
		}
	}
}

// What a valid record says is not taken away by a withdrawal.
func TestAWithdrawalLeavesWhatIsValid(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *rig, idem.Key){"completed": finished, "released": released, "a claim": killed} {
		t.Run(name, func(t *testing.T) {
			r, c, key := newRig(t, nil), new(counter), safe.Key("t", "k")
			before(t, r, key)
			old := r.record(t, key)
			r.faults.Next(idemtest.Acquire, idemtest.LoseRequest)
			_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, c.run)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, old, r.record(t, key))
		})
	}
}
