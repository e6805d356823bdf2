package idemlambda

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var (
	charge   = idem.Operation{Name: "charge", Values: idem.KeepValues}
	transfer = idem.Operation{Name: "transfer", Repeat: idem.Repeatable}
)

// engineAt goes by the clock, or by the real one.
func engineAt(t testing.TB, store idem.Store, clock *time.Time) *idem.Engine {
	t.Helper()
	o := &idem.Options{}
	if clock != nil {
		o.Now = func() time.Time { return *clock }
	}
	e, err := idem.New(store, o)
	require.NoError(t, err)
	return e
}

func newEngine(t testing.TB, store idem.Store) *idem.Engine { return engineAt(t, store, &noon) }

func realTime(t testing.TB, store idem.Store) *idem.Engine { return engineAt(t, store, nil) }

func memory() *memstore.Store { return memstore.New() }

// broken is a store whose methods have a fault.
func broken(store idem.Store, fault idemtest.Fault, methods ...idemtest.Method) *idemtest.Faults {
	f := idemtest.NewFaults(store)
	f.Always(fault, methods...)
	return f
}

// unreachable is a store that takes no claims.
func unreachable() idem.Store { return broken(memory(), idemtest.Deny, idemtest.Acquire) }

// damaged is a store whose records cannot be read.
func damaged() idem.Store {
	return broken(memory(), idemtest.Unreadable, idemtest.Acquire, idemtest.Get)
}

// dying is a store to which a process writes no end.
func dying(store idem.Store) idem.Store { return broken(store, idemtest.Deny, idemtest.Finish) }

// occupied is a store in which a record stands in every claim's way.
type occupied struct {
	idem.Store
	record idem.Record
}

func (s occupied) Acquire(_ context.Context, _ time.Time, c protocol.Claim) error {
	rec := s.record
	rec.ID, rec.Fingerprint = c.Record.ID, c.Record.Fingerprint
	return &protocol.ConflictError{Existing: &rec}
}

// golden compares with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// watcher notes the callers' values that are claimed.
type watcher struct {
	idem.Store
	mu     sync.Mutex
	values []string
}

func (w *watcher) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	w.mu.Lock()
	w.values = append(w.values, c.Record.Value)
	w.mu.Unlock()
	return w.Store.Acquire(ctx, now, c)
}
