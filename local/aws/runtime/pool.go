package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"sync"
	"time"
)

// ErrClosed is the error of Invoke if the pool is closed before the outcome.
var ErrClosed = errors.New("runtime: the pool is closed")

// readyTime is how long an answer waits for its process to ask for the next
// event, so that callers one after the other get the same process.
const readyTime = 100 * time.Millisecond

// Pool runs one function. All methods are safe for concurrent use.
type Pool struct {
	function Function
	options  Options
	output   *log.Logger   // a line at a time, of all instances
	slots    chan struct{} // one token per invocation that occupies a worker
	closing  chan struct{}
	end      sync.Once // later callers of Close wait for the first
	work     sync.WaitGroup

	mu     sync.Mutex
	shut   bool
	detach func() bool // from the context of Start
	live   []*instance
	idle   []*instance // with a place free, most recently used last
}

// InvokeOptions of one invocation; nil means none.
type InvokeOptions struct {
	// RequestID is Lambda's request id. Default: a random UUID. Retries of an
	// asynchronous invocation have the id of the first.
	RequestID string
	// Trace is the trace header (X-Ray). Default: that of [NewTrace].
	Trace string
}

// Start checks the function and returns its pool. Processes start when they are
// needed. The end of ctx closes the pool.
func Start(ctx context.Context, function Function, options *Options) (*Pool, error) {
	fn, err := function.withDefaults()
	if err != nil {
		return nil, err
	}
	opts := *cmp.Or(options, &Options{})
	opts.InitTimeout = cmp.Or(opts.InitTimeout, 10*time.Second)
	if opts.Output == nil {
		opts.Output = io.Discard
	}
	if opts.Freeze && fn.Concurrency > 1 {
		return nil, errors.New("runtime: Options.Freeze with Function.Concurrency above 1: Lambda does not freeze such " +
			"a process; leave one of them out")
	}
	p := &Pool{
		function: fn,
		options:  opts,
		output:   log.New(opts.Output, "", 0),
		slots:    make(chan struct{}, fn.MaxInstances*fn.Concurrency),
		closing:  make(chan struct{}),
	}
	p.mu.Lock()
	p.detach = context.AfterFunc(ctx, p.Close)
	p.mu.Unlock()
	return p, nil
}

// Invoke runs the function once with payload, which must be JSON of at most 6 MB. It first
// waits for a free instance if necessary. A failing function is not an error of Invoke: see
// Result.Error. If ctx ends while the function runs, Invoke returns and the function keeps
// running.
func (p *Pool) Invoke(ctx context.Context, payload []byte, options *InvokeOptions) (Result, error) {
	if len(payload) > MaxEventBytes {
		return Result{}, fmt.Errorf("runtime: the event has %d bytes, Lambda takes at most %d", len(payload), MaxEventBytes)
	}
	if !json.Valid(payload) {
		return Result{}, errors.New("runtime: the event is not JSON")
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := p.slot(ctx); err != nil {
		return Result{}, err
	}
	p.mu.Lock()
	if p.shut {
		p.mu.Unlock()
		<-p.slots
		return Result{}, ErrClosed
	}
	p.work.Add(1)
	p.mu.Unlock()

	inv := newInvocation(slices.Clone(payload), cmp.Or(options, &InvokeOptions{}))
	delivery := make(chan Result, 1)
	go p.run(inv, delivery)
	select {
	case result := <-delivery:
		return result, p.cutShort(inv)
	case <-ctx.Done():
		return Result{RequestID: inv.id}, ctx.Err()
	}
}

// Call is Invoke for callers that need only the answer. A failing function is an error, a
// *FunctionError.
func (p *Pool) Call(ctx context.Context, payload []byte) ([]byte, error) {
	result, err := p.Invoke(ctx, payload, nil)
	if err != nil {
		return nil, err
	}
	if result.Error != nil {
		return nil, result.Error
	}
	return result.Payload, nil
}

// slot waits until one more invocation may run.
func (p *Pool) slot(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("runtime: no instance became free: %w", ctx.Err())
	case <-p.closing:
		return ErrClosed
	}
}

// cutShort is ErrClosed for an outcome that Close has caused.
func (p *Pool) cutShort(inv *invocation) error {
	select {
	case <-p.closing:
		if inv.outcome.cut {
			return ErrClosed
		}
	default:
	}
	return nil
}
