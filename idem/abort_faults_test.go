package idem_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// Attempts whose steps run side by side, beside calls of Abort, over a store that loses
// requests and replies: once the operation has failed, all that took effect was undone, and
// once it has succeeded nothing was.
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
		x.faults.Next([]idemtest.Method{idemtest.RecordStep, idemtest.RecordStep, idemtest.Finish, idemtest.StepResult}[x.n(4)], faults...)
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
