package queuepoller

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

const (
	maxReceive       = 10 // messages of one receive
	minConcurrency   = 2
	limitConcurrency = 1000
)

// Options of a poller; nil and zero values mean the defaults.
type Options struct {
	// BatchSize is the largest number of messages of an event, from 1 to 10.
	// Default 10.
	BatchSize int
	// MaxConcurrency is how many batches may be processed at once, from 2 to
	// 1000. Default 5, Lambda's initial concurrency.
	MaxConcurrency int
	// WholeBatch says that answers of the function are not read, as without ReportBatchItemFailures.
	WholeBatch bool
	// FunctionTimeout is the function's time-out, which is compared with the queue's
	// visibility time-out, as in Lambda. Default 0: no comparison.
	FunctionTimeout time.Duration
	// Delivered, if set, is called after a batch was given to the function and the messages that
	// succeeded were deleted. It is called from several goroutines at once, and must not block for
	// long.
	Delivered func(Delivery)
	// Trouble, if set, gets errors outside the function, likewise: polls and deletions that failed.
	// The poller keeps polling.
	Trouble func(error)
}

// Delivery is a batch that was given to the function. Nothing in it may be
// changed.
type Delivery struct {
	// Messages as they were received.
	Messages []types.Message
	Event    []byte
	// Result of the function. It is zero if the function could not be invoked.
	Result runtime.Result
	// Returned are the ids of the messages that are redelivered.
	Returned []string
	// Reason says why messages are redelivered; nil if none are.
	Reason error
}

// queueFacts are the queue's attributes.
type queueFacts struct {
	arn, region string
	visibility  time.Duration
}

func factsOf(attributes map[string]string) (queueFacts, error) {
	q := queueFacts{arn: attributes[string(types.QueueAttributeNameQueueArn)]}
	parts := strings.Split(q.arn, ":")
	if len(parts) != 6 {
		return q, fmt.Errorf("queuepoller: the queue's ARN %q is none", q.arn)
	}
	q.region = parts[3]
	seconds, err := strconv.Atoi(attributes[string(types.QueueAttributeNameVisibilityTimeout)])
	if err != nil {
		return q, fmt.Errorf("queuepoller: the queue's visibility time-out: %w", err)
	}
	q.visibility = time.Duration(seconds) * time.Second
	return q, nil
}

// Check refuses options that [Start] refuses for a queue with a visibility time-out.
func (o *Options) Check(visibility time.Duration) error {
	_, err := o.withDefaults(visibility)
	return err
}

// withDefaults sets the defaults, and refuses options that Lambda refuses for a queue with a visibility time-out.
func (o *Options) withDefaults(visibility time.Duration) (Options, error) {
	opts := *cmp.Or(o, &Options{})
	opts.BatchSize = cmp.Or(opts.BatchSize, 10)
	opts.MaxConcurrency = cmp.Or(opts.MaxConcurrency, 5)
	switch {
	case opts.BatchSize < 1 || opts.BatchSize > maxReceive:
		return opts, fmt.Errorf("queuepoller: Options.BatchSize %d is not in [1, %d]; larger batches are not imitated",
			opts.BatchSize, maxReceive)
	case opts.MaxConcurrency < minConcurrency || opts.MaxConcurrency > limitConcurrency:
		return opts, fmt.Errorf("queuepoller: Options.MaxConcurrency %d is not in [%d, %d]", opts.MaxConcurrency,
			minConcurrency, limitConcurrency)
	case opts.FunctionTimeout < 0:
		return opts, fmt.Errorf("queuepoller: Options.FunctionTimeout %v is negative", opts.FunctionTimeout)
	case opts.FunctionTimeout > visibility:
		return opts, fmt.Errorf("queuepoller: the queue's visibility time-out, %v, is less than the function's time-out, "+
			"%v; six times as long is advised", visibility, opts.FunctionTimeout)
	}
	return opts, nil
}
