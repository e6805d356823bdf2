package idem_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// refer is a handler that says the references, one after the other.
func refer(t *testing.T, refs ...string) func(context.Context, int) (int, error) {
	return func(ctx context.Context, n int) (int, error) {
		for _, ref := range refs {
			require.NoError(t, idem.SetReference(ctx, ref))
		}
		return n, nil
	}
}

func TestAReferenceIsRecordedBeforeTheOutcome(t *testing.T) {
	r, key := rigOn(t, unsafe)
	res := mustRun(t, r, key, func(ctx context.Context, n int) (int, error) {
		before := r.record(t, key)
		require.NoError(t, idem.SetReference(ctx, "pay_1"))
		rec := r.record(t, key)
		require.Equal(t, "pay_1", rec.Ref)
		require.Equal(t, idem.InProgress, rec.State)
		require.Equal(t, before.Due, rec.Due)
		info, _ := idem.InfoOf(ctx)
		require.Equal(t, "pay_1", info.Ref)
		return n, nil
	})
	require.Equal(t, "pay_1", res.Outcome.Ref)
	require.Equal(t, m("Acquire", "RecordReference", "Finish"), r.faults.Calls())
	again := mustRun(t, r, key, new(counter).run)
	require.True(t, again.Outcome.Replayed)
	require.Equal(t, "pay_1", again.Outcome.Ref)
	status, err := r.engine.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "pay_1", status.Ref)
}

func TestEveryEndKeepsTheReference(t *testing.T) {
	for name, end := range map[string]error{"completed": nil, "failed": idem.Permanent(errPlain), "parked": errPlain,
		"released": idem.NotExecuted(errPlain)} {
		for _, fault := range []idemtest.Fault{idemtest.Pass, idemtest.LoseReply, idemtest.LoseRequest, idemtest.Refuse} {
			testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Next(idemtest.RecordReference, fault)
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
					_ = idem.SetReference(ctx, "pay_1")
					require.NoError(t, ctx.Err(), "a store that fails ends nothing")
					return n, end
				})
				require.Equal(t, end == nil, err == nil)
				require.Equal(t, "pay_1", r.record(t, key).Ref)
			})
		}
	}
}

// A reference that is said again costs nothing, and the last of several counts.
func TestTheLastReferenceCounts(t *testing.T) {
	r, key := rigOn(t, unsafe)
	must(t, r, key, refer(t, "pay_1", "pay_1", "pay_2", "pay_2"))
	require.Equal(t, 2, r.count(idemtest.RecordReference))
	require.Equal(t, "pay_2", r.record(t, key).Ref)
}

// What became of a reference whose reply was lost is found out with the next one.
func TestReferenceInDoubt(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"reply lost": idemtest.LoseReply,
		"request lost": idemtest.LoseRequest, "refused": idemtest.Refuse} {
		for _, second := range []string{"pay_1", "pay_2"} {
			testOn(t, name+", then "+second, unsafe, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Next(idemtest.RecordReference, fault)
				must(t, r, key, func(ctx context.Context, n int) (int, error) {
					require.ErrorIs(t, idem.SetReference(ctx, "pay_1"), idem.ErrStoreUnavailable)
					require.NoError(t, idem.SetReference(ctx, second))
					require.Equal(t, second, r.record(t, key).Ref)
					return n, nil
				})
				require.Equal(t, second, r.record(t, key).Ref)
			})
		}
	}
}

// A request that a network delays, or repeats, changes nothing once another reference is
// recorded: neither that, nor the id of the write by which others tell what they have read.
func TestADelayedReferenceComesTooLate(t *testing.T) {
	for name, first := range map[string]func(held **idemtest.Call) idemtest.Fault{
		"delayed": idemtest.Hold,
		"repeated": func(held **idemtest.Call) idemtest.Fault {
			return func(ctx context.Context, c *idemtest.Call) error {
				*held = c
				return c.Do(ctx)
			}
		},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			var held *idemtest.Call
			r.faults.Next(idemtest.RecordReference, first(&held))
			must(t, r, key, func(ctx context.Context, n int) (int, error) {
				_ = idem.SetReference(ctx, "pay_1")
				require.NoError(t, idem.SetReference(ctx, "pay_2"))
				before := r.record(t, key)
				require.Error(t, held.Do(t.Context()))
				require.Equal(t, before, r.record(t, key))
				require.NoError(t, idem.SetReference(ctx, "pay_1"), "it may come back")
				require.NoError(t, idem.SetReference(ctx, "pay_3"))
				before = r.record(t, key)
				require.Error(t, held.Do(t.Context()))
				require.Equal(t, before, r.record(t, key))
				return n, nil
			})
			require.Equal(t, "pay_3", r.record(t, key).Ref)
		})
	}
}

func TestReferenceOfALostClaim(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		out := must(t, r.inLambda(), key, func(ctx context.Context, _ int) (int, error) {
			r.clock.Advance(time.Hour)
			must(t, r.elsewhere(t), key, refer(t, "pay_2"))
			require.ErrorIs(t, idem.SetReference(ctx, "pay_1"), idem.ErrLeaseLost)
			require.ErrorIs(t, context.Cause(ctx), idem.ErrLeaseLost)
			_, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { panic("it must not run") }, nil)
			require.ErrorIs(t, err, idem.ErrLeaseLost)
			return 7, nil
		})
		require.Equal(t, 1, out, "the other attempt's")
		require.Equal(t, "pay_2", r.record(t, key).Ref)
	})
}

// An attempt that was parked from the side may still say what its provider calls the
// effect: that is what the question is answered with.
func TestReferenceAfterAPark(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		must(t, r.inLambda(), key, func(ctx context.Context, n int) (int, error) {
			time.Sleep(9600 * time.Millisecond)
			require.Equal(t, idem.Unknown, r.state(t, key))
			before := r.record(t, key)
			require.NoError(t, idem.SetReference(ctx, "pay_1"))
			rec := r.record(t, key)
			require.Equal(t, idem.Unknown, rec.State)
			require.Equal(t, "pay_1", rec.Ref)
			require.Equal(t, before.Due, rec.Due)
			return n, nil
		})
		require.Equal(t, idem.Completed, r.state(t, key))
		require.Equal(t, "pay_1", r.record(t, key).Ref)
	})
}

// A later attempt learns what an earlier one said, unless that provably had no effect.
func TestTheNextAttemptHasTheReference(t *testing.T) {
	dies := func(t *testing.T, r *rig, key idem.Key) {
		h := r.elsewhere(t)
		h.faults.Always(idemtest.LoseRequest, idemtest.Finish)
		must(t, h.inLambda(), key, refer(t, "pay_1"))
		r.clock.Advance(time.Hour)
	}
	ends := func(err error) func(t *testing.T, r *rig, key idem.Key) {
		return func(t *testing.T, r *rig, key idem.Key) {
			_, got := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_1"))
				return n, err
			})
			require.Same(t, errPlain, got)
		}
	}
	withdrawn := func(t *testing.T, r *rig, key idem.Key) {
		dies(t, r, key)
		h := r.elsewhere(t)
		h.faults.Next(idemtest.Acquire, idemtest.Pass, idemtest.LoseReply)
		refused(t, h, key, idem.ErrStoreUnavailable, new(counter).run)
		require.Equal(t, idem.Released, r.state(t, key))
	}
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, r *rig, key idem.Key)
		want   string
	}{
		{"died", dies, "pay_1"},
		{"uncertain", ends(errPlain), "pay_1"},
		{"died, and a takeover was withdrawn", withdrawn, "pay_1"},
		{"not executed", ends(idem.NotExecuted(errPlain)), ""},
	} {
		testOn(t, tc.name, safe, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			r.faults.Reset()
			res := mustRun(t, r, key, func(ctx context.Context, n int) (int, error) {
				info, _ := idem.InfoOf(ctx)
				require.Equal(t, tc.want, info.Ref)
				if tc.want != "" {
					require.NoError(t, idem.SetReference(ctx, tc.want))
				}
				return n, nil
			})
			require.Equal(t, tc.want, res.Outcome.Ref)
			require.Equal(t, tc.want, r.record(t, key).Ref)
			require.Zero(t, r.count(idemtest.RecordReference), "the record has it")
		})
	}
}

// A later attempt says what the one before said, in the same order.
func TestTheNextAttemptSaysItsReferencesAgain(t *testing.T) {
	r, key := rigOn(t, safe)
	for _, end := range []error{errPlain, errPlain, nil} {
		_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
			for _, ref := range []string{"parcel-1", "payment-1"} {
				require.NoError(t, idem.SetReference(ctx, ref))
				require.Equal(t, ref, r.record(t, key).Ref)
			}
			return n, end
		})
		require.Equal(t, end == nil, err == nil)
		require.Equal(t, "payment-1", r.record(t, key).Ref)
	}
}

// Without a claim to write under, the outcome carries it.
func TestReferenceWithoutAClaim(t *testing.T) {
	testOn(t, "atomic", atomically, func(t *testing.T, r *rig, key idem.Key) {
		res := mustRun(t, r, key, refer(t, "pay_1", "pay_2"))
		require.Equal(t, m("Get", "Finish"), r.faults.Calls())
		require.Equal(t, "pay_2", res.Outcome.Ref)
		require.Equal(t, "pay_2", r.record(t, key).Ref)
	})
	testOn(t, "failed open", failsOpen, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Next(idemtest.Acquire, idemtest.Refuse)
		res := mustRun(t, r, key, refer(t, "pay_1"))
		require.Zero(t, r.count(idemtest.RecordReference))
		require.Equal(t, "pay_1", res.Outcome.Ref)
	})
}

func TestReferenceIsASign(t *testing.T) {
	rejecting := unsafe
	rejecting.Classify = func(context.Context, any, error) idem.Class { return idem.ClassRejected }
	for _, refs := range [][]string{nil, {"pay_1"}} {
		r, key := rigOn(t, rejecting)
		errs(t, r, key, func(ctx context.Context, n int) (int, error) {
			_, err := refer(t, refs...)(ctx, n)
			require.NoError(t, err)
			return n, errPlain
		})
		require.Equal(t, map[bool]idem.State{true: idem.Unknown, false: idem.Released}[len(refs) > 0], r.state(t, key))
	}
}

func TestReferencesThatAreRefused(t *testing.T) {
	r, key := rigOn(t, unsafe)
	says := func(ctx context.Context, ref, what string) {
		mistaken(t, idem.SetReference(ctx, ref), what)
	}
	says(t.Context(), "pay_1", "not a handler's")
	var outer context.Context
	must(t, r, key, func(ctx context.Context, n int) (int, error) {
		outer = ctx
		says(ctx, "", "is empty")
		says(ctx, strings.Repeat("r", 257), "257 bytes: use at most 256")
		says(ctx, "pay\n1", "control characters")
		says(ctx, "pay\xff", "not valid UTF-8")
		require.NoError(t, idem.SetReference(ctx, strings.Repeat("r", 256)))
		return n, nil
	})
	says(outer, "pay_1", "has returned")
	require.Equal(t, 1, r.count(idemtest.RecordReference))
}

// A step's reference is written with its begin mark, before the function runs.
func TestReferenceOfAStep(t *testing.T) {
	r, key := rigOn(t, safe)
	charge := func(ctx context.Context) error {
		return idem.StepEffect(ctx, "charge", func(ctx context.Context) error {
			rec := r.record(t, key)
			require.True(t, rec.Steps["charge"].Begun)
			require.Equal(t, "order-1", rec.Ref)
			return nil
		}, &idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "order-1"})
	}
	must(t, r, key, func(ctx context.Context, _ int) (string, error) {
		return "", charge(ctx)
	})
	require.Equal(t, m("Acquire", "RecordStep", "RecordStep", "Finish"), r.faults.Calls())
	require.Equal(t, "order-1", r.record(t, key).Ref)
}

// What an interrupted step said is there when somebody asks what became of it.
func TestReferenceOfAnInterruptedStep(t *testing.T) {
	r, key := rigOn(t, safe)
	mark := protocol.StepWrite{Name: "charge", Begin: true, Ref: "order-1"}
	killedWith(t, r, key, mark)
	must(t, r, key, steps(func(ctx context.Context) (string, error) {
		_, err := idem.Step(ctx, "charge",
			func(context.Context) (string, error) { return "again", nil }, &idem.StepConfig[string]{
				Semantics: idem.AtMostOnce, Reference: "order-1", NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(ctx context.Context, _ time.Time) (string, error) {
					info, _ := idem.InfoOf(ctx)
					require.Equal(t, "order-1", info.Ref)
					return "", idem.NotExecuted(errPlain)
				},
			})
		return "", err
	}))
	require.Equal(t, "order-1", r.record(t, key).Ref)
}

// A later attempt says the first of several again and skips the step that said the last:
// the record ends with the last all the same, at no further write.
func TestReferenceOfAStepThatIsSkipped(t *testing.T) {
	for name, tc := range map[string]struct {
		step  protocol.StepWrite
		state idem.State
	}{
		"done":        {protocol.StepWrite{Name: "charge", Result: []byte("7")}, idem.Completed},
		"interrupted": {protocol.StepWrite{Name: "charge", Begin: true, Ref: "payment-1"}, idem.Unknown},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			killedWith(t, r, key, tc.step)
			r.faults.Reset()
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "parcel-1"))
				return idem.Step(ctx, "charge", func(context.Context) (int, error) { panic("it must not run") },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce, Reference: "payment-1"})
			})
			require.Equal(t, tc.state == idem.Completed, err == nil)
			require.Equal(t, tc.state, r.state(t, key))
			require.Equal(t, "payment-1", r.record(t, key).Ref)
			require.Equal(t, "payment-1", res.Outcome.Ref)
			require.Equal(t, 1, r.count(idemtest.RecordReference))
			require.Zero(t, r.count(idemtest.RecordStep))
		})
	}
}

func TestReferencesOfStepsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		config idem.StepConfig[int]
		says   string
	}{
		"at least once": {idem.StepConfig[int]{Reference: "order-1"}, "call idem.SetReference"},
		"too long":      {idem.StepConfig[int]{Semantics: idem.AtMostOnce, Reference: strings.Repeat("r", 257)}, "257 bytes"},
	} {
		testOn(t, name, safe, func(t *testing.T, r *rig, key idem.Key) {
			must(t, r, key, func(ctx context.Context, n int) (int, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { panic("it must not run") }, &tc.config)
				mistaken(t, err, tc.says)
				return n, nil
			})
			require.Zero(t, r.count(idemtest.RecordStep))
		})
	}
}

// Steps side by side, renewals of the lease and references disturb each other not.
func TestReferencesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t, &idem.Options{Lease: 3 * time.Second}), safe.Key("t", "k")
		must(t, r, key, func(ctx context.Context, _ int) (string, error) {
			var g sync.WaitGroup
			for n := range 8 {
				g.Go(func() {
					err := idem.StepEffect(ctx, fmt.Sprint("charge-", n), func(ctx context.Context) error {
						time.Sleep(time.Duration(n) * time.Second)
						return idem.SetReference(ctx, fmt.Sprint("pay_", n))
					}, &idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: fmt.Sprint("order-", n)})
					require.NoError(t, err)
				})
			}
			g.Wait()
			return "", nil
		})
		require.NotZero(t, r.count(idemtest.Extend))
		require.Equal(t, "pay_7", r.record(t, key).Ref)
	})
}

// A reference that was replaced does not come back over the last one said: neither if the
// write that replaced the last one had landed, nor if it lands late.
func TestAReplacedReferenceDoesNotComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(held **idemtest.Call) idemtest.Fault
		again bool
	}{
		"reply lost, said again":      {func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply }, true},
		"request delayed, said again": {idemtest.Hold, true},
		"reply lost, at the end":      {func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply }, false},
		"request delayed, at the end": {idemtest.Hold, false},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			var held *idemtest.Call
			late := func() {
				if held != nil {
					require.Error(t, held.Do(t.Context()))
				}
			}
			refused(t, r, key, nil, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				r.faults.Next(idemtest.RecordReference, tc.fault(&held))
				require.ErrorIs(t, idem.SetReference(ctx, "pay_B"), idem.ErrStoreUnavailable)
				if !tc.again {
					r.faults.Always(idemtest.Refuse, idemtest.RecordReference)
					require.ErrorIs(t, idem.SetReference(ctx, "pay_A"), idem.ErrStoreUnavailable)
					return n, errPlain
				}
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				require.Equal(t, "pay_A", r.record(t, key).Ref)
				late()
				require.Equal(t, "pay_A", r.record(t, key).Ref)
				require.NoError(t, idem.SetReference(ctx, "pay_A"), "no longer in doubt")
				return n, errPlain
			})
			late()
			rec := r.record(t, key)
			require.Equal(t, idem.Unknown, rec.State)
			require.Equal(t, "pay_A", rec.Ref)
		})
	}
}

// The same with the begin mark of a step that does not begin.
func TestAMarkWithoutAnswerDoesNotKeepItsReference(t *testing.T) {
	for name, fault := range map[string]func(held **idemtest.Call) idemtest.Fault{
		"reply lost":      func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply },
		"request delayed": idemtest.Hold,
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			var held *idemtest.Call
			refused(t, r, key, nil, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				r.faults.Next(idemtest.RecordStep, fault(&held), idemtest.Refuse)
				err := idem.StepEffect(ctx, "charge", func(context.Context) error { panic("it must not run") },
					&idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "pay_B"})
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				if held != nil {
					require.NoError(t, held.Do(t.Context()), "it is over no reference")
				}
				return n, err
			})
			require.Equal(t, idem.Unknown, r.record(t, key).State)
			require.Equal(t, "pay_A", r.record(t, key).Ref)
		})
	}
}

// A mark says a reference that is in doubt, although the record had it.
func TestAMarkSaysAReferenceInDoubt(t *testing.T) {
	r, key := rigOn(t, unsafe)
	must(t, r, key, func(ctx context.Context, n int) (int, error) {
		require.NoError(t, idem.SetReference(ctx, "pay_A"))
		r.faults.Next(idemtest.RecordReference, idemtest.LoseReply)
		require.ErrorIs(t, idem.SetReference(ctx, "pay_B"), idem.ErrStoreUnavailable)
		return n, idem.StepEffect(ctx, "charge", func(context.Context) error {
			require.Equal(t, "pay_A", r.record(t, key).Ref)
			return nil
		}, &idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "pay_A"})
	})
	require.Equal(t, "pay_A", r.record(t, key).Ref)
}
