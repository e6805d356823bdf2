package deliveries

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
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

// seen are a queue's deliveries.
type seen struct {
	mu  sync.Mutex
	all []queuepoller.Delivery
}

// poll delivers the queue's messages until the test ends.
func (s *setup) poll(q queuetest.Queue) *seen {
	var w seen
	p, err := queuepoller.Start(s.t.Context(), q.Client, q.URL, s.pool, &queuepoller.Options{
		ReportBatchItemFailures: true, MaxConcurrency: instances,
		Delivered: func(d queuepoller.Delivery) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, d)
		},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(p.Close)
	return &w
}

// receipt is one delivery of a message.
type receipt struct {
	count, pid int
	back       bool
}

// of lists the deliveries of a message, by how often it had been received.
func (w *seen) of(id string) (all []receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.all {
		for _, m := range d.Messages {
			if *m.MessageId == id {
				count, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
				all = append(all, receipt{count, d.Result.PID, slices.Contains(d.Returned, id)})
			}
		}
	}
	slices.SortFunc(all, func(a, b receipt) int { return a.count - b.count })
	return all
}

func send(t *testing.T, q queuetest.Queue, n int) (id string) {
	with, err := idemlambda.SQSAttributesFor(fulfil(idem.Repeatable), idem.SingleTenant, value(n))
	require.NoError(t, err)
	out, err := q.Client.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: &q.URL, MessageBody: aws.String(body(n, "g")),
		MessageAttributes: map[string]types.MessageAttributeValue{
			idemlambda.SQSKeyAttribute: {DataType: aws.String("String"), StringValue: aws.String(with.Attributes[idemlambda.SQSKeyAttribute])},
		},
	})
	require.NoError(t, err)
	return *out.MessageId
}

// A message comes while a duplicate of it is at work in another instance, for much longer than
// the queue's visibility time-out. Hidden until the lease is over, it costs one receive
// more; by the visibility time-out alone, it and the original itself are given up
// while the original is at work.
func TestDuplicateInFlightIsNotGivenUp(t *testing.T) {
	t.Parallel()
	const receives = 3
	for _, hides := range []bool{true, false} {
		t.Run(fmt.Sprintf("hides %v", hides), func(t *testing.T) {
			t.Parallel()
			// What is hidden is so in time also on a busy machine.
			// A busy machine may hide the duplicate only when it has come back once or twice.
			most, visibility := receives, time.Second
			if hides {
				most, visibility = 4*receives, 3*time.Second
			}
			q := newQueue(t, false, most, visibility)
			env := []string{"ORDERS_REPEATABLE=1"}
			if hides {
				env = append(env, "ORDERS_SQS="+queuetest.Endpoint(t))
			}
			s := newSetup(t, runtime.Function{MaxInstances: instances, Timeout: 12 * time.Second},
				func(n, _ int) string {
					if n == 0 {
						return "ok"
					}
					return "long"
				}, env...)
			s.warmUp(events.SQSEvent{Records: []events.SQSMessage{{
				MessageId: rand.Text(), Body: body(0, "g0"), EventSource: "aws:sqs", EventSourceARN: q.ARN,
				Attributes: map[string]string{"ApproximateReceiveCount": "1"},
				MessageAttributes: map[string]events.SQSMessageAttribute{
					idemlambda.SQSKeyAttribute: {DataType: "String", StringValue: aws.String(value(0))},
				},
			}}})
			w := s.poll(q)
			original := send(t, q, 1)
			waitFor(t, 5*time.Minute, func() bool { return len(s.recorder.Of(1)) == 1 }, "the original is at work")
			duplicate := send(t, q, 1)
			if !hides {
				waitFor(t, 5*time.Minute, func() bool { return len(w.of(duplicate)) == receives && queuetest.Held(t, q.Client, q.DeadURL) > 0 }, "the duplicate is given up")
				require.Empty(t, s.recorder.Of(1)[0].End, "the original is still at work")
				return
			}
			waitFor(t, 5*time.Minute, func() bool { return queuetest.Held(t, q.Client, q.URL) == 0 }, "both are acknowledged")
			require.Zero(t, queuetest.Held(t, q.Client, q.DeadURL))
			runs := s.recorder.Of(1)
			require.Len(t, runs, 1)
			require.Equal(t, "ok", runs[0].End)
			got := w.of(duplicate)
			last := len(got) - 1
			require.Positive(t, last, "receives for nothing, and one that is acknowledged: %+v", got)
			for _, r := range got[:last] {
				require.True(t, r.back)
				require.NotEqual(t, runs[0].Pid, r.pid, "another instance")
			}
			require.False(t, got[last].back)
			require.LessOrEqual(t, len(w.of(original)), most)
			require.Equal(t, []effect{{"g0", 0}, {"g", 1}}, s.done())
		})
	}
}
