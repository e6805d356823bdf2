package deliveries

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/stretchr/testify/require"
)

// size of a load: how many messages, how many calls of DynamoDB come on one that
// kills, and how many receives a message has. With so many only poison gets into the
// dead-letter queue: a delivery is spent on one of the first runs, which may fail, or
// on a kill, a duplicate in flight or a busy DynamoDB. Without poison, receives cost nothing:
// there are as many as the busiest machine may use up.
func size() (count, odds, receives int) {
	if rig.Long() {
		// DynamoDB Local looks through a table's whole stream at every write, and the
		// proofs read their histories there: four times as many messages take sixteen times
		// as long.
		return 1200, 75, 40
	}
	return 60, 60, 1000
}

const (
	poisonEvery    = 97
	permanentEvery = 89
	// From this run on a message that is not poison fails no more.
	lastFailure = 3
)

// poison is for the long runs: all its receives have to be used up.
func poison(n int) bool    { return rig.Long() && n%poisonEvery == 7 }
func permanent(n int) bool { return !poison(n) && n%permanentEvery == 11 }

// anyFate lets a handler end in every way, depending on the message and the run alone.
func anyFate(n, run int) string {
	switch {
	case poison(n):
		return "error before"
	case permanent(n):
		return "permanent"
	case run > lastFailure:
		return "ok"
	}
	return drawn(n, run)
}

var drawn = rig.Fates("5", []rig.Fate{
	{Of1000: 50, Name: "error before"}, {Of1000: 40, Name: "error after"}, {Of1000: 50, Name: "not executed"},
	{Of1000: 20, Name: "panic before"}, {Of1000: 20, Name: "panic after"}, {Of1000: 2, Name: "hang"},
})

// fewReceives is for messages that are redelivered without need.
const fewReceives = 4

// Repeatable, the effect being a write under the token: every message takes effect
// exactly once, and only poison is given up.
func TestRepeatableTakesEffectOnce(t *testing.T) {
	t.Parallel()
	count, odds, receives := size()
	l := newLoad(t, count, receives, idem.Repeatable, false)
	l.run(odds)
	l.requireOnce()
}

// moveBack does what operators do: it sends again what has used up its receives and is not poison, as on a slow
// machine a message may, and takes that for what was sent first.
func (l *load) moveBack(dead map[sending]bool) {
	moved := map[sending]sending{}
	var again []sending
	for s := range dead {
		if !poison(s.n) {
			delete(dead, s)
			moved[s] = sending{s.n, 1000 + s.copy}
			again = append(again, moved[s])
			l.movedBack[s.n] = true
		}
	}
	if len(again) == 0 {
		return
	}
	l.deliver(again)
	for first, then := range moved {
		l.acknowledged[first] = l.acknowledged[first] || l.acknowledged[then]
	}
	l.sent = slices.DeleteFunc(l.sent, func(s sending) bool { return s.copy >= 1000 })
}

// requireOnce is what holds for a repeatable operation, whatever the queue.
func (l *load) requireOnce() {
	t := l.t
	dead := l.dead()
	l.moveBack(dead)
	histories := l.histories()
	effects := map[effect]int{}
	for _, e := range l.done() {
		effects[e]++
	}
	for _, s := range l.sent {
		require.Equal(t, poison(s.n), dead[s], "only poison is given up: %+v", s)
		require.Equal(t, !poison(s.n), l.acknowledged[s], "%+v", s)
	}
	want := 0
	for n := range l.count {
		history := histories[recordID(n)]
		require.NotEmpty(t, history, "message %d", n)
		last := history[len(history)-1]
		e := effect{l.group(n), n}
		switch {
		case poison(n):
			require.Zero(t, effects[e])
			require.Contains(t, []idem.State{idem.Released, idem.InProgress}, last.state)
		case permanent(n):
			require.Zero(t, effects[e])
			require.Equal(t, idem.Failed, last.state, "message %d", n)
		default:
			want++
			require.Equal(t, 1, effects[e], "message %d", n)
			if last.state != idem.Completed {
				l.requireLostCompletion(n, last)
			}
		}
		attempts := map[int]bool{}
		for _, r := range l.recorder.Of(n) {
			require.False(t, attempts[r.Attempt], "message %d: two runs of attempt %d", n, r.Attempt)
			attempts[r.Attempt] = true
		}
	}
	require.Len(t, effects, want, "no effects but these")
}

// requireLostCompletion: the handler succeeded and its message was acknowledged, the
// completion could not be written yet, and its process went before it could be: a busy
// DynamoDB does that, seldom.
func (l *load) requireLostCompletion(n int, last image) {
	t := l.t
	l.unrecorded++
	require.LessOrEqual(t, l.unrecorded, 1+l.count/500, "completions are lost")
	require.Contains(t, []idem.State{idem.InProgress, idem.Unknown}, last.state, "message %d", n)
	runs := l.recorder.Of(n)
	require.NotEmpty(t, runs)
	end := runs[len(runs)-1]
	require.Equal(t, "ok", end.End, "message %d", n)
	require.Equal(t, last.attempt, end.Attempt, "message %d", n)
	require.True(t, l.gone(end.Pid), "message %d", n)
}

// Not repeatable: no message runs again after an attempt whose outcome nobody knows,
// and such attempts, no others, are parked or wait to be.
func TestNotRepeatableNeverRunsAgain(t *testing.T) {
	t.Parallel()
	count, odds, _ := size()
	l := newLoad(t, count, fewReceives, idem.NotRepeatable, false)
	l.run(odds)
	l.hang()
	dead := l.dead()
	for _, s := range l.sent {
		require.True(t, dead[s] || l.acknowledged[s], "%+v is lost", s)
	}
	histories := l.histories()
	effects := map[int]int{}
	for _, e := range l.done() {
		effects[e.n]++
	}
	states := map[idem.State]int{}
	for n := range l.count {
		history := histories[recordID(n)]
		sent := slices.DeleteFunc(slices.Clone(l.sent), func(s sending) bool { return s.n != n })
		acknowledged := slices.ContainsFunc(sent, func(s sending) bool { return l.acknowledged[s] })
		if len(history) == 0 {
			// The store was too slow for each delivery, so none had a claim.
			require.Zero(t, effects[n], "message %d", n)
			require.Empty(t, l.recorder.Of(n), "message %d", n)
			require.False(t, acknowledged, "message %d", n)
			continue
		}
		requireNoneRanAgain(t, recordID(n), history)
		state := l.requireExplained(n, history)
		states[state]++
		// What the outside saw.
		require.LessOrEqual(t, effects[n], 1, "message %d took effect twice", n)
		switch state {
		case idem.Completed:
			require.Equal(t, 1, effects[n], "message %d", n)
		case idem.Failed, idem.Released:
			require.Zero(t, effects[n], "message %d", n)
		}
		if acknowledged && state != idem.Completed && state != idem.Failed {
			l.requireLostCompletion(n, history[len(history)-1])
		}
	}
	t.Logf("states %v, %d sendings in the dead-letter queue", states, len(dead))
	require.NotZero(t, states[idem.Unknown]+states[idem.InProgress])
}

// requireExplained holds a record of an operation that is not repeatable to the runs
// that the recorder saw, and returns its state.
func (l *load) requireExplained(n int, history []image) idem.State {
	t := l.t
	last := history[len(history)-1]
	runs := l.recorder.Of(n)
	for i, r := range runs {
		state, known := ended(history, r.Attempt)
		if i < len(runs)-1 {
			require.Equal(t, "not executed", r.End, "message %d ran again after %+v", n, r)
			require.Equal(t, idem.Released, state, "message %d ran again after %+v", n, r)
			require.Less(t, r.Attempt, runs[i+1].Attempt)
			continue
		}
		want := map[string]idem.State{"ok": idem.Completed, "permanent": idem.Failed, "not executed": idem.Released}[r.End]
		switch {
		case known && r.End == "":
			// The handler had ended, and its process before it could say so.
			require.Fail(t, "an outcome without an end", "message %d: %+v", n, r)
		case known:
			require.Equal(t, want, state, "message %d: %+v", n, r)
		case want != "":
			// It was known how the handler ended, and its process went before that was
			// recorded.
			require.True(t, l.gone(r.Pid), "message %d: %+v, %v", n, r, history)
		}
	}
	// Unknown, or lapsed and not yet noticed, are exactly those without a recorded
	// outcome.
	_, known := ended(history, last.attempt)
	open := last.state == idem.Unknown || last.state == idem.InProgress
	require.Equal(t, !known, open, "message %d: %v", n, history)
	if last.state == idem.InProgress {
		rec, err := l.store.Get(t.Context(), recordID(n))
		require.NoError(t, err)
		require.True(t, rec.LeaseUntil.Add(margin).Before(time.Now()), "message %d is still at work", n)
	}
	return last.state
}

// On a FIFO queue, under the same load, a group's messages take effect in its order,
// once each.
func TestGroupsTakeEffectInOrder(t *testing.T) {
	t.Parallel()
	count, odds, receives := size()
	l := newLoad(t, count, receives, idem.Repeatable, true)
	l.run(odds)
	l.requireOnce()
	l.requireInOrder(l.movedBack)
}

// requireInOrder leaves out messages that were given up, behind which the others went on.
func (s *setup) requireInOrder(without map[int]bool) {
	last := map[string]int{}
	for _, e := range s.done() {
		if without[e.n] {
			continue
		}
		before, any := last[e.group]
		require.True(s.t, !any || before < e.n, "group %s: %d came after %d", e.group, e.n, before)
		last[e.group] = e.n
	}
}
