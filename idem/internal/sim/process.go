package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// process is one that the world has started. It is frozen once at most.
type process struct {
	w      *World
	n      int
	store  Store
	engine *idem.Engine
	now    func() time.Time // nil for the world's
	cut    [2]time.Time     // from when until when it does not reach the store
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	dead   bool
	froze  bool          // it was frozen: its handlers may go on for longer than their leases
	doubt  time.Time     // since when the engine has reported that an outcome may not be recorded; zero if it has not
	frozen chan struct{} // closed when a call is frozen
	thawed chan struct{} // closed when the process goes on
}

type processKey struct{}

func (w *World) start() *process {
	p := &process{w: w, frozen: make(chan struct{}), thawed: make(chan struct{})}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	p.n = len(w.processes)
	w.mu.Unlock()
	p.ctx, p.cancel = context.WithCancelCause(context.WithValue(context.Background(), processKey{}, p))
	store := protocol.Store(w.Store)
	if w.Broken != nil {
		store = w.Broken(w.Store)
	}
	p.store = Intercept(store, p.storeCall)
	store = p.store
	if w.Around != nil {
		store = w.Around(p.store)
	}
	if skew := w.skew(); skew != 0 {
		p.now = func() time.Time { return time.Now().Add(skew) }
	}
	engine, err := idem.New(store, &idem.Options{Observer: p.observe, Now: p.now})
	if err != nil {
		panic(err)
	}
	p.engine = engine
	if w.chance.crowd && w.Draw(context.Background(), 3) == 0 {
		p.cut[0] = time.Now().Add(time.Duration(w.Draw(context.Background(), int(30*time.Second))))
		p.cut[1] = p.cut[0].Add(time.Duration(w.Draw(context.Background(), int(time.Minute))))
	}
	return p
}

// isCut reports whether the process is cut off from the store, as it may be once for up to a minute.
func (p *process) isCut(call string) bool {
	now := time.Now()
	return !strings.Contains(call, ":") && now.After(p.cut[0]) && now.Before(p.cut[1])
}

func (p *process) observe(_ context.Context, n notice.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := []notice.Kind{notice.OutcomeDropped, notice.LeaseLost, notice.Unreadable}
	if p.dead {
		lost = append(lost, notice.OutcomeLanded) // its writes are answered, and change nothing
	}
	if slices.Contains(lost, n.Kind) && p.doubt.IsZero() {
		p.doubt = time.Now()
	}
}

var errKilled = errors.New("the process was killed")

// killedError is what the calls of a dead process give. It is a conflict too, so that its engine neither runs
// a handler nor tries again.
type killedError struct{}

func (killedError) Error() string   { return errKilled.Error() }
func (killedError) Unwrap() []error { return []error{errKilled, &protocol.ConflictError{}} }

func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cancel(errKilled)
}

// doubtful reports whether the engine has reported by then that an outcome may not be recorded.
func (p *process) doubtful(by time.Time) bool { return !p.doubt.IsZero() && !p.doubt.After(by) }

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) isFrozen() bool { return p.wasFrozen() && !isClosed(p.thawed) && !p.isDead() }

func (p *process) wasFrozen() bool { return isClosed(p.frozen) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits while the process is frozen. What has waited goes on in its order.
func (p *process) wait() {
	if !p.wasFrozen() || isClosed(p.thawed) {
		return
	}
	p.w.mu.Lock()
	p.w.waiting++
	order := time.Duration(p.w.waiting) * time.Millisecond
	p.w.mu.Unlock()
	if <-p.thawed; p.w.chance.crowd {
		time.Sleep(order)
	}
}

// outcomes are what a call does. A request that is on its way no caller takes back: late makes the call then.
type outcomes struct{ made, late, refused, lost func() error }

// call makes a call, or not, as the plan says.
func (p *process) call(ctx context.Context, name string, o outcomes) error {
	if p.wait(); p.w.chance.crowd {
		p.w.Pause(ctx, latency)
		p.wait()
	}
	if p.isDead() {
		return killedError{}
	}
	at, fate := p.w.enter(ctx, name)
	var err error
	switch fate {
	case Frozen:
		p.w.tell(">> process %d: %s %s", p.n, at, fate)
		p.freeze()
		p.wait()
		if p.isDead() {
			return killedError{}
		}
		fate, err = Pass, o.made()
	case Refused:
		err = o.refused()
	case NotSent:
		err = ErrNotSent
	case RequestLost:
		err = o.lost()
	case ReplyLost:
		_ = o.made()
		err = o.lost()
	case Late:
		err = p.postpone(at, o)
	case Twice:
		err = o.made()
		_ = p.postpone(at, o)
	case Slow:
		if p.w.Pause(ctx, slowest); ctx.Err() == nil {
			err = o.made()
		} else {
			err = p.postpone(at, o)
		}
	case Unreadable:
		err = fmt.Errorf("%w: %s", protocol.ErrRecordUnreadable, fate)
	case Bare:
		err = &protocol.ConflictError{}
	case TimedOut:
		_ = o.made()
		select {
		case <-ctx.Done(): // a context that does not end until then is that of a killed process
		case <-p.ctx.Done():
		}
		err = o.lost()
	case KilledFirst:
		p.kill()
	case KilledAfter:
		_ = o.made()
		p.kill()
	default:
		err = o.made()
	}
	switch {
	case fate != Pass:
		p.w.tell(">> process %d: %s %s", p.n, at, fate)
	case err != nil:
		p.w.tell("process %d: %s: %s", p.n, at, short(err))
	default:
		p.w.tell("process %d: %s", p.n, at)
	}
	p.wait()
	if p.isDead() {
		return killedError{}
	}
	return err
}

// postpone has a request arrive late, to which there is no reply.
func (p *process) postpone(at Point, o outcomes) error {
	p.w.postpone(func() {
		p.w.tell("process %d: %s arrives", p.n, at)
		_ = o.late()
	})
	return o.lost()
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.froze = true; !isClosed(p.frozen) {
		close(p.frozen)
	}
}

// storeCall is a call of the process to the store.
func (p *process) storeCall(ctx context.Context, method, id string, do func(context.Context) error) error {
	if method == "Due" { // one for each shard, and what a sweep does not see the next one sees
		if p.wait(); p.isDead() {
			return killedError{}
		}
		return do(ctx)
	}
	failed := func(ambiguous bool, text string) func() error {
		return func() error {
			return &protocol.StoreError{Op: method, Ambiguous: ambiguous, Down: true, Err: errors.New(text)}
		}
	}
	made := func(ctx context.Context) error {
		if p.w.chance.crowd {
			p.w.expire(ctx, id)
		}
		err := do(ctx)
		p.w.look(id)
		return err
	}
	return p.call(ctx, method, outcomes{
		made: func() error { return made(ctx) }, late: func() error { return made(context.WithoutCancel(ctx)) },
		refused: failed(false, "refused"), lost: failed(true, "no reply"),
	})
}

// short is an error in a line.
func short(err error) string {
	if c, ok := errors.AsType[*protocol.ConflictError](err); ok && c.Existing != nil {
		return "the record is " + string(c.Existing.State)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
