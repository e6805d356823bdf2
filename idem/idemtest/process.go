package idemtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// ErrCrashed is what a delivery gets whose process crashed before it answered.
var ErrCrashed = errors.New("idemtest: the process crashed")

// crashError is what a dead process's store calls give. It is a conflict too, so
// that the engine neither runs a handler without its claim nor tries again.
type crashError struct{}

func (crashError) Error() string   { return ErrCrashed.Error() }
func (crashError) Unwrap() []error { return []error{ErrCrashed, &protocol.ConflictError{}} }

// process is the store as one incarnation of the engine reaches it.
type process struct {
	store  protocol.Store
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	dead   bool
	left   int  // calls until the crash, 0 for none
	landed bool // the call that crashes is applied
}

var (
	_ protocol.Store     = (*process)(nil)
	_ protocol.Questions = (*process)(nil)
)

func newProcess(store protocol.Store) *process {
	p := &process{store: store}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

func (p *process) crash() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cancel(ErrCrashed)
}

func (p *process) crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) crashAfter(n int, landed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.landed = n, landed
}

// enter counts the call and says whether it reaches the store, and whether its
// process lives to see the reply.
func (p *process) enter() (reaches, survives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return false, false
	}
	if p.left == 0 {
		return true, true
	}
	p.left--
	p.dead = p.left == 0
	return !p.dead || p.landed, !p.dead
}

func (p *process) call(do func() error) error {
	reaches, survives := p.enter()
	var err error
	if reaches {
		err = do()
	}
	if !survives {
		p.crash()
		return crashError{}
	}
	// A process that died before the reply does not see it.
	if p.crashed() {
		return crashError{}
	}
	return err
}

func (p *process) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return p.call(func() error { return p.store.Acquire(ctx, now, c) })
}

func (p *process) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return p.call(func() error { return p.store.Withdraw(ctx, now, w) })
}

func (p *process) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return p.call(func() error { return p.store.Extend(ctx, now, e) })
}

func (p *process) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	return p.call(func() error { return p.store.RecordStep(ctx, now, s) })
}

func (p *process) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return p.call(func() error { return p.store.RecordReference(ctx, now, r) })
}

func (p *process) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	return p.call(func() error { return p.store.Finish(ctx, now, f) })
}

func (p *process) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	return p.call(func() error { return p.store.Settle(ctx, now, s) })
}

func (p *process) Get(ctx context.Context, id string) (rec *protocol.Record, err error) {
	err = p.call(func() (err error) {
		rec, err = p.store.Get(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rec, nil
}

func (p *process) Result(ctx context.Context, rec *protocol.Record) (body []byte, err error) {
	err = p.call(func() (err error) {
		body, err = p.store.Result(ctx, rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}

func (p *process) StepResult(ctx context.Context, rec *protocol.Record, name string) (body []byte, err error) {
	err = p.call(func() (err error) {
		body, err = p.store.StepResult(ctx, rec, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return body, nil
}
