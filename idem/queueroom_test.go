package idem_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// Where the queue is full, results go and outcomes stay.
func TestResultsMakeRoomForOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		idem.BoundQueue(r.engine, 12<<10)
		large := func(context.Context, int) (string, error) { return strings.Repeat("x", 8<<10), nil }
		key := func(s string) idem.Key { return unsafe.Key("t", s) }

		r.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, noRoom)
		res, err := idem.Run(inLambda(t.Context()), r.engine, key("first"), 1, large)
		require.NoError(t, err)
		require.True(t, res.Outcome.Queued)
		require.Equal(t, []string{"claimed", "completed", "outcome_queued"}, r.events.take())

		r.faults.Always(noRoom, idemtest.Finish)
		res, err = idem.Run(inLambda(t.Context()), r.engine, key("second"), 1, large)
		require.NoError(t, err)
		require.True(t, res.Outcome.Queued, "without its result")
		require.True(t, res.Outcome.Omitted)
		require.Equal(t, []string{"claimed", "outcome_queued"}, r.events.take())

		for _, s := range []string{"third", "fourth", "fifth"} {
			res, err = idem.Run(inLambda(t.Context()), r.engine, key(s), 1, text)
			require.NoError(t, err)
			require.True(t, res.Outcome.Queued)
		}
		require.Equal(t, []string{"claimed", "outcome_queued", "claimed", "result_omitted", "outcome_queued", "claimed", "outcome_queued"}, r.events.take())
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
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
		res, err := idem.Run(inLambda(t.Context()), r.engine, key("large"), 1, func(context.Context, int) (string, error) { return large, nil })
		require.NoError(t, err)
		require.True(t, res.Outcome.Queued)
		r.events.take()

		r.faults.Always(idemtest.LoseReply, idemtest.Acquire)
		for n := range 10 {
			_, err := idem.Run(inLambda(t.Context()), r.engine, key(fmt.Sprint(n)), 1, text)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		}
		told := r.events.take()
		require.Contains(t, told, "outcome_queued")
		require.Contains(t, told, "outcome_dropped", "the queue is full")

		r.faults.Always(idemtest.Pass, idemtest.Acquire)
		for _, s := range []string{"small", "another"} {
			res, err = idem.Run(inLambda(t.Context()), r.engine, key(s), 1, text)
			require.NoError(t, err)
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

// A claim under which nothing ran costs nobody a result.
func TestWithdrawalsDropNoResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		idem.BoundQueue(r.engine, 12<<10)
		key := func(s string) idem.Key { return unsafe.Key("t", s) }
		r.faults.Always(idemtest.LoseRequest, idemtest.Finish, idemtest.Withdraw)
		large := strings.Repeat("x", 8<<10)
		_, err := idem.Run(inLambda(t.Context()), r.engine, key("large"), 1, func(context.Context, int) (string, error) { return large, nil })
		require.NoError(t, err)
		r.faults.Always(idemtest.LoseReply, idemtest.Acquire)
		for n := range 4 {
			_, err := idem.Run(inLambda(t.Context()), r.engine, key(fmt.Sprint(n)), 1, text)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		}
		require.Contains(t, r.events.take(), "outcome_dropped", "the queue is full")
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.False(t, r.record(t, key("large")).Omitted)
	})
}

// witness is something that belongs to a call.
type witness struct{ Data [64]byte }

// What waits to be written keeps nothing of its call alive: no input, no context, no
// handler, no step.
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
	_, _ = idem.Do(ctx, r.engine, op.Key("t", "k"), input, func(ctx context.Context, in *witness) (int, error) {
		captured.Data[0]++
		if _, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return int(in.Data[0]), nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undo.Data[0]++; return nil }}); err != nil {
			return 0, err
		}
		return 1, fail
	})
	return map[string]weak.Pointer[witness]{
		"the input": weak.Make(input), "a value of the context": weak.Make(value),
		"what the handler captured": weak.Make(captured), "what a step captured": weak.Make(undo),
	}
}
