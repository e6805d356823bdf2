package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

// inLambda gives a call a kill time, and with it a process that is frozen between
// calls: nothing is written in the background.
func inLambda(ctx context.Context) context.Context {
	return idem.WithKillTime(ctx, time.Now().Add(10*time.Second))
}

// The write of every end that cannot be made, or whose reply or request is lost: it is returned, keeps the claim, and
// is done once it is repeated. Nothing runs twice, and nothing is reported as landed that did not.
func TestEveryEndWithALostReply(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want [2]idem.State // of a repeatable operation, and of another one
	}{
		"complete":  {nil, [2]idem.State{idem.Completed, idem.Completed}},
		"fail":      {idem.Permanent(errPlain), [2]idem.State{idem.Failed, idem.Failed}},
		"release":   {idem.NotExecuted(errPlain), [2]idem.State{idem.Released, idem.Released}},
		"uncertain": {errPlain, [2]idem.State{idem.Released, idem.Unknown}},
	} {
		for lost, fault := range map[string]idemtest.Fault{"reply": idemtest.LoseReply, "request": idemtest.LoseRequest,
			"refused": idemtest.Refuse, "black hole": idemtest.BlackHole} {
			for _, op := range both {
				testOn(t, name+"/"+lost+"/"+op.Name, op, func(t *testing.T, r *rig, key idem.Key) {
					r.faults.Next(idemtest.Finish, fault)
					res, err := idem.Run(inLambda(t.Context()), r.engine, key, 1, fails(tc.err))
					require.Equal(t, idem.Unmark(tc.err), err)
					require.True(t, res.Outcome.Queued)
					require.Equal(t, idem.InProgress, res.Outcome.RecordState)
					require.Equal(t, under(op, tc.want[0], tc.want[1]), res.Outcome.AttemptState, "its own, written or not")
					require.Equal(t, []string{"claimed", "outcome_queued"}, r.events.take())
					landed, want := r.record(t, key), under(op, tc.want[0], tc.want[1])
					if lost == "reply" {
						require.Equal(t, want, landed.State)
					} else {
						require.Equal(t, idem.InProgress, landed.State, "the claim is kept")
						refused(t, r.elsewhere(t).inLambda(), key, idem.ErrInFlight, new(counter).run)
					}
					time.Sleep(time.Second)
					synctest.Wait()
					require.Empty(t, r.events.take(), "nothing in the background of a frozen process")
					if want == idem.Completed { // by the next call
						again := mustRun(t, r.inLambda(), key, fails(errPlain))
						require.True(t, again.Outcome.Replayed)
						require.Equal(t, res.Outcome.Body, again.Outcome.Body)
						require.Equal(t, []string{"outcome_landed", "replayed"}, r.events.take())
					} else {
						require.NoError(t, r.engine.Flush(t.Context()))
						require.Equal(t, []string{"outcome_landed"}, r.events.take())
					}
					after := r.record(t, key)
					require.Equal(t, want, after.State)
					require.Equal(t, 1, after.Attempt)
					if lost == "reply" {
						require.Equal(t, landed, after, "the same write again changes nothing")
					}
				})
			}
		}
	}
}

// A queued outcome lands in the background once the store is back, with as much time as its own call had, and is given
// up after an hour.
func TestOutcomeLandsInTheBackground(t *testing.T) {
	large := returns(strings.Repeat("x", 8<<20))
	for _, tc := range []struct {
		name     string
		down     time.Duration
		handler  handler[string]
		takes    time.Duration // the write
		reported string
	}{
		{"at once", time.Millisecond, large, 9 * time.Second, "outcome_landed"},
		{"after minutes", 20 * time.Minute, text, 0, "outcome_landed"},
		{"too late", 2 * time.Hour, text, 0, "outcome_dropped"},
	} {
		testOn(t, tc.name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Always(idemtest.Refuse, idemtest.Finish)
			must(t, r, key, tc.handler)
			time.Sleep(tc.down)
			require.Equal(t, idem.InProgress, r.state(t, key))
			r.faults.Always(slow(tc.takes, idemtest.Pass), idemtest.Finish)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			require.Equal(t, tc.reported == "outcome_landed", r.state(t, key) == idem.Completed)
			require.Equal(t, []string{"claimed", "outcome_queued", tc.reported}, r.events.take())
			// The bubble ends only if the goroutine that wrote it has.
		})
	}
}

// What another process has resolved is not overwritten by a late outcome. Parked by another call before that, the
// queued outcome still closes its own question.
func TestQueuedOutcomeIsFenced(t *testing.T) {
	fenced := []string{"outcome_dropped", "replayed"}
	for _, tc := range []struct {
		name     string
		op       idem.Operation
		between  play
		value    int
		reported []string
	}{
		{"taken over", safe, func(t *testing.T, r *rig, key idem.Key) {
			must(t, r.elsewhere(t), key, returns(77))
		}, 77, fenced},
		{"resolved", unsafe, func(t *testing.T, r *rig, key idem.Key) {
			require.NoError(t, r.elsewhere(t).resolve(t, key.ID(),
				reconcile.Resolution{To: idem.Completed, Result: encoded("77")}))
		}, 77, fenced},
		{"parked", unsafe, func(t *testing.T, r *rig, key idem.Key) {
			refused(t, r.elsewhere(t), key, idem.ErrOutcomeUnknown, r.c.run)
		}, 1, []string{"outcome_landed", "replayed"}},
	} {
		testOn(t, tc.name, tc.op, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Next(idemtest.Finish, idemtest.LoseRequest)
			must(t, r.inLambda(), key, r.c.run)
			r.clock.Advance(time.Minute)
			tc.between(t, r, key)
			r.events.take()
			require.Equal(t, tc.value, must(t, r.inLambda(), key, r.c.run))
			require.Equal(t, tc.reported, r.events.take())
			require.Equal(t, 1, r.c.count())
		})
	}
}

// Where there is no room for everything the results go first, those of others too.
func TestFullQueueKeepsOutcomesWithoutTheirResults(t *testing.T) {
	for name, sizes := range map[string][]int{
		"a result that is too large for it":      {20 << 10},
		"a result that others have left no room": {6 << 10, 6 << 10},
		"the results of others":                  {8 << 10, 100, 100, 100},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, nil)
			idem.BoundQueue(r.engine, 12<<10)
			r.faults.Always(idemtest.Refuse, idemtest.Finish)
			call := func(i, size int) (string, error) {
				return idem.Do(inLambda(t.Context()), r.engine, safe.Key("t", fmt.Sprint(i)), 1, returns(strings.Repeat("x", size)))
			}
			for i, size := range sizes {
				v, err := call(i, size)
				require.NoError(t, err)
				require.Len(t, v, size)
			}
			require.NotContains(t, r.events.take(), "outcome_dropped")
			r.faults.Heal()
			require.NoError(t, r.engine.Flush(t.Context()))
			lost := 0
			for i := range sizes {
				require.Equal(t, idem.Completed, r.state(t, safe.Key("t", fmt.Sprint(i))))
				if _, err := call(i, 1); err != nil {
					require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
					lost++
				}
			}
			require.Equal(t, 1, lost)
		})
	}
}

// A try with the result may still be under way where the result was given up since.
func TestResultThatWasGivenUpMayHaveLanded(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		idem.BoundQueue(r.engine, 4<<10)
		r.faults.Always(idemtest.LoseReply, idemtest.Finish)
		long := strings.Repeat("x", 20<<10)
		must(t, r.inLambda(), key, returns(long))
		r.events.take()
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, []string{"outcome_landed"}, r.events.take())
		v := must(t, r.inLambda(), key, returns("again"))
		require.Equal(t, long, v)
	})
}

func TestQueueIsBounded(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		idem.BoundQueue(r.engine, 5<<10)
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		kinds := map[string]int{}
		for i := range 8 {
			res, err := idem.Run(inLambda(t.Context()), r.engine, safe.Key("t", fmt.Sprint(i)), 1, new(counter).run)
			require.NoError(t, err, "the caller gets its result, queued or not")
			require.Equal(t, i < 4, res.Outcome.Queued)
			require.Equal(t, idem.InProgress, res.Outcome.RecordState)
		}
		for _, name := range r.events.take() {
			kinds[name]++
		}
		require.Equal(t, map[string]int{"claimed": 8, "outcome_queued": 4, "outcome_dropped": 4}, kinds)
		// A round that fails gives nothing of the bound back.
		require.Error(t, r.engine.Flush(expired(t)))
		must(t, r.inLambda(), safe.Key("t", "one more"), new(counter).run)
		require.Equal(t, []string{"claimed", "outcome_dropped"}, r.events.take())
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, []string{"outcome_landed", "outcome_landed", "outcome_landed", "outcome_landed"}, r.events.take())
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		must(t, r.inLambda(), safe.Key("t", "after"), new(counter).run)
		require.Equal(t, []string{"claimed", "outcome_queued"}, r.events.take(), "what landed makes room")
	})
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestFlush(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		require.NoError(t, r.engine.Flush(t.Context()), "nothing waits")
		key := unsafe.Key("t", "k")
		r.faults.Always(idemtest.Refuse, idemtest.Finish)
		must(t, r.inLambda(), key, new(counter).run)
		err := r.engine.Flush(expired(t))
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(3 * time.Second)
			r.faults.Heal()
		}()
		require.NoError(t, r.engine.Flush(t.Context()), "it waits until the store is back")
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

// A call that flushes takes what waits into its hands. If it fails, the background writer must still be there, and
// Flush must not have said that all is written.
func TestWhatACallFailedToFlushIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{ClaimBudget: time.Second})
		key := unsafe.Key("t", "k")
		// Refused at once: the background writer is about to try again in 50 ms.
		r.faults.Next(idemtest.Finish, idemtest.Refuse, idemtest.BlackHole)
		must(t, r, key, new(counter).run)
		// The next call has it in hands, in a black hole, while that one wakes up.
		done := make(chan error)
		go func() {
			_, err := idem.Do(t.Context(), r.engine, unsafe.Key("t", "other"), 1, new(counter).run)
			done <- err
		}()
		synctest.Wait()
		require.ErrorIs(t, r.engine.Flush(immediately(t)), context.DeadlineExceeded, "something still waits")
		require.NoError(t, <-done)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

func immediately(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// One write that the store never takes must not keep the others from landing: it goes behind them.
func TestAWriteThatNeverLandsDoesNotBlockOthers(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		bad, good := unsafe.Key("t", "bad"), unsafe.Key("t", "good")
		down := true
		r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if down || c.ID == bad.ID() {
				return errors.New("a store's very own error")
			}
			return c.Do(ctx)
		}, idemtest.Finish)
		for _, key := range []idem.Key{bad, good} {
			res := mustRun(t, r.inLambda(), key, new(counter).run)
			require.True(t, res.Outcome.Queued)
		}
		down = false
		for range 2 {
			require.Error(t, r.engine.Flush(expired(t)))
		}
		require.Equal(t, idem.Completed, r.state(t, good))
		require.Equal(t, idem.InProgress, r.state(t, bad))
	})
}

// A call that has a claim of its own to write leaves a large result for after its end, and so it does with a large
// outcome, which needs more time than there is before a claim. The calls after that cost nothing.
func TestWhatIsLargeLandsAfterTheNextCall(t *testing.T) {
	for name, tc := range map[string]struct {
		faults []idemtest.Fault
		takes  time.Duration
	}{
		"a result":   {[]idemtest.Fault{noRoom, idemtest.Refuse}, 0},
		"an outcome": {[]idemtest.Fault{idemtest.Refuse}, 600 * time.Millisecond},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Next(idemtest.Finish, tc.faults...)
			must(t, r.inLambda(), key, returns(strings.Repeat("x", 1<<20)))
			r.faults.Always(slow(tc.takes, idemtest.Pass), idemtest.Finish)
			must(t, r.inLambda(), unsafe.Key("t", "next"), func(context.Context, int) (int, error) {
				require.Equal(t, name == "a result", r.record(t, key).Omitted, "what counts is written before the claim")
				return 1, nil
			})
			require.Equal(t, idem.Completed, r.state(t, key))
			require.False(t, r.record(t, key).Omitted)
			r.faults.Reset()
			must(t, r.inLambda(), unsafe.Key("t", "after"), new(counter).run)
			require.Equal(t, m(idemtest.Acquire, idemtest.Finish), r.faults.Calls())
		})
	}
}

// Where the queue is full, results go and outcomes stay.
func TestResultsMakeRoomForOutcomes(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		idem.BoundQueue(r.engine, 12<<10)
		large := returns(strings.Repeat("x", 8<<10))
		key := func(s string) idem.Key { return unsafe.Key("t", s) }

		r.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, noRoom)
		res := mustRun(t, r.inLambda(), key("first"), large)
		require.True(t, res.Outcome.Queued)
		require.Equal(t, []string{"claimed", "completed", "outcome_queued"}, r.events.take())

		r.faults.Always(noRoom, idemtest.Finish)
		res = mustRun(t, r.inLambda(), key("second"), large)
		require.True(t, res.Outcome.Queued, "without its result")
		require.True(t, res.Outcome.Omitted)
		require.Equal(t, []string{"claimed", "outcome_queued"}, r.events.take())

		for _, s := range []string{"third", "fourth", "fifth"} {
			res = mustRun(t, r.inLambda(), key(s), text)
			require.True(t, res.Outcome.Queued)
		}
		require.Equal(t, []string{"claimed", "outcome_queued", "claimed", "result_omitted", "outcome_queued", "claimed",
			"outcome_queued"}, r.events.take())
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		for _, s := range []string{"first", "second"} {
			require.True(t, r.record(t, key(s)).Omitted, s)
		}
		for _, s := range []string{"second", "third", "fourth", "fifth"} {
			require.Equal(t, idem.Completed, r.state(t, key(s)))
		}
	})
}

// Claims under which nothing ran take no room from what did: many are taken back while
// the store is down, and each waits for that.
func TestWithdrawalsMakeRoomForOutcomes(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		idem.BoundQueue(r.engine, 16<<10)
		key := func(s string) idem.Key { return unsafe.Key("t", s) }
		finish, done := make(chan struct{}), make(chan idem.Outcome)
		go func() {
			res, err := idem.Run(inLambda(t.Context()), r.engine, key("running"), 1, func(context.Context, int) (string, error) {
				<-finish
				return "done", nil
			})
			if err != nil {
				t.Error(err)
			}
			done <- res.Outcome
		}()
		synctest.Wait()
		r.faults.Always(idemtest.LoseRequest, idemtest.Finish, idemtest.Withdraw)
		large := strings.Repeat("x", 8<<10)
		res := mustRun(t, r.inLambda(), key("large"), returns(large))
		require.True(t, res.Outcome.Queued)
		r.events.take()

		r.faults.Always(idemtest.LoseReply, idemtest.Acquire)
		for n := range 10 {
			refused(t, r.inLambda(), key(fmt.Sprint(n)), idem.ErrStoreUnavailable, text)
		}
		seen := r.events.take()
		require.Contains(t, seen, "outcome_queued")
		require.Contains(t, seen, "outcome_dropped", "the queue is full")

		r.faults.Always(idemtest.Pass, idemtest.Acquire)
		for _, s := range []string{"small", "another"} {
			res = mustRun(t, r.inLambda(), key(s), text)
			require.True(t, res.Outcome.Queued, s)
		}
		close(finish)
		require.True(t, (<-done).Queued)

		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		for _, s := range []string{"running", "large", "small", "another"} {
			require.Equal(t, idem.Completed, r.state(t, key(s)), s)
		}
	})
}

// A claim under which nothing ran costs no caller a result.
func TestWithdrawalsDropNoResults(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		idem.BoundQueue(r.engine, 12<<10)
		key := func(s string) idem.Key { return unsafe.Key("t", s) }
		r.faults.Always(idemtest.LoseRequest, idemtest.Finish, idemtest.Withdraw)
		large := strings.Repeat("x", 8<<10)
		mustRun(t, r.inLambda(), key("large"), returns(large))
		r.faults.Always(idemtest.LoseReply, idemtest.Acquire)
		for n := range 4 {
			refused(t, r.inLambda(), key(fmt.Sprint(n)), idem.ErrStoreUnavailable, text)
		}
		require.Contains(t, r.events.take(), "outcome_dropped", "the queue is full")
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.False(t, r.record(t, key("large")).Omitted)
	})
}

// A withdrawal that is written late and meets a newer claim has lost nothing.
func TestALateWithdrawalMeetsANewerClaim(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		r.faults.Always(idemtest.LoseRequest)
		_, err := idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Contains(t, r.events.take(), "outcome_queued")
		r.faults.Heal()
		must(t, r.elsewhere(t), key, new(counter).run)
		r.events.take()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, []string{"outcome_landed"}, r.events.take())
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

// witness is something that belongs to a call.
type witness struct{ Data [64]byte }

// What waits to be written keeps nothing of its call alive: no input, no context, no handler, no step, no unit of work.
func TestQueueKeepsNothingOfTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		op    idem.Operation
		fault func(*idemtest.Faults)
		err   error
	}{
		"an outcome": {safe, func(f *idemtest.Faults) { f.Always(idemtest.Refuse, idemtest.Finish) }, nil},
		"a failure":  {safe, func(f *idemtest.Faults) { f.Always(idemtest.Refuse, idemtest.Finish) }, errPlain},
		"a result owed": {safe, func(f *idemtest.Faults) {
			f.Next(idemtest.Finish, noRoom, idemtest.Pass)
			f.Always(noRoom, idemtest.Finish)
		}, nil},
		"a withdrawal": {safe, func(f *idemtest.Faults) { f.Always(idemtest.LoseRequest) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			tc.fault(r.faults)
			kept := queueOne(t, r, tc.op, tc.err)
			require.Contains(t, r.events.take(), "outcome_queued")
			runtime.GC()
			runtime.GC()
			for what, p := range kept {
				require.Nil(t, p.Value(), what)
			}
		})
	}
}

// queueOne runs a call whose last write is queued, and returns what came with it.
func queueOne(t *testing.T, r *rig, op idem.Operation, fail error) map[string]weak.Pointer[witness] {
	input, value, captured, undo := new(witness), new(witness), new(witness), new(witness)
	type valueKey struct{}
	ctx := context.WithValue(inLambda(context.Background()), valueKey{}, value)
	kept := map[string]weak.Pointer[witness]{"the input": weak.Make(input), "a value of the context": weak.Make(value),
		"what the handler captured": weak.Make(captured), "what a step captured": weak.Make(undo)}
	_, _ = idem.Do(ctx, r.engine, op.Key("t", "k"), input, func(ctx context.Context, in *witness) (int, error) {
		captured.Data[0]++
		if fail != nil { // which does not commit the unit
			_, err := idem.UnitOf(ctx, func() idem.Unit {
				unit := &struct {
					effect
					witness
				}{effect: effect{n: 1}}
				kept["its unit"] = weak.Make(&unit.witness)
				return unit
			})
			require.NoError(t, err)
		}
		if _, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return int(in.Data[0]), nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undo.Data[0]++; return nil }}); err != nil {
			return 0, err
		}
		return 1, fail
	})
	return kept
}
