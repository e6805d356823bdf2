package deliveries

import (
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

// On a FIFO queue, under the same load, a group's messages take effect in its order,
// once each.
func TestGroupsTakeEffectInOrder(t *testing.T) {
	t.Parallel()
	count, odds, receives := size()
	l := newLoad(t, count, receives, idem.Repeatable, true)
	l.run(odds)
	l.requireOnce()
	l.requireInOrder()
}

// requireInOrder also returns how many effects there are.
func (s *setup) requireInOrder() (count int) {
	last := map[string]int{}
	for _, e := range s.done() {
		before, any := last[e.group]
		require.True(s.t, !any || before < e.n, "group %s: %d came after %d", e.group, e.n, before)
		last[e.group] = e.n
		count++
	}
	return count
}

// What the server does not produce, from events built by hand: batches with several
// messages of a group, and redrives, which give messages new ids. Whatever fails and
// whichever process is killed, each group's messages take effect in its order, once each, and
// the answer names the messages of a group from the first that fails on.
func TestBatchesOfGroupsAndRedrives(t *testing.T) {
	t.Parallel()
	groups := 24
	if long() {
		groups = 120
	}
	const inBatch, workers = 2, instances
	s := newSetup(t, runtime.Function{MaxInstances: workers}, func(n, run int) string {
		if poison(n) {
			return "ok"
		}
		return anyFate(n, run)
	}, "ORDERS_REPEATABLE=1")
	s.killOneIn(50)
	var all sync.WaitGroup
	var delivered atomic.Int64
	for worker := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(6, uint64(worker)))
			left := map[int][]int{} // by group
			for g := worker; g < groups; g += workers {
				for n := range groupSize {
					left[g] = append(left[g], g*groupSize+n)
				}
			}
			for len(left) > 0 {
				var event events.SQSEvent
				var batch []int
				for g := range left {
					if len(batch) < inBatch {
						batch = append(batch, g)
					}
				}
				for i := range groupSize { // interleaved, each group in order
					for _, g := range batch {
						if i < len(left[g]) {
							event.Records = append(event.Records, built(left[g][i]))
							delivered.Add(1)
						}
					}
				}
				if cut := 1 + random.IntN(2*len(event.Records)); cut < len(event.Records) {
					event.Records = event.Records[:cut]
				}
				back, ok := s.deliver(event)
				if !ok {
					return
				}
				waits := true
				stopped := map[int]bool{}
				for _, m := range event.Records {
					n := numberOf(m)
					g := n / groupSize
					if back[m.MessageId] {
						stopped[g] = true
						continue
					}
					waits = false
					if stopped[g] {
						t.Errorf("group %d: %d is acknowledged behind a failure", g, n)
						return
					}
					if left[g] = left[g][1:]; len(left[g]) == 0 {
						delete(left, g)
					}
				}
				if waits {
					// For a lease to lapse: the queue would let them wait, too.
					<-time.After(20 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	s.network.Calm()
	kills := s.kills.Count()
	t.Logf("%d groups of %d messages, %d deliveries, %d runs, kills %v", groups, groupSize, delivered.Load(), s.recorder.count(), kills)
	require.NotEmpty(t, kills)
	want := 0
	for n := range groups * groupSize {
		if !permanent(n) {
			want++
		}
	}
	require.Equal(t, want, s.requireInOrder(), "each once")
}

// built is a message as a redrive gives it: with an id that it never had.
func built(n int) events.SQSMessage {
	return events.SQSMessage{
		MessageId: crand.Text(), Body: body(n, fmt.Sprint("g", n/groupSize)), EventSource: "aws:sqs",
		EventSourceARN: "arn:aws:sqs:us-east-1:000000000000:orders.fifo",
		Attributes:     map[string]string{"MessageGroupId": fmt.Sprint("g", n/groupSize), "ApproximateReceiveCount": "1"},
		MessageAttributes: map[string]events.SQSMessageAttribute{
			idemlambda.SQSKeyAttribute: {DataType: "String", StringValue: aws.String(value(n))},
		},
	}
}

func numberOf(m events.SQSMessage) int {
	var b struct{ N int }
	_ = json.Unmarshal([]byte(m.Body), &b) // of our own making
	return b.N
}

// deliver returns which messages are redelivered: all of them where the process went.
func (s *setup) deliver(event events.SQSEvent) (back map[string]bool, ok bool) {
	payload, err := json.Marshal(event)
	if err != nil {
		s.t.Error(err)
		return nil, false
	}
	result, err := s.pool.Invoke(s.t.Context(), payload, nil)
	if err != nil {
		s.t.Error(err)
		return nil, false
	}
	back = map[string]bool{}
	if result.Error != nil {
		for _, m := range event.Records {
			back[m.MessageId] = true
		}
		return back, true
	}
	var res events.SQSEventResponse
	if err := json.Unmarshal(result.Payload, &res); err != nil {
		s.t.Errorf("%v: %s", err, result.Payload)
		return nil, false
	}
	for _, f := range res.BatchItemFailures {
		back[f.ItemIdentifier] = true
	}
	return back, true
}
