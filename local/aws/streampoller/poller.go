package streampoller

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"
)

// Client has the methods of *dynamodbstreams.Client that the poller calls.
type Client interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput,
		...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput,
		...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput,
		...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Invoke runs the function once: [runtime.Pool.Call], or a handler in this
// process. Any error is the function's, unless it is [runtime.ErrClosed], which stops
// the poller. The context does not end with the poller. It is called for several shards
// at once.
type Invoke func(ctx context.Context, event []byte) ([]byte, error)

// Options are the settings of an event source mapping. Nil, and zero values, mean
// the defaults.
type Options struct {
	// Filter is a pattern of the records to deliver. Default: all.
	Filter string
	// BatchSize is the most records of an event. Default 100.
	BatchSize int
	// WholeBatch says that answers of the function are not read, as without ReportBatchItemFailures.
	WholeBatch bool
	// PollInterval is the pause between two reads of a shard without new records.
	// Default 250 ms, as in Lambda.
	PollInterval time.Duration
	// Backoff is the pause before the first retry; it doubles up to 5 s. Default
	// 100 ms: Lambda's pause is not documented.
	Backoff time.Duration
	// Position, if set, gives the sequence number of a shard's record that was done last, empty if there is none, and Done
	// gets it after each batch. They are called for several shards at once.
	Position func(shard string) string
	Done     func(shard, sequence string)
	// Logf, if set, gets each error, one line a call.
	Logf func(format string, args ...any)
}

const maxBackoff = 5 * time.Second

// Poller delivers one stream to one function. Its methods are safe for concurrent
// use.
type Poller struct {
	client Client
	stream string
	invoke Invoke
	filter pattern
	Options

	ctx       context.Context
	cancel    context.CancelFunc
	work      sync.WaitGroup
	delivered atomic.Int64
}

// Check refuses options that [Start] refuses.
func (o *Options) Check() error {
	if o.BatchSize < 0 {
		return fmt.Errorf("streampoller: Options.BatchSize %d is negative", o.BatchSize)
	}
	_, err := parse(o.Filter)
	return err
}

// Start starts to deliver the stream from its oldest record, or behind the Position of each shard. The
// poller runs until Close, the end of ctx, or the pool's.
func Start(ctx context.Context, client Client, streamARN string, invoke Invoke, options *Options) (*Poller, error) {
	p := &Poller{client: client, stream: streamARN, invoke: invoke, Options: *cmp.Or(options, &Options{})}
	if err := p.Check(); err != nil {
		return nil, err
	}
	p.filter, _ = parse(p.Filter) // checked
	p.BatchSize = cmp.Or(p.BatchSize, 100)
	p.PollInterval = cmp.Or(p.PollInterval, 250*time.Millisecond)
	p.Backoff = cmp.Or(p.Backoff, 100*time.Millisecond)
	if p.Done == nil {
		p.Done = func(string, string) {}
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	shards := map[string]*shard{}
	if err := p.discover(shards); err != nil {
		p.Close()
		return nil, fmt.Errorf("streampoller: stream %s: %w", streamARN, err)
	}
	p.work.Go(func() {
		for p.pause(4 * p.PollInterval) {
			if err := p.discover(shards); err != nil {
				p.log("stream %s: %v", p.stream, err)
			}
		}
	})
	return p, nil
}

// Close stops the poller and waits until the batches that are under way are delivered. The
// function's time-out bounds the wait. It may be called more than once.
func (p *Poller) Close() {
	p.cancel()
	p.work.Wait()
}

// Delivered is the number of records that are done.
func (p *Poller) Delivered() int { return int(p.delivered.Load()) }

// discover starts the shards that are new. A shard begins when its parent is done, or is deleted from
// the stream: a parent's records come before those of its children.
func (p *Poller) discover(known map[string]*shard) error {
	var all []types.Shard
	for in := (&dynamodbstreams.DescribeStreamInput{StreamArn: &p.stream}); ; {
		out, err := p.client.DescribeStream(p.ctx, in)
		if err != nil {
			return err
		}
		all = append(all, out.StreamDescription.Shards...)
		if in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId; in.ExclusiveStartShardId == nil {
			break
		}
	}
	var found []*shard
	for _, info := range all {
		if id := *info.ShardId; known[id] == nil {
			known[id] = &shard{Poller: p, id: id, parent: aws.ToString(info.ParentShardId), done: make(chan struct{})}
			if p.Position != nil {
				known[id].last = p.Position(id)
			}
			found = append(found, known[id])
		}
	}
	for _, s := range found {
		parent := known[s.parent]
		p.work.Go(func() {
			if parent != nil {
				select {
				case <-parent.done:
				case <-p.ctx.Done():
				}
			}
			s.run()
		})
	}
	return nil
}

// pause waits; it reports false if the poller ends.
func (p *Poller) pause(d time.Duration) bool { return smithytime.SleepWithContext(p.ctx, d) == nil }

// log reports an error, unless the end of the poller has caused it.
func (p *Poller) log(format string, args ...any) {
	if p.Logf != nil && p.ctx.Err() == nil {
		p.Logf("streampoller: "+format, args...)
	}
}
