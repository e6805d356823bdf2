package idemtest

import (
	"context"
	"errors"
	"sync"

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
	intercepted
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	dead   bool
	left   int  // calls until the crash, 0 for none
	landed bool // the call that crashes is applied
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

func (p *process) intercept(ctx context.Context, _, _ string, do func(context.Context) error) error {
	reaches, survives := p.enter()
	var err error
	if reaches {
		err = do(ctx)
	}
	if !survives {
		p.crash()
	}
	if p.crashed() { // a process that died before the reply does not see it
		return crashError{}
	}
	return err
}
