package crash

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// kind is what happens at a point.
type kind string

const (
	pass        kind = ""
	killBefore  kind = "dies before"
	killAfter   kind = "dies after"
	loseRequest kind = "request lost"
	loseReply   kind = "reply lost"
)

var kinds = []kind{killBefore, killAfter, loseRequest, loseReply}

// fault is a kind at the n-th call of a delivery, counted from 1.
type fault struct {
	n    int
	kind kind
}

var errDead = errors.New("the process is dead")

// deadError is what a dead process's calls give: a conflict too, so that the engine
// neither tries again nor remembers anything.
type deadError struct{}

func (deadError) Error() string   { return errDead.Error() }
func (deadError) Unwrap() []error { return []error{errDead, &protocol.ConflictError{}} }

// process is the store as one process reaches it, until it is killed.
type process struct {
	*idemtest.Faults
	store idem.Store
	w     *business
	// engine is the process's own.
	engine *idem.Engine
	// wired says that the points are on the wire, and not here.
	wired bool

	mu    sync.Mutex
	dead  bool
	kill  context.CancelFunc
	fault fault
	calls []string // of the delivery
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.kill()
}

// alive is the process, or if there is none that lives the next one, with the effects.
func (s *setup) alive(t *testing.T, p *process, w *business) *process {
	t.Helper()
	if p != nil && !p.isDead() {
		return p
	}
	p = &process{w: w}
	p.open(s.store(p))
	w.dead = p.isDead
	var err error
	p.engine, err = idem.New(p, &s.opts)
	require.NoError(t, err)
	return p
}

// deliver begins a delivery with its fault.
func (p *process) deliver(f fault, kill context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.kill, p.calls = f, kill, nil
}

func (p *process) point(label string) kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, label)
	if p.fault.n == len(p.calls) {
		return p.fault.kind
	}
	return pass
}

func (p *process) call(label string, do func() error) error {
	if p.isDead() {
		return deadError{}
	}
	var err error
	k := pass
	if !p.wired {
		k = p.point(label)
	}
	if k != killBefore && k != loseRequest {
		err = do()
	}
	switch k {
	case killBefore, killAfter:
		p.die()
	case loseRequest, loseReply:
		return &idem.StoreError{Op: label, Ambiguous: true, Err: errors.New("no reply")}
	}
	if p.isDead() {
		return deadError{}
	}
	return err
}

// open gives the process its store. Every call to it is a point; those that say more than
// their method are named below.
func (p *process) open(store idem.Store) {
	p.store, p.Faults = store, idemtest.NewFaults(store)
	p.Always(func(ctx context.Context, c *idemtest.Call) error {
		label := map[idemtest.Method]string{idemtest.Acquire: "claim", idemtest.RecordReference: "refer to the payment",
			idemtest.Settle: "park what was left"}[c.Method]
		return p.call(cmp.Or(label, strings.ToLower(string(c.Method))), func() error { return c.Do(ctx) })
	})
}

func (p *process) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	return p.call(stepLabel(s.Name, s.Begin, s.NotExecuted), func() error {
		err := p.store.RecordStep(ctx, now, s)
		if err == nil && !s.Begin && !s.NotExecuted {
			p.w.note(effectOf(s.Name))
		}
		return err
	})
}

func (p *process) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	label := endLabel(f.Ending.State, f.Unit != nil)
	if _, scant := p.store.(scant); scant && refusesResult(f) {
		label += " with its result"
	} else if _, added := f.Attempt.(protocol.WithoutResult); added {
		label = "add the result"
	}
	return p.call(label, func() error { return p.store.Finish(ctx, now, f) })
}

// The engine's own steps are named after what they are for.
func stepLabel(name string, begin, not bool) string {
	switch {
	case begin:
		return "begin " + name
	case not:
		return "take back " + name
	case name == "idem:compensating":
		return "begin to undo"
	case strings.HasPrefix(name, "idem:"):
		return "record " + effectOf(name)
	}
	return "record " + name
}

func effectOf(step string) string {
	if name, ok := strings.CutPrefix(step, "idem:undo:"); ok {
		return "undo " + name
	}
	return step
}

func endLabel(s idem.State, commits bool) string {
	switch {
	case s == idem.Pending:
		return "accept"
	case commits:
		return "commit"
	case s == idem.Failed:
		return "fail"
	}
	return "end as " + string(s)
}

// memory is an in-memory store in which a row commits with an outcome.
type memory struct {
	*memstore.Store
	mu   sync.Mutex
	rows []string
}

// row is a unit of work of one row.
type row struct {
	text   string
	refuse func() error
}

func (r *row) Seal() bool { return r.text != "" }
func (r *row) Size() int  { return len(r.text) }

func putInMemory(ctx context.Context, text string) error {
	u, err := idem.UnitOf(ctx, func() idem.Unit { return new(row) })
	if err == nil {
		u.(*row).text = text
	}
	return err
}

func (m *memory) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	r, ok := f.Unit.(*row)
	if !ok {
		return m.Store.Finish(ctx, now, f)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before, err := m.Get(ctx, f.ID)
	if err != nil {
		return err
	}
	f.Unit = nil
	if _, err := f.Apply(before, now); err != nil {
		return err
	}
	if (before == nil || before.Write != f.Write) && r.refuse != nil {
		if err := r.refuse(); err != nil {
			return &protocol.RefusedError{Err: err}
		}
	}
	if err := m.Store.Finish(ctx, now, f); err != nil {
		return err
	}
	if before == nil || before.Write != f.Write {
		m.rows = append(m.rows, r.text)
	}
	return nil
}

// scant is a memory in which no result can be stored in time with its outcome: the
// outcome is recorded without it, and the result is added by a write of its own.
type scant struct{ *memory }

func (s scant) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if refusesResult(f) {
		return &idem.StoreError{Op: "Finish", ResultNotStored: true, Err: errors.New("no part was taken")}
	}
	return s.memory.Finish(ctx, now, f)
}

func refusesResult(f protocol.Finish) bool {
	_, added := f.Attempt.(protocol.WithoutResult)
	return f.Ending.State == idem.Completed && !f.Ending.Omitted && !added
}

func (m *memory) stored(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows, nil
}
