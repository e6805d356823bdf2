package limit_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// noon begins a window of any length that divides a day in two.
var noon = time.Date(2030, 5, 6, 12, 0, 0, 0, time.UTC)

// rig is an engine over a limited store in memory, with a clock that stands still.
type rig struct {
	*testing.T
	table  *memstore.Store
	faults *idemtest.Faults
	counts []string // counters that were asked for
	// countFault, if not nil, is around the next count.
	countFault func(count func() (bool, error)) (bool, error)
	store      idem.Store
	engine     *idem.Engine
	now        time.Time
	kinds      []notice.Kind
}

// base is what is limited.
type base struct {
	*idemtest.Faults
	r *rig
}

func (b base) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (bool, error) {
	r, fault := b.r, b.r.countFault
	r.counts, r.countFault = append(r.counts, counter), nil
	count := func() (bool, error) { return r.table.CountKey(ctx, counter, bound, expires) }
	if fault != nil {
		return fault(count)
	}
	return count()
}

// newRig limits operation export to so many keys an hour.
func newRig(t *testing.T, keys int) *rig {
	r := &rig{T: t, table: memstore.Options{MaxResult: 100}.New(), now: noon}
	r.faults = idemtest.NewFaults(r.table)
	var err error
	r.store, err = limit.Over(base{r.faults, r}, map[string]limit.PerTenant{"export": {Keys: keys, Window: time.Hour}})
	require.NoError(t, err)
	r.engine, err = idem.New(r.store, &idem.Options{
		Now:      func() time.Time { return r.now },
		Observer: func(_ context.Context, n notice.Notice) { r.kinds = append(r.kinds, n.Kind) },
	})
	require.NoError(t, err)
	return r
}

var (
	export = idem.Operation{Name: "export", Repeat: idem.Repeatable}
	move   = idem.Operation{Name: "export", Repeat: idem.Repeatable, Mode: idem.Atomic}
)

func (r *rig) do(op idem.Operation, value string, fail error) error {
	return r.doKey(op.Key("acme", value), fail)
}

func (r *rig) doKey(k idem.Key, fail error) error {
	_, err := idem.Do(r.Context(), r.engine, k, 1, func(context.Context, int) (string, error) { return "done", fail })
	return err
}

// full uses up the window.
func (r *rig) full() {
	r.Helper()
	counter := "acme#export#limit#3600#" + unix(r.now.Truncate(time.Hour))
	for range 100 {
		counted, err := r.table.CountKey(r.Context(), counter, 1000, time.Time{})
		require.NoError(r, err)
		require.True(r, counted)
	}
}

// calls requires that the store was asked so since the last time.
func (r *rig) calls(want ...idemtest.Method) {
	r.Helper()
	require.Equal(r, want, r.faults.Calls())
	r.faults.Reset()
}
