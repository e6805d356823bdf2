package streampoller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// Poller delivers one stream to one function. Its methods are safe for concurrent
// use.
type Poller struct {
	client Client
	stream string
	invoke Invoke
	*settings

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	done   chan struct{}

	mu    sync.Mutex
	stats Stats
}

// Stats counts what a poller has done.
type Stats struct {
	// Read and Filtered count records: read from the stream, and not delivered
	// because no filter matches.
	Read, Filtered int
	// Invocations and Failures count deliveries, and the deliveries that failed partially
	// or as a whole.
	Invocations, Failures int
	// Delivered counts the records that are done.
	Delivered int
	// Shards counts the shards that were started.
	Shards int
}

// Start starts to deliver the stream from its oldest record. The
// poller runs until Close, the end of ctx, or the pool's.
func Start(ctx context.Context, client Client, streamARN string, invoke Invoke, options *Options) (*Poller, error) {
	s, err := options.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case client == nil:
		return nil, errors.New("streampoller: the client is nil: pass a *dynamodbstreams.Client")
	case streamARN == "":
		return nil, errors.New("streampoller: the stream's ARN is empty: StreamOf finds it")
	case invoke == nil:
		return nil, errors.New("streampoller: Invoke is nil: pass a pool's Call")
	}
	p := &Poller{client: client, stream: streamARN, invoke: invoke, settings: s, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(ctx)
	d := &discovery{Poller: p, known: map[string]*shard{}}
	if err := d.begin(); err != nil {
		p.cancel()
		return nil, err
	}
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		d.run()
	}()
	go func() {
		p.work.Wait()
		close(p.done)
	}()
	return p, nil
}

// Close stops the poller and waits until no delivery is under way. A function
// that runs in a pool keeps running. It may be called more than once.
func (p *Poller) Close() {
	p.cancel()
	<-p.done
}

// Stats returns the counts so far.
func (p *Poller) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *Poller) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// pause waits; it reports false if the poller ends.
func (p *Poller) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// discovery finds shards and starts each when its parent is done.
type discovery struct {
	*Poller
	known map[string]*shard
}

// begin starts the existing shards.
func (d *discovery) begin() error {
	list, err := d.list()
	if err != nil {
		return fmt.Errorf("streampoller: stream %s: %w", d.stream, err)
	}
	for _, info := range list {
		d.add(info)
	}
	d.startReady()
	return nil
}

func (d *discovery) run() {
	for d.pause(4 * d.PollInterval) {
		list, err := d.list()
		if err != nil {
			if d.ctx.Err() == nil {
				d.Logf("streampoller: stream %s: %v", d.stream, err)
			}
			continue
		}
		for _, info := range list {
			if d.known[aws.ToString(info.ShardId)] == nil {
				d.add(info)
			}
		}
		d.startReady()
	}
}

func (d *discovery) list() ([]types.Shard, error) {
	var all []types.Shard
	in := &dynamodbstreams.DescribeStreamInput{StreamArn: &d.stream}
	for {
		out, err := d.client.DescribeStream(d.ctx, in)
		if err != nil {
			return nil, err
		}
		all = append(all, out.StreamDescription.Shards...)
		if out.StreamDescription.LastEvaluatedShardId == nil {
			return all, nil
		}
		in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId
	}
}

func (d *discovery) add(info types.Shard) {
	s := &shard{
		Poller: d.Poller, id: aws.ToString(info.ShardId), parent: aws.ToString(info.ParentShardId),
		done: make(chan struct{}),
	}
	d.known[s.id] = s
}

// startReady starts the shards whose parent is done, or gone from the stream: a parent's
// records come before those of its children.
func (d *discovery) startReady() {
	for _, s := range d.known {
		if s.started {
			continue
		}
		if parent := d.known[s.parent]; parent != nil {
			select {
			case <-parent.done:
			default:
				continue
			}
		}
		s.started = true
		d.count(func(st *Stats) { st.Shards++ })
		d.work.Add(1)
		go func() {
			defer d.work.Done()
			if s.run() {
				close(s.done)
			}
		}()
	}
}

// stops reports whether an error of Invoke is the end of the poller's work.
func (p *Poller) stops(err error) bool {
	if errors.Is(err, runtime.ErrClosed) {
		p.cancel()
	}
	return p.ctx.Err() != nil
}
