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
	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// Function is the function to invoke; a *runtime.Pool is one. It may be invoked several
// times at once.
type Function interface {
	Invoke(ctx context.Context, event []byte, options *runtime.InvokeOptions) (runtime.Result, error)
}

// Client has the methods of *sqs.Client that the poller calls.
type Client interface {
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput,
		...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput,
		...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
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
	places   chan struct{} // each batch in progress has one

	ctx    context.Context // of the polls
	cancel context.CancelFunc
	work   sync.WaitGroup // polls and deliveries
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
	opts, err := options.withDefaults(facts.visibility)
	if err != nil {
		return nil, err
	}
	p := &Poller{
		client: client, url: queueURL, function: function,
		queue: facts, options: opts, places: make(chan struct{}, opts.MaxConcurrency),
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for range min(pollers, opts.MaxConcurrency) {
		p.work.Go(p.poll)
	}
	return p, nil
}

// Close stops polling and waits until the received messages are processed. The function's
// time-out bounds the wait. Close may be called more than once, and waits even after the
// context of Start has ended.
func (p *Poller) Close() {
	p.cancel()
	p.work.Wait()
}

// poll receives one batch after the other and lets them be processed. It takes a place
// before it polls, so that no received message has to wait.
func (p *Poller) poll() {
	retry := firstRetry
	for {
		select {
		case p.places <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		messages, err := p.receive()
		if len(messages) == 0 {
			<-p.places
		} else {
			p.work.Go(func() {
				defer func() { <-p.places }()
				p.process(messages)
			})
		}
		if p.ctx.Err() != nil {
			return
		}
		if err == nil {
			retry = firstRetry
			continue
		}
		p.trouble("poll %s, again in %v: %w", p.url, retry, err)
		if smithytime.SleepWithContext(p.ctx, retry) != nil {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

func (p *Poller) trouble(format string, args ...any) {
	if p.options.Trouble != nil {
		p.options.Trouble(fmt.Errorf("queuepoller: "+format, args...))
	}
}

// receive turns off the client's own retries: messages are lost with a lost reply for the
// visibility time-out, and the caller should know.
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
