package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// chaos is a random history: several processes with clocks that differ, over one
// store whose network loses, repeats and delays, with crashes, kills and pauses.
// What must hold in every history is checked while it happens.
type chaos struct {
	t     *testing.T
	mem   *memstore.Store
	clock *idemtest.Clock
	calm  atomic.Bool // no more faults; set before the last calls

	mu     sync.Mutex
	rng    *rand.Rand
	starts map[string][]*start
	ended  map[string]*idem.Record // as first seen Completed or Failed
	told   map[string]string       // what callers were told that is recorded
	seen   map[string]int          // how often each kind of thing happened
	broken []string
}

// start is one run of a handler.
type start struct {
	attempt  int
	repeat   idem.Repeat // of the deployment that ran it
	harmless bool        // it has returned, and proved that it did nothing
}

// machine is one process of a history.
type machine struct {
	w          *chaos
	engine     *idem.Engine
	reconciler *reconcile.Reconciler
	ctx        context.Context
	cancel     context.CancelFunc
	mu         sync.Mutex
	dead       bool
}

func (w *chaos) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *chaos) saw(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
}

func (w *chaos) violation(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *chaos) boot() *machine {
	m := &machine{w: w}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	faults := idemtest.NewFaults(w.mem)
	faults.Always(m.network)
	skew := time.Duration(w.roll(1600)-800) * time.Millisecond
	opts := &idem.Options{Now: func() time.Time { return w.clock.Now().Add(skew) }}
	if w.roll(3) == 0 {
		opts.Wait = 20 * time.Second
	}
	var err error
	m.engine, err = idem.New(faults, opts)
	require.NoError(w.t, err)
	m.reconciler, err = reconcile.New(faults, &reconcile.Options{Now: opts.Now})
	require.NoError(w.t, err)
	return m
}

func (m *machine) crash() {
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	m.cancel()
	m.w.saw("crash")
}

func (m *machine) crashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// network carries a call to the store, or does not.
func (m *machine) network(ctx context.Context, c *idemtest.Call) error {
	w := m.w
	if m.crashed() {
		return &protocol.ConflictError{}
	}
	do := func() error {
		err := c.Do(context.WithoutCancel(ctx))
		w.look(c.ID)
		return err
	}
	if w.calm.Load() {
		return do()
	}
	switch w.roll(30) {
	case 0, 1:
		_ = do()
		return c.Lost()
	case 2, 3:
		return c.Lost()
	case 4:
		return idemtest.Refuse(ctx, c)
	case 5:
		return idemtest.Unreadable(ctx, c)
	case 6:
		return idemtest.BareConflict(ctx, c)
	case 7:
		return idemtest.BlackHole(ctx, c)
	case 8, 9: // delivered when nobody expects it any more
		delay := time.Duration(w.roll(90_000)) * time.Millisecond
		go func() {
			time.Sleep(delay)
			_ = do()
		}()
		return c.Lost()
	case 10: // delivered twice
		err := do()
		delay := time.Duration(w.roll(90_000)) * time.Millisecond
		go func() {
			time.Sleep(delay)
			_ = do()
		}()
		return err
	case 11:
		if w.roll(3) == 0 {
			landed := w.roll(2) == 0
			if landed {
				_ = do()
			}
			m.crash()
			return &protocol.ConflictError{}
		}
	case 12:
		time.Sleep(time.Duration(w.roll(400)) * time.Millisecond)
	}
	err := do()
	if m.crashed() {
		return &protocol.ConflictError{}
	}
	return err
}

// look checks that a recorded outcome never changes.
func (w *chaos) look(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec, err := w.mem.Get(context.Background(), id)
	require.NoError(w.t, err)
	first := w.ended[id]
	switch {
	case rec == nil:
		if first != nil {
			w.violation("%s: the outcome is gone", id)
		}
	case first != nil:
		if rec.State != first.State || rec.Write != first.Write || string(rec.Body.Data) != string(first.Body.Data) {
			w.violation("%s: the outcome changed from %s %s to %s %s", id, first.State, first.Body.Data, rec.State, rec.Body.Data)
		}
	case rec.State == idem.Completed || rec.State == idem.Failed:
		w.ended[id] = rec
	}
	if rec != nil && (rec.Open() || rec.State == idem.InProgress && rec.Repeat == idem.NotRepeatable) && !rec.ExpiresAt.IsZero() {
		w.violation("%s: an open question in state %s carries an expiry", id, rec.State)
	}
}

// began checks that the handler may start, by what the ones before it did.
func (w *chaos) began(key idem.Key, attempt int) *start {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &start{attempt: attempt, repeat: key.Operation().Repeat}
	for _, before := range w.starts[key.ID()] {
		if before.attempt == attempt {
			w.violation("%s: attempt %d started twice", key.ID(), attempt)
		}
		if before.harmless {
			continue
		}
		w.seen["second run"]++
		if s.repeat == idem.NotRepeatable || before.repeat == idem.NotRepeatable {
			w.violation("%s: attempt %d (%s) runs after the uncertain attempt %d (%s)", key.ID(), attempt, s.repeat, before.attempt, before.repeat)
		}
	}
	if w.ended[key.ID()] != nil {
		w.violation("%s: attempt %d starts after an outcome is recorded", key.ID(), attempt)
	}
	w.starts[key.ID()] = append(w.starts[key.ID()], s)
	w.seen["start"]++
	return s
}

// handler does its work, well or badly.
func (m *machine) handler(key idem.Key, kill time.Time) func(context.Context, int) (string, error) {
	w := m.w
	return func(ctx context.Context, _ int) (string, error) {
		info, _ := idem.InfoOf(ctx)
		s := w.began(key, info.Attempt)
		value := fmt.Sprintf("%s by attempt %d", key.ID(), info.Attempt)
		if w.calm.Load() {
			return value, nil
		}
		if w.roll(2) == 0 {
			time.Sleep(time.Duration(w.roll(60_000)) * time.Millisecond)
		}
		if !kill.IsZero() && time.Now().After(kill) {
			m.crash()
			return value, nil
		}
		switch w.roll(12) {
		case 0:
			m.crash()
			return value, nil
		case 1, 2:
			return "", errPlain
		case 3:
			return "", idem.Permanent(errors.New(value))
		case 4, 5, 6:
			w.mu.Lock()
			s.harmless = true
			w.mu.Unlock()
			return "", idem.NotExecuted(errPlain)
		case 7:
			panic(value)
		}
		return value, nil
	}
}

// call makes one call and checks what its caller is told.
func (m *machine) call(key idem.Key) (err error) {
	w := m.w
	var kill time.Time
	ctx := m.ctx
	if !w.calm.Load() && w.roll(2) == 0 {
		kill = time.Now().Add(time.Duration(1000+w.roll(30_000)) * time.Millisecond)
		ctx = idem.WithKillTime(ctx, kill)
	}
	if !w.calm.Load() && w.roll(8) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.roll(20_000))*time.Millisecond)
		defer cancel()
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	res, err := idem.Run(ctx, m.engine, key, 1, m.handler(key, kill))
	if m.crashed() || res.Outcome.Queued {
		return err // told to nobody, or counted as not written
	}
	switch res.Outcome.RecordState {
	case idem.Completed:
		require.NoError(w.t, err)
		m.hears(key, res.Value)
	case idem.Failed:
		m.hears(key, err.Error())
	}
	return err
}

func (m *machine) hears(key idem.Key, what string) {
	w := m.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen["told"]++
	if before, ok := w.told[key.ID()]; ok && before != what {
		w.violation("%s: one caller was told %q, another %q", key.ID(), before, what)
	}
	w.told[key.ID()] = what
}

// history plays one run of several processes from its seed.
func history(t *testing.T, seed uint64, seen map[string]int) {
	w := &chaos{
		t: t, mem: memstore.New(), clock: new(idemtest.Clock), rng: rand.New(rand.NewPCG(seed, 1)),
		starts: map[string][]*start{}, ended: map[string]*idem.Record{}, told: map[string]string{}, seen: seen,
	}
	loose := idem.Operation{Name: "loose", Repeat: idem.Repeatable}
	strict := idem.Operation{Name: "strict"}
	oldMixed, newMixed := idem.Operation{Name: "mixed", Repeat: idem.Repeatable}, idem.Operation{Name: "mixed"}
	keys := []idem.Key{loose.Key("t", "1"), loose.Key("t", "2"), strict.Key("t", "1"), strict.Key("t", "2"), oldMixed.Key("t", "1"), newMixed.Key("t", "1")}

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m := w.boot()
			for range 12 {
				_ = m.call(keys[w.roll(len(keys))])
				time.Sleep(time.Duration(w.roll(15_000)) * time.Millisecond)
				switch w.roll(16) {
				case 0: // time jumps for all processes: leases lapse under running handlers
					w.clock.Advance(time.Duration(w.roll(60_000)) * time.Millisecond)
				case 1:
					w.resolve(m, keys[w.roll(len(keys))])
				}
				if m.crashed() {
					m = w.boot()
				}
			}
			m.crash()
			_ = m.engine.Flush(context.Background())
		})
	}
	wg.Wait()
	time.Sleep(5 * time.Minute) // what is under way arrives, and every lease ends
	synctest.Wait()
	w.clock.Advance(5 * time.Minute)
	w.calm.Store(true)
	last := w.boot()
	for _, key := range keys {
		err := last.call(key)
		rec, gErr := w.mem.Get(context.Background(), key.ID())
		require.NoError(t, gErr)
		if rec.Attempt < len(w.starts[key.ID()]) {
			w.violation("%s: %d executions, %d attempts", key.ID(), len(w.starts[key.ID()]), rec.Attempt)
		}
		if told, ok := w.told[key.ID()]; ok && (rec.State != idem.Completed && rec.State != idem.Failed ||
			!strings.Contains(string(rec.Body.Data)+fmt.Sprint(rec.Failure), told)) {
			w.violation("%s: callers were told %q, and %s is recorded", key.ID(), told, rec.State)
		}
		seen["end: "+string(rec.State)]++
		switch {
		case rec.State != idem.Completed && rec.State != idem.Failed && rec.State != idem.Unknown:
			w.violation("%s: stuck in %s: %v", key.ID(), rec.State, err)
		case errors.Is(err, idem.ErrOutcomeUnknown) && key.Operation().Name == "loose":
			w.violation("%s: a repeatable operation ends unknown", key.ID())
		}
	}
	require.Empty(t, w.broken, "seed %d", seed)
}

func (w *chaos) resolve(m *machine, key idem.Key) {
	value := key.ID() + " by a resolver"
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	err := reconcile.Resolve(ctx, m.reconciler, key, value, reconcile.Change{Actor: "alice", Reason: "the provider says so"})
	if err == nil && !m.crashed() {
		w.saw("resolved")
		m.hears(key, value)
	}
}

// histories is how many random histories a test run plays. A seed fixes the dice;
// which goroutine throws them first is the scheduler's.
const histories = 150

func TestRandomHistories(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) { history(t, seed, seen) })
	}
	// A model in which no danger occurs shows nothing.
	for _, what := range []string{"start", "second run", "told", "crash", "resolved", "end: completed", "end: failed", "end: unknown"} {
		require.Positive(t, seen[what], what)
	}
	t.Log(seen)
}
