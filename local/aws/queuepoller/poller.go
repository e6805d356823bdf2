package queuepoller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// Function is what is invoked; a *runtime.Pool is one. It may be invoked several
// times at once.
type Function interface {
	Invoke(ctx context.Context, event []byte, options *runtime.InvokeOptions) (runtime.Result, error)
}

// Client is what the poller needs of an *sqs.Client.
type Client interface {
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
}

const (
	longPoll = 20 * time.Second
	// pollers is how many polls wait at the queue at once.
	pollers = 5

	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Poller delivers the messages of one queue to one function.
type Poller struct {
	client   Client
	url      string
	function Function
	queue    queueFacts
	options  Options
	limit    *limiter

	ctx    context.Context // of the polls
	cancel context.CancelFunc
	work   sync.WaitGroup // polls and deliveries

	mu   sync.Mutex
	busy map[string]bool // groups of a FIFO queue that are being processed
}

// Start asks the queue for its attributes, checks the options against them, and
// polls until Close or the end of ctx.
func Start(ctx context.Context, client Client, queueURL string, function Function, options *Options) (*Poller, error) {
	if client == nil || function == nil || queueURL == "" {
		return nil, errors.New("queuepoller: client, queue URL and function are required")
	}
	got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(queueURL), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return nil, fmt.Errorf("queuepoller: ask for the attributes of %s: %w", queueURL, err)
	}
	facts, err := factsOf(got.Attributes)
	if err != nil {
		return nil, err
	}
	opts, err := options.withDefaults(facts)
	if err != nil {
		return nil, err
	}
	p := &Poller{
		client: client, url: queueURL, function: function,
		queue: facts, options: opts, limit: newLimiter(opts.MaxConcurrency),
		busy: map[string]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for range min(pollers, opts.MaxConcurrency) {
		p.work.Go(p.poll)
	}
	return p, nil
}

// Close stops polling and waits until what was received is delivered and
// settled, which is bounded by the function's time-out. It may be called more
// than once. After the end of the context of Start, too, it waits for the same.
func (p *Poller) Close() {
	p.cancel()
	p.work.Wait()
}

// poll takes one batch after the other and hands them over. A place is taken
// before the poll, so that nothing is received that would have to wait.
func (p *Poller) poll() {
	retry := firstRetry
	for p.limit.acquire(p.ctx) {
		messages, arrived, err := p.gather()
		if len(messages) == 0 {
			p.limit.release()
		} else {
			p.work.Go(func() {
				defer p.limit.release()
				p.process(messages, arrived)
			})
		}
		if err == nil {
			retry = firstRetry
			continue
		}
		if p.ctx.Err() != nil {
			return
		}
		p.options.Observer.trouble("poll %s, again in %v: %w", p.url, retry, err)
		if !p.sleep(retry) {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// sleep reports false if polling was ended meanwhile.
func (p *Poller) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// gather receives a batch, the first of which arrived then. What it has received
// it returns with an error, too.
func (p *Poller) gather() (messages []types.Message, arrived time.Time, err error) {
	messages, err = p.receive(min(p.options.BatchSize, maxReceive), longPoll)
	arrived = time.Now()
	if err != nil || len(messages) == 0 || p.options.BatchWindow == 0 {
		return messages, arrived, err
	}
	end := arrived.Add(p.options.BatchWindow)
	size := p.eventSize(messages)
	for len(messages) < p.options.BatchSize && size < runtime.MaxEventBytes {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		more, err := p.receive(min(p.options.BatchSize-len(messages), maxReceive), min(left, longPoll))
		if err != nil {
			return messages, arrived, err
		}
		messages = append(messages, more...)
		size += p.eventSize(more)
	}
	return messages, arrived, nil
}

// receive rounds the wait up, as SQS counts in whole seconds. The client's own
// retries are switched off: a reply that was lost has taken messages with it,
// which the observer should hear of.
func (p *Poller) receive(most int, wait time.Duration) ([]types.Message, error) {
	out, err := p.client.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    aws.String(p.url),
		MaxNumberOfMessages:         int32(most),
		WaitTimeSeconds:             int32((wait + time.Second - 1) / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}, func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// eventSize is what messages add to an event at least.
func (p *Poller) eventSize(messages []types.Message) int {
	size := 0
	for _, m := range messages {
		size += len(aws.ToString(m.Body))
	}
	return size
}
