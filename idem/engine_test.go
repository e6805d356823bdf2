package idem_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem/notice"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// What engines without an observer log is what their tests make happen.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// rig is an engine over a store with faults, whose clock can be moved.
type rig struct {
	mem    *memstore.Store
	faults *idemtest.Faults
	clock  *idemtest.Clock
	engine *idem.Engine
	events *events
	c      *counter // a handler
	e      *effects // of steps
	frozen bool
	ctx    context.Context // of calls; nil for the test's
}

func newRig(t *testing.T, o *idem.Options) *rig {
	t.Helper()
	return rigOver(t, memstore.New(), new(idemtest.Clock), o)
}

// rigOver is a rig over these records. A nil clock is the process's: then the store has a circuit.
func rigOver(t *testing.T, mem *memstore.Store, clock *idemtest.Clock, o *idem.Options) *rig {
	t.Helper()
	r := &rig{mem: mem, faults: idemtest.NewFaults(mem), clock: cmp.Or(clock, new(idemtest.Clock)), events: new(events),
		c: new(counter), e: new(effects)}
	var opts idem.Options
	if o != nil {
		opts = *o
	}
	opts.Observer = r.events.observer
	if clock != nil {
		opts.Now = r.clock.Now
	}
	if inBubble := time.Now().UTC().Year() == 2000; !inBubble {
		// How long the machine pauses a test is no part of it.
		opts.ClaimBudget, opts.FinishBudget = cmp.Or(opts.ClaimBudget, time.Minute), cmp.Or(opts.FinishBudget, time.Minute)
	}
	var err error
	r.engine, err = idem.New(r.faults, &opts)
	require.NoError(t, err)
	t.Cleanup(func() { // nothing of the engine goes on after its test
		r.faults.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, r.engine.Flush(ctx))
	})
	return r
}

// engineOver is an engine without a rig.
func engineOver(t *testing.T, store idem.Store, o *idem.Options) *idem.Engine {
	t.Helper()
	e, err := idem.New(store, o)
	require.NoError(t, err)
	return e
}

// rigOn is a rig, and the key of the operation that the test is about.
func rigOn(t *testing.T, op idem.Operation) (*rig, idem.Key) {
	t.Helper()
	return newRig(t, nil), op.Key("t", "k")
}

// inLambda is the same process with a kill time, which is frozen between calls: nothing is written in the background.
func (r *rig) inLambda() *rig {
	frozen := *r
	frozen.frozen = true
	return &frozen
}

// in is the same process, whose calls have this context.
func (r *rig) in(ctx context.Context) *rig {
	inside := *r
	inside.ctx = ctx
	return &inside
}

func (r *rig) context(t *testing.T) context.Context {
	ctx := cmp.Or(r.ctx, t.Context())
	if r.frozen {
		ctx = inLambda(ctx)
	}
	return ctx
}

type handler[Out any] = func(context.Context, int) (Out, error)

// must calls the key's operation, which gets an outcome, and returns the result.
func must[Out any](t *testing.T, r *rig, key idem.Key, fn handler[Out]) Out {
	t.Helper()
	return mustRun(t, r, key, fn).Value
}

// mustRun is must, and returns the outcome too.
func mustRun[Out any](t *testing.T, r *rig, key idem.Key, fn handler[Out]) idem.Result[Out] {
	t.Helper()
	res, err := idem.Run(r.context(t), r.engine, key, 1, fn)
	require.NoError(t, err)
	return res
}

// refused calls the key's operation, which gets the error: see expect. Nil stands for any.
func refused[Out any](t *testing.T, r *rig, key idem.Key, want any, fn handler[Out]) error {
	t.Helper()
	_, err := idem.Do(r.context(t), r.engine, key, 1, fn)
	require.Error(t, err)
	if want != nil {
		expect(t, want, err)
	}
	return err
}

// errs calls the key's operation, and gets its handler's own error, errPlain.
func errs[Out any](t *testing.T, r *rig, key idem.Key, fn handler[Out]) {
	t.Helper()
	_, err := idem.Do(r.context(t), r.engine, key, 1, fn)
	require.Same(t, errPlain, err)
}

// mistaken requires an error of configuration that says so.
func mistaken(t *testing.T, err error, says string) {
	t.Helper()
	require.ErrorAs(t, err, new(*idem.ConfigError))
	require.ErrorContains(t, err, says)
}

// errorAs requires an error of the type, and returns it.
func errorAs[E error](t *testing.T, err error) E {
	t.Helper()
	var as E
	require.ErrorAs(t, err, &as)
	return as
}

// elsewhere is another process on the same records: its own engine, without faults.
func (r *rig) elsewhere(t *testing.T) *rig {
	t.Helper()
	return rigOver(t, r.mem, r.clock, nil)
}

func (r *rig) record(t *testing.T, key idem.Key) *idem.Record {
	t.Helper()
	rec, err := r.mem.Get(context.Background(), key.ID())
	require.NoError(t, err)
	return rec
}

func (r *rig) state(t *testing.T, key idem.Key) idem.State {
	t.Helper()
	if rec := r.record(t, key); rec != nil {
		return rec.State
	}
	return idem.Absent
}

// prolong keeps the key's record for longer, as an operator does.
func (r *rig) prolong(t *testing.T, key idem.Key) {
	t.Helper()
	rec := r.record(t, key)
	require.NoError(t, r.mem.Prolong(t.Context(), r.clock.Now(), protocol.Prolongation{ID: rec.ID, Seen: rec.Write,
		Write: "longer", ExpiresAt: rec.ExpiresAt.Add(time.Hour)}))
}

// resolve resolves as a person would, with a reconciler of its own.
func (r *rig) resolve(t *testing.T, id string, res reconcile.Resolution) error {
	t.Helper()
	rc, err := reconcile.New(r.faults, &reconcile.Options{Now: r.clock.Now})
	require.NoError(t, err)
	by := reconcile.Change{Actor: "alice", Reason: "the provider says so"}
	if res.Replace {
		rec, err := rc.Lookup(t.Context(), id)
		require.NoError(t, err)
		by.IfWrite = rec.Write
	}
	return rc.Resolve(t.Context(), id, res, by)
}

// encoded is JSON as later calls read it, or are said to.
func encoded(body string) *protocol.Encoded { return &protocol.Encoded{Body: []byte(body)} }

// events logs the notices that an observer gets, by kind.
type events struct {
	mu      sync.Mutex
	names   []string
	notices []notice.Notice
}

func (ev *events) observer(_ context.Context, n notice.Notice) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.names = append(ev.names, string(n.Kind))
	ev.notices = append(ev.notices, n)
}

// take returns the names since the last time, but for Executed: the tests that take them are about what is recorded.
func (ev *events) take() []string {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	names := slices.DeleteFunc(ev.names, func(name string) bool { return name == string(notice.Executed) })
	ev.names, ev.notices = nil, nil
	return names
}

var (
	safe   = idem.Operation{Name: "safe", Repeat: idem.Repeatable}
	unsafe = idem.Operation{Name: "unsafe"}
	both   = []idem.Operation{safe, unsafe}
	// strictly is safe as another deployment declares it.
	strictly = idem.Operation{Name: "safe"}
)

var errPlain = errors.New("plain")

// counter is a handler that counts its runs and returns their number.
type counter struct {
	mu   sync.Mutex
	runs int
}

func (c *counter) run(context.Context, int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return c.runs, nil
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs
}

// bubble runs a subtest whose time passes when nothing can run.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// testOn runs a subtest on one key, whose time passes when nothing can run.
func testOn(t *testing.T, name string, op idem.Operation, test func(*testing.T, *rig, idem.Key)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, op, test) })
}

// inBubble runs a test on one key, whose time passes when nothing can run.
func inBubble(t *testing.T, op idem.Operation, test func(*testing.T, *rig, idem.Key)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, nil), op.Key("t", "k")) })
}

// lasts is a handler that takes so long, and does not look at its context.
func lasts(d time.Duration) handler[int] {
	return func(context.Context, int) (int, error) { time.Sleep(d); return 1, nil }
}

func fails(err error) func(context.Context, int) (int, error) {
	return func(context.Context, int) (int, error) { return 0, err }
}

func TestNewReportsMistakes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		store idem.Store
		opts  idem.Options
		says  string
	}{
		{"nil store", nil, idem.Options{}, "the store is nil"},
		{"a constructor's error that was not looked at", (*memstore.Store)(nil), idem.Options{}, "the store is nil"},
		{"lease", memstore.New(), idem.Options{Lease: -1}, "Lease is -1ns"},
		{"margin", memstore.New(), idem.Options{Margin: -time.Second}, "Margin is -1s"},
		{"guard", memstore.New(), idem.Options{Guard: -1}, "Guard"},
		{"claim budget", memstore.New(), idem.Options{ClaimBudget: -1}, "ClaimBudget"},
		{"finish budget", memstore.New(), idem.Options{FinishBudget: -1}, "FinishBudget"},
		{"wait", memstore.New(), idem.Options{Wait: -1}, "Wait"},
		{"lease without a unit", memstore.New(), idem.Options{Lease: 30}, "Lease is 30ns: use at least a millisecond"},
		{"margin without a unit", memstore.New(), idem.Options{Margin: 2}, "Margin is 2ns"},
		{"guard without a unit", memstore.New(), idem.Options{Guard: 1}, "Guard is 1ns"},
		{"wait in microseconds", memstore.New(), idem.Options{Wait: 999 * time.Microsecond}, "Wait is 999µs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := idem.New(tc.store, &tc.opts)
			require.Nil(t, e)
			mistaken(t, err, tc.says)
		})
	}
	_, err := idem.New(memstore.New(), &idem.Options{Lease: time.Millisecond})
	require.NoError(t, err)
	_, err = idem.New(memstore.New(), &idem.Options{})
	require.NoError(t, err, "zero fields mean the defaults")
}

func TestCallsReportMistakes(t *testing.T) {
	e := engineOver(t, memstore.New(), nil)
	fine := safe.Key("t", "k")
	never := func(context.Context, int) (int, error) { panic("must not run") }
	var config *idem.ConfigError

	_, err := idem.Do(t.Context(), nil, fine, 1, never)
	require.ErrorAs(t, err, &config)
	_, err = idem.Do[int, int](t.Context(), e, fine, 1, nil)
	require.ErrorAs(t, err, &config)
	_, err = idem.Do(t.Context(), e, idem.Key{}, 1, never)
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	_, err = idem.Do(t.Context(), e, safe.Key("", "k"), 1, never)
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	_, err = idem.Do(t.Context(), e, safe.Key("t", ""), 1, never)
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	_, err = idem.Do(t.Context(), e, idem.Operation{}.Key("t", "k"), 1, never)
	mistaken(t, err, "Name is empty")
	_, err = idem.Do(t.Context(), e, fine, func() {}, func(context.Context, func()) (int, error) { panic("must not run") })
	mistaken(t, err, "cannot be encoded as JSON")
	_, err = idem.Do(t.Context(), e, fine, 1, func(context.Context, int) (chan int, error) { panic("must not run") })
	mistaken(t, err, "chan int")

	for _, c := range []idem.Call{
		{Key: fine, Run: func(context.Context) idem.Answer { panic("must not run") }},
		{Key: fine, Fingerprint: fingerprint.Bytes([]byte("x"))},
	} {
		_, err = e.Execute(t.Context(), c)
		require.ErrorAs(t, err, &config)
	}
}

func TestEnginesClock(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	e := engineOver(t, newRig(t, nil).mem, &idem.Options{Now: func() time.Time { return at }})
	require.Equal(t, at.UTC().Truncate(time.Millisecond), e.Now())
}
