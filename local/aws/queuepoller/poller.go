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
	longPoll = 20 // seconds
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
	places   chan struct{} // of which every batch on its way has one

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
		queue: facts, options: opts, places: make(chan struct{}, opts.MaxConcurrency),
		busy: map[string]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for range min(pollers, opts.MaxConcurrency) {
		p.work.Go(p.poll)
	}
	return p, nil
}

// Close stops polling and waits until what was received is delivered and
// over, which is bounded by the function's time-out. It may be called more
// than once. After the end of the context of Start, too, it waits for the same.
func (p *Poller) Close() {
	p.cancel()
	p.work.Wait()
}

// poll takes one batch after the other and hands them over. A place is taken
// before the poll, so that nothing is received that would have to wait.
func (p *Poller) poll() {
	retry := firstRetry
	for {
		select {
		case p.places <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		messages, err := p.receive()
		arrived := time.Now()
		if len(messages) == 0 {
			<-p.places
		} else {
			p.work.Go(func() {
				defer func() { <-p.places }()
				p.process(messages, arrived)
			})
		}
		if p.ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = firstRetry
			continue
		}
		p.options.Observer.trouble("poll %s, again in %v: %w", p.url, retry, err)
		select {
		case <-time.After(retry):
		case <-p.ctx.Done():
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// receive switches the client's own retries off: a reply that was lost has taken
// messages with it, which the observer should hear of.
func (p *Poller) receive() ([]types.Message, error) {
	out, err := p.client.ReceiveMessage(p.ctx, &sqs.ReceiveMessageInput{
		QueueUrl:                    aws.String(p.url),
		MaxNumberOfMessages:         int32(p.options.BatchSize),
		WaitTimeSeconds:             longPoll,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}, func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}
