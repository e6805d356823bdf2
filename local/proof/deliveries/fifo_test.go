package deliveries

import (
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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
	var all errgroup.Group
	for worker := range workers {
		all.Go(func() error {
			random := rand.New(rand.NewPCG(6, uint64(worker)))
			left := map[int][]int{} // by group
			for g := worker; g < groups; g += workers {
				for n := range groupSize {
					left[g] = append(left[g], g*groupSize+n)
				}
			}
			for len(left) > 0 {
				event := batchOf(left, inBatch)
				if cut := 1 + random.IntN(2*len(event.Records)); cut < len(event.Records) {
					event.Records = event.Records[:cut]
				}
				back, err := s.deliver(event)
				if err != nil {
					return err
				}
				stopped := map[int]bool{}
				for _, m := range event.Records {
					n := numberOf(m)
					g := n / groupSize
					switch {
					case back[m.MessageId]:
						stopped[g] = true
					case stopped[g]:
						return fmt.Errorf("group %d: %d is acknowledged behind a failure", g, n)
					default:
						if left[g] = left[g][1:]; len(left[g]) == 0 {
							delete(left, g)
						}
					}
				}
				if len(back) == len(event.Records) {
					// For a lease to lapse: the queue would let them wait, too.
					<-time.After(20 * time.Millisecond)
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	s.network.Calm()
	require.NotEmpty(t, s.kills.Count())
	want := 0
	for n := range groups * groupSize {
		if !permanent(n) {
			want++
		}
	}
	require.Equal(t, want, s.requireInOrder(), "each once")
}

// batchOf takes messages of a few groups, interleaved, each group in order.
func batchOf(left map[int][]int, most int) (event events.SQSEvent) {
	groups := slices.Collect(maps.Keys(left))
	groups = groups[:min(most, len(groups))]
	for i := range groupSize {
		for _, g := range groups {
			if i < len(left[g]) {
				event.Records = append(event.Records, built(left[g][i]))
			}
		}
	}
	return event
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
func (s *setup) deliver(event events.SQSEvent) (map[string]bool, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	result, err := s.pool.Invoke(s.t.Context(), payload, nil)
	if err != nil {
		return nil, err
	}
	var res events.SQSEventResponse
	if result.Error != nil {
		for _, m := range event.Records {
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	} else if err := json.Unmarshal(result.Payload, &res); err != nil {
		return nil, fmt.Errorf("%w: %s", err, result.Payload)
	}
	back := map[string]bool{}
	for _, f := range res.BatchItemFailures {
		back[f.ItemIdentifier] = true
	}
	return back, nil
}
