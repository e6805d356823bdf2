package queuepoller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

const standardARN = "arn:aws:sqs:eu-central-1:111122223333:payments"

// fakeQueue hands out what it is given, once, in order, as much at a time as there is. It waits as a long poll does.
type fakeQueue struct {
	attributes map[string]string

	mu       sync.Mutex
	waiting  []types.Message
	more     chan struct{} // closed when something is sent
	received int
	deleted  []string // bodies
	receives func(n int) error
	refused  []types.BatchResultErrorEntry // of every deletion
	failure  error                         // of every deletion
}

func newFakeQueue(arn string) *fakeQueue {
	return &fakeQueue{
		attributes: map[string]string{"QueueArn": arn, "VisibilityTimeout": "30"},
		more:       make(chan struct{}),
	}
}

func (q *fakeQueue) send(messages ...types.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, messages...)
	close(q.more)
	q.more = make(chan struct{})
}

// take returns at most so many messages, and what is closed when there are more.
func (q *fakeQueue) take(most int) ([]types.Message, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.waiting))
	taken := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return taken, q.more
}

func message(body string) types.Message {
	return types.Message{Body: aws.String(body), MessageId: aws.String("id-" + body),
		ReceiptHandle: aws.String("handle-" + body), MD5OfBody: aws.String("x")}
}

func messages(n int) []types.Message {
	list := make([]types.Message, n)
	for i := range list {
		list[i] = message(fmt.Sprint(i))
	}
	return list
}

func (q *fakeQueue) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput,
	...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return &sqs.GetQueueAttributesOutput{Attributes: q.attributes}, nil
}

func (q *fakeQueue) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput,
	_ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	q.mu.Lock()
	q.received++
	n, fail := q.received, q.receives
	q.mu.Unlock()
	if fail != nil {
		if err := fail(n); err != nil {
			return nil, err
		}
	}
	over := time.After(time.Duration(in.WaitTimeSeconds) * time.Second)
	for {
		taken, more := q.take(int(in.MaxNumberOfMessages))
		if len(taken) > 0 {
			return &sqs.ReceiveMessageOutput{Messages: taken}, nil
		}
		select {
		case <-more:
		case <-over:
			return &sqs.ReceiveMessageOutput{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *fakeQueue) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput,
	_ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failure != nil {
		return nil, q.failure
	}
	if len(in.Entries) == 0 || len(in.Entries) > 10 {
		return nil, errors.New("batches have 1 to 10 entries")
	}
	for _, entry := range in.Entries {
		if !slices.ContainsFunc(q.refused, func(r types.BatchResultErrorEntry) bool { return *r.Id == *entry.Id }) {
			q.deleted = append(q.deleted, strings.TrimPrefix(*entry.ReceiptHandle, "handle-"))
		}
	}
	return &sqs.DeleteMessageBatchOutput{Failed: q.refused}, nil
}

func (q *fakeQueue) removed() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(slices.Values(q.deleted))
}

// function is one that does the same with every event.
type function func() (runtime.Result, error)

func (f function) Invoke(context.Context, []byte, *runtime.InvokeOptions) (runtime.Result, error) {
	return f()
}

// answers returns a function that does what it is given before it answers.
func answers(json string, does ...func()) function {
	return func() (runtime.Result, error) {
		for _, do := range does {
			do()
		}
		return runtime.Result{Payload: []byte(json)}, nil
	}
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// watch collects what a poller reports.
type watch struct {
	mu        sync.Mutex
	delivered []Delivery
	troubles  []string
}

func (w *watch) deliveries() []Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.delivered)
}

func (w *watch) trouble() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.troubles)
}

// open starts a poller that the test's end closes.
func open(t *testing.T, client Client, url string, f Function, options Options) *watch {
	t.Helper()
	w := &watch{}
	options.Delivered = func(d Delivery) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delivered = append(w.delivered, d)
	}
	options.Trouble = func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.troubles = append(w.troubles, err.Error())
	}
	p, err := Start(t.Context(), client, url, f, &options)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return w
}
