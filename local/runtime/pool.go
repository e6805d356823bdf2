package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrClosed is what Invoke returns when the pool is closed, before or meanwhile.
var ErrClosed = errors.New("runtime: the pool is closed")

// settle is how long an answer waits for its process to ask for the next
// event, so that callers one after the other meet the same process.
const settle = 100 * time.Millisecond

// Pool runs one function. All methods are safe for concurrent use.
type Pool struct {
	function Function
	options  Options
	output   sharedWriter
	slots    chan struct{} // one token per busy instance
	closing  chan struct{}
	closed   chan struct{}
	work     sync.WaitGroup

	mu     sync.Mutex
	shut   bool
	detach func() bool // from the context of Start
	live   []*instance
	idle   []*instance // most recently used last
	ended  []*instance
}

// InvokeOptions of one invocation; nil means none.
type InvokeOptions struct {
	// RequestID is Lambda's request id. Default: a random UUID. Retries of an
	// asynchronous invocation carry the id of the first.
	RequestID string
	// TenantID is the tenant of a function with tenant isolation.
	TenantID string
}

// Start checks the function and returns its pool. Processes start when they are
// needed. The end of ctx closes the pool.
func Start(ctx context.Context, function Function, options *Options) (*Pool, error) {
	fn, err := function.withDefaults()
	if err != nil {
		return nil, err
	}
	opts, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pool{
		function: fn,
		options:  opts,
		output:   sharedWriter{w: opts.Output},
		slots:    make(chan struct{}, fn.MaxInstances),
		closing:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	p.mu.Lock()
	p.detach = context.AfterFunc(ctx, p.Close)
	p.mu.Unlock()
	return p, nil
}

func (p *Pool) arn() string {
	return fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", p.options.Region, p.options.AccountID, p.function.Name)
}

// Invoke runs the function once with payload, which must be JSON of at most
// 6 MB, and waits for a free instance first if need be. A failing function is
// not an error of Invoke: see Result.Error. If ctx ends while the function runs,
// Invoke returns and the function runs on.
func (p *Pool) Invoke(ctx context.Context, payload []byte, options *InvokeOptions) (Result, error) {
	if options == nil {
		options = &InvokeOptions{}
	}
	if len(payload) > MaxEventBytes {
		return Result{}, fmt.Errorf("runtime: the event has %d bytes, Lambda takes at most %d", len(payload), MaxEventBytes)
	}
	if !json.Valid(payload) {
		return Result{}, errors.New("runtime: the event is not JSON")
	}
	for _, value := range []string{options.RequestID, options.TenantID} {
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
			return Result{}, fmt.Errorf("runtime: id %q may hold visible ASCII other than '/' only", value)
		}
	}
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return Result{}, fmt.Errorf("runtime: no instance became free: %w", ctx.Err())
	case <-p.closing:
		return Result{}, ErrClosed
	}
	p.mu.Lock()
	if p.shut {
		p.mu.Unlock()
		<-p.slots
		return Result{}, ErrClosed
	}
	p.work.Add(1)
	p.mu.Unlock()

	inv := newInvocation(slices.Clone(payload), options)
	delivery := make(chan Result, 1)
	go p.run(inv, delivery)
	select {
	case result := <-delivery:
		return result, p.cutShort(result)
	case <-ctx.Done():
		return Result{RequestID: inv.id}, ctx.Err()
	}
}

// Call is Invoke for callers that need the answer alone. A failing function is
// an error, a *FunctionError.
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

// cutShort is ErrClosed for a result that Close has caused.
func (p *Pool) cutShort(result Result) error {
	select {
	case <-p.closing:
		if result.Killed || result.PID == 0 {
			return ErrClosed
		}
	default:
	}
	return nil
}

// run takes one invocation from a slot to its outcome and gives the slot back.
func (p *Pool) run(inv *invocation, delivery chan<- Result) {
	defer p.work.Done()
	defer func() { <-p.slots }()
	for {
		inst, cold, err := p.take()
		if err != nil {
			inv.finish(lambdaError(TypeInvalidEntrypoint, inv.id, "%v", err))
			delivery <- inv.result(0, false)
			return
		}
		if cold && !p.initialised(inst, inv) {
			delivery <- inv.result(inst.pid(), cold)
			return
		}
		if !inst.hand(inv) {
			if !cold {
				continue // it died while it was idle; this invocation never reached it
			}
			inv.finish(inst.initFailure(inv.id))
			delivery <- inv.result(inst.pid(), cold)
			return
		}
		p.supervise(inst, inv, func() { delivery <- inv.result(inst.pid(), cold) })
		return
	}
}

// initialised waits until a new process asks for work. If it does not, the
// invocation has its outcome.
func (p *Pool) initialised(inst *instance, inv *invocation) bool {
	limit := time.NewTimer(p.options.InitTimeout)
	defer limit.Stop()
	select {
	case <-inst.polled:
		return true
	case <-inst.exited:
		inv.finish(inst.initFailure(inv.id))
	case <-limit.C:
		inst.kill()
		out := lambdaError(TypeTimedOut, inv.id, "Init timed out after %.2f seconds", p.options.InitTimeout.Seconds())
		out.killed = true
		inv.finish(out)
	}
	return false
}

// supervise waits for the outcome, ends the process at the deadline, and
// returns when the process is idle again or gone.
func (p *Pool) supervise(inst *instance, inv *invocation, deliver func()) {
	deadline := time.NewTimer(time.Until(inv.deadline))
	defer deadline.Stop()
	select {
	case <-inv.answered:
	case <-inst.exited:
		inv.finish(exitError(inv.id, inst.cmd.ProcessState)) // without effect if it had answered
		deliver()
		return
	case <-deadline.C:
		out := lambdaError(TypeTimedOut, inv.id, "Task timed out after %.2f seconds", p.function.Timeout.Seconds())
		out.killed = true
		inv.finish(out)
		inst.kill()
		deliver()
		return
	}
	settled := time.NewTimer(settle)
	defer settled.Stop()
	for {
		select {
		case <-inst.polled:
			p.release(inst)
			deliver()
			return
		case <-inst.exited:
			deliver()
			return
		case <-settled.C:
			deliver()
			deliver = func() {}
		case <-deadline.C:
			inst.kill()
			deliver()
			return
		}
	}
}
