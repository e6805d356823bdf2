// Package sqsvisibility spares concurrent duplicates useless deliveries.
//
// A queue redelivers a message that comes while another attempt holds its claim, and each
// receive brings the message nearer to the dead-letter queue. [New] makes a hook that
// hides the message until that attempt's lease is over. By then the attempt has ended or
// may be taken over, so the message costs at most one more receive. A message whose operation
// waits for an interrupted step's NotFoundFinalAfter is hidden until that has passed.
//
// A message that a limit refuses is hidden until the limit's window is over, and then for about two
// seconds, and for twice as long with each further receive, up to 15 minutes. SQS counts every
// receive, and takes none back: a queue's maxReceiveCount bounds how long such a message can wait.
// Apart from the windows, its fifth receive comes after 15 seconds at the earliest, the tenth after 8
// minutes, the twentieth after 83 minutes and the hundredth after 11 hours: set maxReceiveCount by
// how long a tenant may have more than its limit.
//
// A message whose operation is paused (package pause) is hidden for as long as the pause has lasted by then, for 5
// minutes at least and 15 at most, and not beyond the pause's end if that is known. Two limits of SQS bound
// how long a queue bears a pause:
//
//   - maxReceiveCount. Of a message that is received when the pause begins the fifth receive comes after 33 minutes
//     at the earliest, the sixth after 45, the tenth after 100, the twentieth after 230 and the hundredth after 21
//     hours. A queue whose maxReceiveCount is 5 makes it a dead letter in place of the sixth. Each further hour
//     takes five receives more.
//   - The messages in flight, about 120,000 of each queue. A hidden message is one. When they are so many, nothing of
//     the queue is received, of other tenants and operations neither, but for the 130 a second that come again.
//
// If a pause must last for longer, or would hide more, stop the queue's event source mapping: it receives nothing then.
//
//	lambda.Start(idemlambda.SQS(engine, Fulfil, key, &idemlambda.SQSOptions{
//		OnRedelivery: sqsvisibility.New(sqs.NewFromConfig(cfg), nil),
//	}, fulfil))
//
// The function needs sqs:ChangeMessageVisibility and, without
// [Options].QueueURL, sqs:GetQueueUrl on the queue. If one is missing, messages are
// redelivered after the queue's own visibility time-out, as without this package.
package sqsvisibility

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// DefaultMargin is added to the lease's end: a duplicate that comes a moment too early
// would waste a receive.
const DefaultMargin = time.Second

const (
	// A message is hidden for 12 hours at most, counted from when it was received
	// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html).
	// By the time the function answers, a batch window of 5 minutes and an invocation
	// of 15 may have passed.
	maxHidden   = 12 * time.Hour
	maxOnItsWay = 20 * time.Minute
	// maxCrowded is how long a message that a limit refuses waits at most when the window is over.
	maxCrowded = 15 * time.Minute
	// maxPaused is how long a paused message is hidden at most, and one behind it. Longer would spare receives, but a
	// queue whose messages in flight are too many stands still for that long, also after the pause.
	maxPaused = 15 * time.Minute
	// maxEntries is how many messages one call takes.
	maxEntries = 10
)

// API has the methods of [sqs.Client] that this package calls.
type API interface {
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput,
		...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
}

// Options of the hook. Nil and zero fields mean the defaults.
type Options struct {
	// QueueURL of the function's queue, for functions that have one queue. If it is
	// empty, the hook asks SQS for it, once for each queue.
	QueueURL string
	// Margin is added to the lease's end. Zero means [DefaultMargin].
	Margin time.Duration
	// Logger gets a warning for each message that could not be hidden, and for each call
	// that failed. Nil means slog.Default.
	Logger *slog.Logger
}

// New makes a function for [idemlambda.SQSOptions].OnRedelivery. It hides the messages
// with a LeaseUntil until that time and the margin have passed, ten with one call, and
// ignores the others. An error is logged, and costs each message at most a receive. A nil
// client and a negative margin panic with an [*idem.ConfigError].
func New(client API, o *Options) func(context.Context, []idemlambda.SQSDelivery) {
	h := &hider{client: client, urls: map[string]string{}}
	if o != nil {
		h.opts = *o
	}
	switch {
	case client == nil:
		panic(&idem.ConfigError{What: "sqsvisibility.New", Problem: "the client is nil: make one with sqs.NewFromConfig"})
	case h.opts.Margin < 0:
		panic(&idem.ConfigError{What: "sqsvisibility.New",
			Problem: fmt.Sprintf("Margin is %v: it cannot be negative", h.opts.Margin)})
	case h.opts.Margin == 0:
		h.opts.Margin = DefaultMargin
	}
	return h.hide
}

type hider struct {
	client API
	opts   Options

	mu   sync.Mutex
	urls map[string]string // by ARN
}

func (h *hider) hide(ctx context.Context, back []idemlambda.SQSDelivery) {
	queues := map[string][]idemlambda.SQSDelivery{}
	for _, out := range back {
		if !out.LeaseUntil.IsZero() {
			queues[out.Event.EventSourceARN] = append(queues[out.Event.EventSourceARN], out)
		}
	}
	for queue, duplicates := range queues {
		url, err := h.url(ctx, queue)
		for len(duplicates) > 0 && err == nil {
			n := min(len(duplicates), maxEntries)
			err = h.change(ctx, url, duplicates[:n])
			duplicates = duplicates[n:]
		}
		if err != nil {
			h.logger().WarnContext(ctx, "idem: messages could not be hidden until further deliveries are of use", "queue",
				queue, "error", err)
		}
	}
}

func (h *hider) change(ctx context.Context, url string, duplicates []idemlambda.SQSDelivery) error {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(duplicates))
	for i := range duplicates {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id:                aws.String(strconv.Itoa(i)),
			ReceiptHandle:     aws.String(duplicates[i].Event.ReceiptHandle),
			VisibilityTimeout: h.seconds(&duplicates[i], time.Now()),
		}
	}
	res, err := h.client.ChangeMessageVisibilityBatch(ctx,
		&sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return err
	}
	for _, f := range res.Failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 && i < len(duplicates) {
			h.logger().WarnContext(ctx, "idem: a message could not be hidden until a further delivery is of use",
				"message", duplicates[i].Event.MessageId, "error", aws.ToString(f.Code)+": "+aws.ToString(f.Message))
		}
	}
	return nil
}

// seconds is how long a message stays hidden from now on.
func (h *hider) seconds(out *idemlambda.SQSDelivery, now time.Time) int32 {
	passed := maxOnItsWay
	if a := out.Event.Attributes; a["ApproximateReceiveCount"] == "1" {
		if ms, err := strconv.ParseInt(a["ApproximateFirstReceiveTimestamp"], 10, 64); err == nil {
			passed = max(passed, now.Sub(time.UnixMilli(ms)))
		}
	}
	d := out.LeaseUntil.Add(h.opts.Margin).Sub(now)
	switch out.Reason {
	case idemlambda.ReasonLimitExceeded:
		d = max(d, 0) + crowded(out)
	case idemlambda.ReasonPaused:
		d = max(d, 0)
		d += rand.N(d/10 + 1) // they do not come again together
		if d > maxPaused {
			d = maxPaused - rand.N(maxPaused/10)
		}
	case idemlambda.ReasonBlocked:
		d = min(d, maxPaused)
	}
	d = min(d, maxHidden-passed)
	return int32((max(d, 0) + time.Second - 1) / time.Second)
}

// crowded is how long a message that a limit refuses stays hidden when the window is over: twice as
// long each time, and some more or less, so that those that came together do not come together again.
func crowded(out *idemlambda.SQSDelivery) time.Duration {
	receives, _ := strconv.Atoi(out.Event.Attributes["ApproximateReceiveCount"])
	d := 2 * time.Second
	for n := 1; n < receives && d < maxCrowded; n++ {
		d *= 2
	}
	d = min(d, maxCrowded)
	return d/2 + rand.N(d/2+1)
}

// url finds the queue of an ARN.
func (h *hider) url(ctx context.Context, queue string) (string, error) {
	if h.opts.QueueURL != "" {
		return h.opts.QueueURL, nil
	}
	h.mu.Lock()
	url := h.urls[queue]
	h.mu.Unlock()
	if url != "" {
		return url, nil
	}
	a, err := arn.Parse(queue)
	if err != nil {
		return "", fmt.Errorf("%w: %q", err, queue)
	}
	res, err := h.client.GetQueueUrl(ctx,
		&sqs.GetQueueUrlInput{QueueName: &a.Resource, QueueOwnerAWSAccountId: &a.AccountID})
	if err != nil {
		return "", err
	}
	url = aws.ToString(res.QueueUrl)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.urls[queue] = url
	return url, nil
}

func (h *hider) logger() *slog.Logger {
	return cmp.Or(h.opts.Logger, slog.Default())
}
