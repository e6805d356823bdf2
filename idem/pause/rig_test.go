package pause_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	charge = idem.Operation{Name: "charge"}
	export = idem.Operation{Name: "export", Repeat: idem.Repeatable}
	move   = idem.Operation{Name: "export", Repeat: idem.Repeatable, Mode: idem.Atomic}
	mail   = idem.Operation{Name: "export", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}

	errPlain = errors.New("plain")
	why      = reconcile.Change{Actor: "alice", Reason: "the provider charges twice"}
)

func nothing(context.Context, int) (string, error) { return "", nil }

// rig is a table with an operator, and a process over it. It is in a synctest bubble.
type rig struct {
	*testing.T
	table   *memstore.Store
	records *reconcile.Reconciler
	process
}

// process is one that runs operations.
type process struct {
	engine *idem.Engine
	faults *idemtest.Faults
	mu     sync.Mutex
	kinds  []notice.Kind
	reads  int
	// fault is around the next reads of what is paused.
	fault func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error)
	table *memstore.Store
}

func (p *process) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	p.mu.Lock()
	p.reads++
	fault := p.fault
	p.mu.Unlock()
	if fault != nil {
		return fault(ctx, p.table.ReadPaused)
	}
	return p.table.ReadPaused(ctx)
}

func (p *process) start(t *testing.T, table *memstore.Store, o idem.Options) {
	p.table, p.faults = table, idemtest.NewFaults(table)
	pauses, err := pause.New(p)
	require.NoError(t, err)
	o.Pauses = pauses
	o.Observer = func(_ context.Context, n notice.Notice) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kinds = append(p.kinds, n.Kind)
	}
	p.engine, err = idem.New(p.faults, &o)
	require.NoError(t, err)
}

// do runs the operation in the process. It returns whether the handler ran.
func (p *process) do(op idem.Operation, tenant, value string, end error) (ran bool, err error) {
	_, err = idem.Do(context.Background(), p.engine, op.Key(tenant, value), 1, func(context.Context, int) (string, error) {
		ran = true
		return "done", end
	})
	return ran, err
}

// took are the kinds of notices since the last time.
func (p *process) took() []notice.Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := p.kinds
	p.kinds = nil
	return kinds
}

func test(t *testing.T, play func(t *testing.T, r *rig)) { testWith(t, idem.Options{}, play) }

func testWith(t *testing.T, o idem.Options, play func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, table: memstore.New()}
		var err error
		r.records, err = reconcile.New(r.table, nil)
		require.NoError(t, err)
		r.start(t, r.table, o)
		play(t, r)
	})
}

func (r *rig) pause(operation, tenant string) {
	r.Helper()
	require.NoError(r, r.records.Pause(r.Context(), operation, tenant, time.Time{}, why))
}

func (r *rig) runs(op idem.Operation, tenant, value string) {
	r.Helper()
	ran, err := r.do(op, tenant, value, nil)
	require.NoError(r, err)
	require.True(r, ran)
}

// refused requires that the call gets the error, and runs nothing.
func (p *process) refused(t *testing.T, op idem.Operation, tenant, value string, want error) {
	t.Helper()
	ran, err := p.do(op, tenant, value, nil)
	require.False(t, ran)
	require.ErrorIs(t, err, want)
}

// replays requires that the call is answered, and runs nothing.
func (p *process) replays(t *testing.T, op idem.Operation, tenant, value string) {
	p.refused(t, op, tenant, value, nil)
}

// starts starts another process.
func (r *rig) starts(o idem.Options) *process {
	p := new(process)
	p.start(r.T, r.table, o)
	return p
}

func (r *rig) isPaused(op idem.Operation, tenant, value string) *idem.PausedError {
	r.Helper()
	ran, err := r.do(op, tenant, value, nil)
	require.False(r, ran)
	require.ErrorIs(r, err, idem.ErrPaused)
	require.NotErrorIs(r, err, idem.ErrStoreUnavailable)
	paused, ok := errors.AsType[*idem.PausedError](err)
	require.True(r, ok)
	return paused
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
