package deliveries

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

const (
	instances = 3
	// copyAttribute tells the sendings of a message apart; it is no part of its input.
	copyAttribute = "copy"
)

// sending is one of the times that a message is sent.
type sending struct{ n, copy int }

// load is a run of many messages, each sent 1 to 4 times, against three instances
// that fail in every way and are killed.
type load struct {
	*setup
	count    int
	fifo     bool
	repeat   idem.Repeat
	queue    queuetest.Queue
	receives int
	sent     []sending

	movedBack  map[int]bool // messages that were sent again after they had been given up
	unrecorded int          // acknowledged, and their completion never written

	mu           sync.Mutex
	acknowledged map[sending]bool
	killed       map[int]bool // processes that did not answer
}

// newLoad takes count messages. Odds are how many calls of DynamoDB come on one that kills.
func newLoad(t *testing.T, count, receives int, repeat idem.Repeat, fifo bool) *load {
	l := &load{
		count: count, fifo: fifo, repeat: repeat, receives: receives,
		queue: queuetest.New(t, queuetest.Spec{FIFO: fifo, MaxReceives: receives,
			Attributes: map[types.QueueAttributeName]string{
				types.QueueAttributeNameVisibilityTimeout: strconv.Itoa(int(visibility.Seconds())),
			}}),
		acknowledged: map[sending]bool{}, killed: map[int]bool{}, movedBack: map[int]bool{},
	}
	repeatable := "ORDERS_REPEATABLE=0"
	if repeat == idem.Repeatable {
		repeatable = "ORDERS_REPEATABLE=1"
	}
	fate := func(n, run int) string {
		if n == count {
			return "hang"
		}
		if poison(n) {
			return "error before"
		}
		return drawn(n, run)
	}
	l.setup = newSetup(t, runtime.Function{MaxInstances: instances}, fate, repeatable)
	return l
}

// group of a message; on a standard queue it orders nothing.
func (l *load) group(n int) string { return fmt.Sprint("g", n/groupSize) }

const groupSize = 5

// plan is every message 1 to 4 times: on a standard queue in any order; on a FIFO queue the groups in turns, each
// message's first sending after those of the messages before it, and poison, which holds its group up, once.
func (l *load) plan() (order []sending) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := range l.count {
		times := 1 + random.IntN(mostTimes)
		if l.fifo && poison(n) {
			times = 1
		}
		for c := range times {
			order = append(order, sending{n, c})
		}
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if !l.fifo {
		return order
	}
	waiting := map[int][]sending{} // copies, by group
	var turns [groupSize][]sending
	for _, s := range order {
		if s.copy == 0 {
			turns[s.n%groupSize] = append(turns[s.n%groupSize], s)
		} else {
			waiting[s.n/groupSize] = append(waiting[s.n/groupSize], s)
		}
	}
	order = nil
	for _, turn := range turns {
		for _, first := range turn {
			order = append(order, first)
			group := first.n / groupSize
			var later []sending
			for _, s := range waiting[group] {
				// Its first sending is through; it may still wait for a while.
				if s.n <= first.n && random.IntN(2) == 0 {
					order = append(order, s)
				} else {
					later = append(later, s)
				}
			}
			waiting[group] = later
		}
	}
	for group := range (l.count + groupSize - 1) / groupSize {
		order = append(order, waiting[group]...)
	}
	return order
}

// send sends ten at a time, in order.
func (l *load) send(part []sending) {
	entries := make([]types.SendMessageBatchRequestEntry, len(part))
	for i, s := range part {
		with, err := idemlambda.SQSAttributesFor(fulfil(l.repeat), idem.SingleTenant, value(s.n))
		require.NoError(l.t, err)
		e := types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(body(s.n)),
			MessageAttributes: map[string]types.MessageAttributeValue{
				copyAttribute: {DataType: aws.String("Number"), StringValue: aws.String(strconv.Itoa(s.copy))},
			},
		}
		for name, v := range with.Attributes {
			e.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
		}
		if l.fifo {
			// A repeat comes when the queue has forgotten the first: five minutes later.
			e.MessageGroupId = aws.String(l.group(s.n))
			e.MessageDeduplicationId = aws.String(fmt.Sprint(with.DeduplicationID, "-", s.copy))
		}
		entries[i] = e
	}
	out, err := l.queue.Client.SendMessageBatch(l.t.Context(),
		&sqs.SendMessageBatchInput{QueueUrl: &l.queue.URL, Entries: entries})
	require.NoError(l.t, err)
	require.Empty(l.t, out.Failed)
}

// deliver sends the messages, and returns when the queue is empty.
func (l *load) deliver(all []sending) {
	t := l.t
	poller, err := queuepoller.Start(t.Context(), l.queue.Client, l.queue.URL, l.pool, &queuepoller.Options{
		MaxConcurrency: instances, FunctionTimeout: timeout, Delivered: l.note, Trouble: func(err error) { t.Log(err) },
	})
	require.NoError(t, err)
	defer poller.Close()
	for from := 0; from < len(all); from += 10 {
		l.send(all[from:min(from+10, len(all))])
	}
	l.sent = append(l.sent, all...)
	require.Eventually(t, func() bool { return queuetest.Held(t, l.queue.Client, l.queue.URL) == 0 }, 20*time.Minute,
		50*time.Millisecond, "the queue gets empty")
}

// hang delivers one message more, without kills, until its handler has run: into its time-out.
func (l *load) hang() {
	n := l.count
	l.count++
	for c := 0; len(l.recorder.Of(n)) == 0; c++ {
		l.deliver([]sending{{n, c}})
	}
}

// run delivers everything while instances are killed, and what is not poison again until enough of them were: on
// a slow machine few deliveries come to a call that kills.
func (l *load) run(odds int) {
	l.killOneIn(odds)
	kills := func() (all int) {
		for _, n := range l.kills.Count() {
			all += n
		}
		return all
	}
	l.deliver(l.plan())
	for c := mostTimes; kills() <= l.count/100; c++ {
		var again []sending
		for n := range l.count {
			if !poison(n) {
				again = append(again, sending{n, c})
			}
		}
		l.deliver(again)
	}
	l.network.Calm()
	l.t.Logf("%d messages sent %d times; runs of the handler %v, kills %v", l.count, len(l.sent),
		l.recorder.Fates(), l.kills.Count())
}

// mostTimes is how often a message is sent at most, if enough instances are killed.
const mostTimes = 4

func (l *load) note(d queuepoller.Delivery) {
	back := map[string]bool{}
	for _, id := range d.Returned {
		back[id] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Result.Killed || d.Result.Error != nil {
		l.killed[d.Result.PID] = true
	}
	for _, m := range d.Messages {
		if s, ok := l.sendingOf(m); ok && !back[*m.MessageId] {
			l.acknowledged[s] = true
		}
	}
}

func (l *load) sendingOf(m types.Message) (s sending, ok bool) {
	var b struct{ N int }
	if err := json.Unmarshal([]byte(*m.Body), &b); err != nil {
		l.t.Errorf("body %q: %v", *m.Body, err)
		return s, false
	}
	c, err := strconv.Atoi(aws.ToString(m.MessageAttributes[copyAttribute].StringValue))
	if err != nil {
		l.t.Errorf("message %d: copy: %v", b.N, err)
		return s, false
	}
	return sending{b.N, c}, true
}

// died reports whether a process did not live to answer.
func (l *load) died(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed[pid] || l.kills.Killed(pid)
}

// dead takes everything out of the dead-letter queue.
func (l *load) dead() map[sending]bool {
	all := map[sending]bool{}
	for _, m := range queuetest.Drain(l.t, l.queue.Client, l.queue.DeadURL) {
		s, ok := l.sendingOf(m)
		require.True(l.t, ok)
		all[s] = true
	}
	return all
}
