package deliveries

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/stretchr/testify/require"
)

// size of a load: how many messages, how many calls of DynamoDB come on one that kills, and how many receives a
// message has. With so many only poison gets into the dead-letter queue: a delivery is spent on one of the first
// runs, which may fail, or on a kill, a duplicate in flight or a busy DynamoDB. Without poison, receives cost
// nothing: there are as many as the busiest machine may use up.
func size() (count, odds, receives int) {
	if rig.Long() {
		return 600, 75, 40
	}
	return 60, 60, 1000
}

const poisonEvery = 97

// poison is for the long runs: all its receives have to be used up.
func poison(n int) bool { return rig.Long() && n%poisonEvery == 7 }

var drawn = rig.AnyFate(5)

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
	effects := l.effects()
	for _, s := range l.sent {
		require.Equal(t, poison(s.n), dead[s], "only poison is given up: %+v", s)
		require.Equal(t, !poison(s.n), l.acknowledged[s], "%+v", s)
	}
	for n := range l.count {
		rec := l.record(n)
		require.NotNil(t, rec, "message %d", n)
		switch {
		case poison(n):
			require.Zero(t, effects[n])
			require.Contains(t, []idem.State{idem.Released, idem.InProgress}, rec.State)
		case rig.Declines(n):
			require.Zero(t, effects[n])
			require.Equal(t, idem.Failed, rec.State, "message %d", n)
		default:
			require.Equal(t, 1, effects[n], "message %d", n)
			if rec.State != idem.Completed {
				l.requireLostCompletion(n, rec)
			}
		}
		attempts := map[int]bool{}
		for _, r := range l.recorder.Of(n) {
			require.False(t, attempts[r.Attempt], "message %d: two runs of attempt %d", n, r.Attempt)
			attempts[r.Attempt] = true
		}
	}
}

// requireLostCompletion: the handler succeeded and its message was acknowledged, the completion could not be written
// yet, and its process went before it could be: a busy DynamoDB does that, seldom.
func (l *load) requireLostCompletion(n int, rec *idem.Record) {
	t := l.t
	l.unrecorded++
	require.LessOrEqual(t, l.unrecorded, 1+l.count/500, "completions are lost")
	require.Contains(t, []idem.State{idem.InProgress, idem.Unknown}, rec.State, "message %d", n)
	runs := l.recorder.Of(n)
	require.NotEmpty(t, runs)
	end := runs[len(runs)-1]
	require.Equal(t, "ok", end.End, "message %d", n)
	require.Equal(t, rec.Attempt, end.Attempt, "message %d", n)
	require.True(t, l.died(end.Pid), "message %d", n)
}

// requireItsEnd: an outcome is what the handler has returned. Where it has returned one that is not recorded, its
// process is dead.
func (l *load) requireItsEnd(n int, rec *idem.Record, runs []rig.Run) {
	if len(runs) == 0 || runs[len(runs)-1].Attempt != rec.Attempt {
		return
	}
	end := runs[len(runs)-1]
	outcome := map[string]idem.State{
		"ok": idem.Completed, "permanent": idem.Failed, "not executed": idem.Released,
	}[end.End]
	switch rec.State {
	case idem.Completed, idem.Failed, idem.Released:
		require.Equal(l.t, outcome, rec.State, "message %d: %+v", n, end)
	default:
		require.True(l.t, outcome == "" || l.died(end.Pid), "message %d ended %q and is %s", n, end.End, rec.State)
	}
}

// Not repeatable: no message runs again after an attempt whose outcome is unknown, and it is parked or waits to be.
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
	effects, states := l.effects(), map[idem.State]int{}
	for n := range l.count {
		rec, runs := l.record(n), l.recorder.Of(n)
		for i, r := range runs[:max(0, len(runs)-1)] {
			require.Equal(t, "not executed", r.End, "message %d ran again after %+v", n, r)
			require.Less(t, r.Attempt, runs[i+1].Attempt)
		}
		acknowledged := slices.ContainsFunc(l.sent, func(s sending) bool { return s.n == n && l.acknowledged[s] })
		if rec == nil { // the store was too slow for each delivery
			require.Empty(t, runs, "message %d", n)
			require.False(t, acknowledged, "message %d", n)
			continue
		}
		states[rec.State]++
		l.requireItsEnd(n, rec, runs)
		require.LessOrEqual(t, effects[n], 1, "message %d took effect twice", n)
		switch rec.State {
		case idem.Completed:
			require.Equal(t, 1, effects[n], "message %d", n)
		case idem.Failed, idem.Released:
			require.Zero(t, effects[n], "message %d", n)
		case idem.InProgress:
			require.True(t, rec.LeaseUntil.Add(margin).Before(time.Now()), "message %d is still at work", n)
		}
		if acknowledged && rec.State != idem.Completed && rec.State != idem.Failed {
			l.requireLostCompletion(n, rec)
		}
	}
	t.Logf("states %v, %d sendings in the dead-letter queue", states, len(dead))
	require.NotZero(t, states[idem.Unknown]+states[idem.InProgress])
}

// On a FIFO queue, under the same load, a group's messages take effect in its order, once each.
func TestGroupsTakeEffectInOrder(t *testing.T) {
	t.Parallel()
	count, odds, receives := size()
	l := newLoad(t, count, receives, idem.Repeatable, true)
	l.run(odds)
	l.requireOnce()
	l.requireInOrder(l.movedBack)
}

// requireInOrder leaves out messages that were given up, behind which the others went on.
func (l *load) requireInOrder(without map[int]bool) {
	last := map[string]int{}
	for _, e := range l.recorder.Effects() {
		if without[e.N] {
			continue
		}
		group := l.group(e.N)
		before, any := last[group]
		require.True(l.t, !any || before < e.N, "group %s: %d came after %d", group, e.N, before)
		last[group] = e.N
	}
}
