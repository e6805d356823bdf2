package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// part is a message of a batch: how long its handler takes, and its group in a FIFO queue.
type part struct {
	id    string
	takes time.Duration
	group string
}

// fate is what became of it: how long its handler ran, and why it is acknowledged or not.
type fate struct {
	took   time.Duration
	reason Reason
}

const (
	never = time.Hour
	ms    = time.Millisecond
)

// several are quick messages.
func several(n int, takes time.Duration) (all []part) {
	for i := range n {
		all = append(all, part{id: fmt.Sprintf("q%03d", i), takes: takes})
	}
	return all
}

// played is a queue's handler with half a minute for a batch, whose handlers end a second before.
type played struct {
	t         *testing.T
	op        idem.Operation
	slots     int
	returns   time.Duration            // how long a handler takes to return when it is ended
	deadlines map[string]time.Duration // after the batch's begin
	leases    map[string]time.Duration
}

// deliver delivers a batch. What was redelivered without having run has no record in the store.
func (p *played) deliver(parts ...part) map[string]fate {
	p.t.Helper()
	got, store := map[string]fate{}, memory()
	p.deadlines, p.leases = map[string]time.Duration{}, map[string]time.Duration{}
	synctest.Test(p.t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		var seen reports
		h := SQS(realTime(t, store), p.op, byAttribute, &SQSOptions{OnOutcome: seen.hook, Concurrency: p.slots},
			func(ctx context.Context, raw json.RawMessage) error {
				m, _ := SQSMessageOf(ctx)
				var takes time.Duration
				require.NoError(t, json.Unmarshal(raw, &takes))
				rec, err := store.Get(context.WithoutCancel(ctx), p.op.Key(idem.SingleTenant, m.MessageId).ID())
				require.NoError(t, err)
				deadline, _ := ctx.Deadline()
				began := time.Now()
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					err = ctx.Err()
					require.ErrorIs(t, context.Cause(ctx), idem.ErrOutOfTime)
					time.Sleep(p.returns)
				}
				mu.Lock()
				defer mu.Unlock()
				got[m.MessageId] = fate{took: time.Since(began)}
				p.deadlines[m.MessageId] = deadline.Sub(begun)
				if rec != nil {
					p.leases[m.MessageId] = rec.LeaseUntil.Sub(begun)
				}
				return err
			})
		var batch []events.SQSMessage
		for _, part := range parts {
			m := messageOf(part.id, part.id, fmt.Sprint(int64(part.takes)))
			if part.group != "" {
				m = inGroup(m, part.group)
			}
			batch = append(batch, m)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := h(ctx, batchOf(batch...))
		require.NoError(t, err)
		require.NoError(t, ctx.Err(), "answered before the kill time")
		for id, reason := range seen.reasons() {
			_, began := got[id]
			rec, err := store.Get(ctx, p.op.Key(idem.SingleTenant, id).ID())
			require.NoError(t, err)
			require.Equal(t, began && !p.op.Shadow, rec != nil, "%s: what did not run is untouched", id)
			got[id] = fate{got[id].took, reason}
		}
	})
	return got
}

// reasonsOf counts the messages of each reason.
func reasonsOf(all map[string]fate) map[Reason]int {
	n := map[Reason]int{}
	for _, r := range all {
		n[r.reason]++
	}
	return n
}

// A slow message leaves those that wait for its slot the time that they need, and has the rest. Without
// such, it has all the time.
func TestASlowMessageLeavesTimeForThoseThatWait(t *testing.T) {
	const guard = 29 * time.Second
	for name, c := range map[string]struct {
		slots  int
		parts  []part
		slow   map[string]fate
		others map[Reason]int
	}{
		"one at a time": {1, append([]part{{id: "a", takes: never}}, several(3, 10*ms)...),
			map[string]fate{"a": {guard - 3*200*ms, ReasonReleased}}, map[Reason]int{ReasonExecuted: 3}},
		"in the middle": {1, append(append([]part{{id: "b", takes: time.Second}}, part{id: "a", takes: never}),
			several(3, 10*ms)...),
			map[string]fate{"b": {time.Second, ReasonExecuted}, "a": {guard - time.Second - 3*200*ms, ReasonReleased}},
			map[Reason]int{ReasonExecuted: 3}},
		"the last": {1, append(several(3, 10*ms), part{id: "a", takes: never}),
			map[string]fate{"a": {guard - 30*ms, ReasonReleased}}, map[Reason]int{ReasonExecuted: 3}},
		"slow, but there is time": {1, append([]part{{id: "a", takes: 28 * time.Second}}, several(3, 10*ms)...),
			map[string]fate{"a": {28 * time.Second, ReasonExecuted}}, map[Reason]int{ReasonExecuted: 3}},
		"another slot takes those that wait": {2, append([]part{{id: "a", takes: guard - 10*ms}}, several(100, 100*ms)...),
			map[string]fate{"a": {guard - 10*ms, ReasonExecuted}}, map[Reason]int{ReasonExecuted: 100}},
		"nothing waits": {10, append([]part{{id: "a", takes: never}}, several(9, 10*ms)...),
			map[string]fate{"a": {guard, ReasonReleased}}, map[Reason]int{ReasonExecuted: 9}},
		// MinTime for all would be 200 s: it leaves half of the time, in whole shares of MinTime.
		"a large batch": {1, append([]part{{id: "a", takes: never}}, several(1000, 10*ms)...),
			map[string]fate{"a": {guard - 72*200*ms, ReasonReleased}}, map[Reason]int{ReasonExecuted: 1000}},
		"a batch that is too large": {1, append([]part{{id: "a", takes: never}}, several(200, 144*ms)...),
			map[string]fate{"a": {guard - 72*200*ms, ReasonReleased}},
			map[Reason]int{ReasonExecuted: 100, ReasonOutOfTime: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &played{t: t, op: fulfil, slots: c.slots}
			got := p.deliver(c.parts...)
			for id, want := range c.slow {
				require.Equal(t, want, got[id], id)
				require.Equal(t, 30*time.Second, p.leases[id], "the lease ends at the kill time")
				delete(got, id)
			}
			require.Equal(t, c.others, reasonsOf(got))
		})
	}
}

// Of several slow messages only so many are ended as those that wait can use, also if they are slow to return.
func TestOfSlowMessagesAsFewAsPossibleAreEnded(t *testing.T) {
	const guard = 29 * time.Second
	p := &played{t: t, op: fulfil, slots: 3}
	slow := []part{{id: "a", takes: never}, {id: "b", takes: never}, {id: "c", takes: never}}
	took := func(others []part, want map[Reason]int) (all []time.Duration) {
		got := p.deliver(append(slices.Clone(slow), others...)...)
		require.Equal(t, want, reasonsOf(got))
		for _, s := range slow {
			all = append(all, got[s.id].took)
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, []time.Duration{guard - 200*ms, guard, guard},
		took(several(1, 10*ms), map[Reason]int{ReasonReleased: 3, ReasonExecuted: 1}))
	require.Equal(t, []time.Duration{guard - 200*ms, guard - 200*ms, guard},
		took(several(2, 10*ms), map[Reason]int{ReasonReleased: 3, ReasonExecuted: 2}))
	require.Equal(t, guard-400*ms, took(several(6, 10*ms), map[Reason]int{ReasonReleased: 3, ReasonExecuted: 6})[0])
}

// No more messages are ended than wait, also where those that were ended return when it is too late for the others, and
// no more than there are groups that wait.
func TestNoMoreMessagesAreEndedThanWait(t *testing.T) {
	op := fulfil
	op.MinTime = 5 * time.Second
	p := &played{t: t, op: op, slots: 8, returns: 600 * ms}
	slow := several(8, 25*time.Second)
	require.Equal(t, map[Reason]int{ReasonReleased: 1, ReasonExecuted: 7, ReasonOutOfTime: 1},
		reasonsOf(p.deliver(append(slices.Clone(slow), part{id: "waits", takes: 10 * ms})...)))
	require.Equal(t, map[Reason]int{ReasonReleased: 2, ReasonExecuted: 6, ReasonOutOfTime: 2},
		reasonsOf(p.deliver(append(slices.Clone(slow), part{id: "waits", takes: 10 * ms}, part{id: "too", takes: ms})...)))

	p.returns, p.op.MinTime = 50*ms, time.Second
	for i := range slow {
		slow[i].group, slow[i].takes = slow[i].id, 28*time.Second
	}
	for _, id := range []string{"a", "b", "c"} {
		slow = append(slow, part{id: id, takes: ms, group: "g"})
	}
	require.Equal(t, map[Reason]int{ReasonReleased: 1, ReasonExecuted: 10}, reasonsOf(p.deliver(slow...)))

	// One that has ended by itself has used no other's turn.
	p = &played{t: t, op: fulfil, slots: 2}
	require.Equal(t, map[Reason]int{ReasonExecuted: 3, ReasonReleased: 2}, reasonsOf(p.deliver(
		part{id: "q", takes: 10 * ms}, part{id: "r", takes: 20 * ms}, part{id: "a", takes: never},
		part{id: "b", takes: never}, part{id: "waits", takes: 10 * ms})))
}

// The other slots work off what waits, so that there may be time for all, or more of it for a slow message.
func TestNoMessageIsEndedForThoseThatWaitNoMore(t *testing.T) {
	p := &played{t: t, op: fulfil, slots: 2}
	got := p.deliver(append([]part{{id: "a", takes: 25 * time.Second}}, several(100, 192*ms)...)...)
	require.Equal(t, map[Reason]int{ReasonExecuted: 101}, reasonsOf(got))

	got = p.deliver(append([]part{{id: "a", takes: never}}, several(200, 192*ms)...)...)
	require.Equal(t, map[Reason]int{ReasonReleased: 1, ReasonExecuted: 200}, reasonsOf(got))
	require.Greater(t, got["a"].took, 18*time.Second)
}

// A group that waits is worked off by one slot, and begins when one is free of those before it.
func TestAGroupThatWaitsHasTimeForAllOfIt(t *testing.T) {
	p := &played{t: t, op: fulfil, slots: 2}
	for before := range 5 {
		parts := []part{{id: "a", takes: never, group: "a"}, {id: "b", takes: never, group: "b"}}
		for n, q := range several(before+9, 190*ms) {
			q.group = "g"
			if n < before {
				q.group = q.id
			}
			parts = append(parts, q)
		}
		require.Equal(t, map[Reason]int{ReasonReleased: 2, ReasonExecuted: before + 9}, reasonsOf(p.deliver(parts...)))
	}
}

// With all quick, no message is ended: the deadline with several slots is the guard. With one slot it is the end of the
// message's own time.
func TestTheDeadlineOfAMessage(t *testing.T) {
	p := &played{t: t, op: fulfil, slots: 2}
	require.Equal(t, map[Reason]int{ReasonExecuted: 20}, reasonsOf(p.deliver(several(20, 10*ms)...)))
	for _, deadline := range p.deadlines {
		require.Equal(t, 29*time.Second, deadline)
	}
	p.slots = 1
	require.Equal(t, map[Reason]int{ReasonExecuted: 3}, reasonsOf(p.deliver(several(3, time.Second)...)))
	require.Equal(t, map[string]time.Duration{"q000": 29*time.Second - 400*ms, "q001": 29*time.Second - 200*ms,
		"q002": 29 * time.Second}, p.deadlines)
}

// A message has its equal share of the batch's time at least: of a batch with more work than time the last one to
// begin is not ended for others that would not get through either.
func TestAMessageHasItsShare(t *testing.T) {
	p := &played{t: t, op: fulfil, slots: 1}
	got := p.deliver(several(10, 4*time.Second)...)
	require.Equal(t, map[Reason]int{ReasonExecuted: 7, ReasonReleased: 1, ReasonOutOfTime: 2}, reasonsOf(got))
	require.Equal(t, fate{time.Second, ReasonReleased}, got["q007"])

	// Nor is it ended where those that wait could not begin.
	p.op.MinTime = 2 * time.Second
	got = p.deliver(part{id: "a", takes: 26 * time.Second}, part{id: "b", takes: 2 * time.Second},
		part{id: "c", takes: time.Second})
	require.Equal(t, map[string]fate{"a": {29*time.Second - 2*2100*ms, ReasonReleased},
		"b": {2 * time.Second, ReasonExecuted}, "c": {time.Second, ReasonExecuted}}, got)
	p.op.MinTime = 6 * time.Second
	got = p.deliver(part{id: "a", takes: 14 * time.Second}, part{id: "b", takes: 14500 * ms}, part{id: "c", takes: ms})
	require.Equal(t, map[string]fate{"a": {14 * time.Second, ReasonExecuted}, "b": {14500 * ms, ReasonExecuted},
		"c": {0, ReasonOutOfTime}}, got)
	p.op.MinTime = 15 * time.Second
	got = p.deliver(part{id: "a", takes: 28 * time.Second}, part{id: "b", takes: time.Second})
	require.Equal(t, map[string]fate{"a": {28 * time.Second, ReasonExecuted}, "b": {0, ReasonOutOfTime}}, got)
}

// Behind a message that is ended the rest of its group is redelivered with it. So it is not ended for them, but for
// other groups.
func TestASlowMessageIsNotEndedForItsOwnGroup(t *testing.T) {
	in := func(group string, parts ...part) []part {
		for i := range parts {
			parts[i].group = group
		}
		return parts
	}
	p := &played{t: t, op: fulfil, slots: 1}
	first := in("g", part{id: "a", takes: 29*time.Second - 10*ms}, part{id: "b", takes: ms}, part{id: "c", takes: ms})
	require.Equal(t, map[string]fate{"a": {29*time.Second - 10*ms, ReasonExecuted}, "b": {0, ReasonOutOfTime},
		"c": {0, ReasonBlocked}}, p.deliver(first...), "and the next delivery replays it, and has the time for the rest")
	first[0].takes = never
	require.Equal(t, map[string]fate{"a": {29 * time.Second, ReasonReleased}, "b": {0, ReasonBlocked},
		"c": {0, ReasonBlocked}}, p.deliver(first...))
	other := in("h", part{id: "d", takes: ms}, part{id: "e", takes: ms})
	require.Equal(t, map[string]fate{"a": {29*time.Second - 400*ms, ReasonReleased}, "b": {0, ReasonBlocked},
		"c": {0, ReasonBlocked}, "d": {ms, ReasonExecuted}, "e": {ms, ReasonExecuted}}, p.deliver(append(first, other...)...))
}

// What is not repeatable would be parked where it is ended: it is not ended for others. Nor does a trial end a handler.
func TestWhatIsNotRepeatableIsNotEndedForOthers(t *testing.T) {
	p := &played{t: t, op: charge, slots: 1}
	got := p.deliver(several(30, 9*time.Second)...)
	require.Equal(t, map[Reason]int{ReasonExecuted: 3, ReasonUnknown: 1, ReasonOutOfTime: 26}, reasonsOf(got))
	require.Equal(t, fate{2 * time.Second, ReasonUnknown}, got["q003"])
	p.slots, p.op.MinTime = 8, 5*time.Second
	require.Equal(t, map[Reason]int{ReasonExecuted: 8, ReasonOutOfTime: 1},
		reasonsOf(p.deliver(append(several(8, 25*time.Second), part{id: "waits", takes: 10 * ms})...)))
	p = &played{t: t, op: fulfil, slots: 1}
	p.op.MaxAttempts = 1
	require.Equal(t, fate{28500 * ms, ReasonExecuted},
		p.deliver(append([]part{{id: "a", takes: 28500 * ms}}, several(3, 10*ms)...)...)["a"], "it may have no other attempt")
	p.op.MaxAttempts, p.op.Shadow = 0, true
	require.Equal(t, 29*time.Second, p.deliver(append([]part{{id: "a", takes: never}}, several(3, 10*ms)...)...)["a"].took)
}

// A shard without concurrency is one order, and with it each subject is one.
func TestTimeOfAStreamsRecords(t *testing.T) {
	for slots, took := range map[int]time.Duration{1: 29 * time.Second, 2: 29*time.Second - 200*ms} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			got := map[string]time.Duration{}
			h := Kinesis(realTime(t, memory()), fulfil, nil, &Options[events.KinesisEventRecord]{Concurrency: slots},
				func(ctx context.Context, in string) error {
					began := time.Now()
					if in == "slow" {
						<-ctx.Done()
					}
					r, _ := KinesisRecordOf(ctx)
					mu.Lock()
					defer mu.Unlock()
					got[r.Kinesis.SequenceNumber] = time.Since(began)
					return ctx.Err()
				})
			record := func(id, data string) events.KinesisEventRecord {
				return events.KinesisEventRecord{EventSourceArn: "arn", EventID: id,
					Kinesis: events.KinesisRecord{PartitionKey: id, SequenceNumber: id, Data: []byte(data)}}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			res, err := h(ctx, events.KinesisEvent{Records: []events.KinesisEventRecord{
				record("1", "slow"), record("2", "slow"), record("3", "quick")}})
			require.NoError(t, err)
			require.Equal(t, "1", res.BatchItemFailures[0].ItemIdentifier)
			require.Equal(t, took, min(got["1"], max(got["2"], got["1"]*time.Duration(2-slots))))
			_, ran := got["3"]
			require.Equal(t, slots > 1, ran)
		})
	}
}
