package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/rig"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// store is what engines and resolvers share.
type store interface {
	protocol.Store
	protocol.AdminStore
}

const (
	lease  = 150 * time.Millisecond
	margin = 50 * time.Millisecond
)

// service is a process.
type service struct {
	engine *idem.Engine
	faults *idemtest.Faults
	dead   atomic.Bool
}

// world is a store with some processes, and what their callers have got.
type world struct {
	t     *testing.T
	store store
	op    idem.Operation
	begun time.Time
	last  atomic.Int64 // execution or resolution

	mu        sync.Mutex
	random    *rand.Rand
	processes []*service
	history   map[string][]porcupine.Operation
	counts    map[what]int
}

func (w *world) chance(percent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(100) < percent
}

func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.random.Int64N(int64(d)))
}

// start starts a process whose calls are lost now and again.
func (w *world) start() *service {
	p := &service{faults: idemtest.NewFaults(w.store)}
	p.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
		switch {
		case p.dead.Load():
			return idemtest.LoseRequest(ctx, c)
		case !w.chance(12):
			return c.Do(ctx)
		case w.chance(40):
			return idemtest.LoseReply(ctx, c)
		case w.chance(50):
			return idemtest.LoseRequest(ctx, c)
		}
		return idemtest.Refuse(ctx, c)
	})
	var err error
	p.engine, err = idem.New(p.faults, &idem.Options{Lease: lease, Margin: margin,
		Observer: func(context.Context, notice.Notice) {}})
	require.NoError(w.t, err)
	return p
}

// process is one of those that live. It may be killed first, and another one started in its place.
func (w *world) process(n int) *service {
	kills := w.chance(4)
	w.mu.Lock()
	defer w.mu.Unlock()
	if kills {
		w.processes[n].dead.Store(true)
		w.processes[n] = nil
	}
	if w.processes[n] == nil {
		w.mu.Unlock()
		p := w.start()
		w.mu.Lock()
		w.processes[n] = p
	}
	return w.processes[n]
}

func (w *world) note(key string, client int, begun time.Time, o operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[o.what]++
	end := int64(time.Since(w.begun))
	if o.what == lost {
		end = 1 << 62 // it may come of it later
	}
	w.history[key] = append(w.history[key], porcupine.Operation{
		ClientId: client, Call: int64(begun.Sub(w.begun)), Output: o, Return: end,
	})
}

var errPlain = errors.New("plain")

// call calls an operation in a process.
func (w *world) call(client int, p *service, key string) {
	begun := time.Now()
	var mine atomic.Int64
	res, err := idem.Run(w.t.Context(), p.engine, w.op.Key(idem.SingleTenant, key), 1,
		func(context.Context, int) (int, error) {
			mine.Store(w.last.Add(1))
			time.Sleep(w.upTo(20 * time.Millisecond))
			if w.chance(15) {
				return 0, errPlain
			}
			return int(mine.Load()), nil
		})
	o := operation{what: nothing}
	switch {
	case p.dead.Load(), res.Outcome.Queued:
		o = operation{lost, int(mine.Load())}
	case err == nil && res.Outcome.Executed:
		o = operation{ran, res.Value}
	case err == nil:
		o = operation{replayed, res.Value}
	case errors.Is(err, errPlain):
		o = operation{what: uncertain}
	case errors.Is(err, idem.ErrOutcomeUnknown) && mine.Load() == 0:
		o = operation{what: parked}
	case mine.Load() != 0: // it lost its claim
		o = operation{lost, int(mine.Load())}
	}
	w.note(key, client, begun, o)
}

// resolve records an outcome from outside, if the key has an open question.
func (w *world) resolve(client int, key string) {
	begun, value := time.Now(), w.last.Add(1)
	r, err := reconcile.New(w.store, nil)
	require.NoError(w.t, err)
	err = r.Resolve(w.t.Context(), w.op.Key(idem.SingleTenant, key).ID(), reconcile.Resolution{
		To: idem.Completed, Result: &protocol.Encoded{Body: fmt.Appendf(nil, "%d", value)},
	}, reconcile.Change{Actor: "alice", Reason: "a test"})
	if err == nil {
		w.note(key, client, begun, operation{resolved, int(value)})
	}
}

// play has clients call the keys.
func play(t *testing.T, s store, op idem.Operation, keys int) *world {
	w := &world{t: t, store: s, op: op, begun: time.Now(), random: rand.New(rand.NewPCG(1, 2)),
		history: map[string][]porcupine.Operation{}, counts: map[what]int{}}
	const clients = 6
	for range 3 {
		w.processes = append(w.processes, nil)
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range 4 * keys {
				key := fmt.Sprint("key-", (n+client)%keys)
				if op.Repeat == idem.NotRepeatable && w.chance(5) {
					w.resolve(client, key)
				}
				w.call(client, w.process(int(w.upTo(3))), key)
				time.Sleep(w.upTo(10 * time.Millisecond))
			}
		})
	}
	all.Wait()
	return w
}

// check returns the keys whose histories no register could have, and keeps their pictures.
func (w *world) check() (broken []string) {
	m := model(w.op.Repeat == idem.Repeatable)
	for key, history := range w.history {
		result, info := porcupine.CheckOperationsVerbose(m, history, time.Minute)
		require.NotEqual(w.t, porcupine.Unknown, result, "%s: too long a history", key)
		if result == porcupine.Ok {
			continue
		}
		broken = append(broken, key)
		picture := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%s.html", filepath.Base(w.t.Name()), key))
		if porcupine.VisualizePath(m, info, picture) == nil {
			w.t.Logf("%s: no order of its operations is right: %s\n%v", key, picture, history)
		}
	}
	return broken
}

func TestHistoriesAreThoseOfARegister(t *testing.T) {
	keys := 20
	if rig.Long() {
		keys = 400
	}
	for name, open := range map[string]func(*testing.T) store{
		"memory": func(*testing.T) store { return memstore.New() },
		"DynamoDB": func(t *testing.T) store {
			s, err := dynamostore.NewAdminStore(dynamotest.Client(t), rig.Table(t), nil)
			require.NoError(t, err)
			return s
		},
	} {
		for _, repeat := range []idem.Repeat{idem.NotRepeatable, idem.Repeatable} {
			t.Run(fmt.Sprint(name, " ", repeat), func(t *testing.T) {
				t.Parallel()
				w := play(t, open(t), idem.Operation{Name: "register", Repeat: repeat}, keys)
				t.Log(w.counts)
				require.Empty(t, w.check())
				require.NotZero(t, w.counts[ran])
			})
		}
	}
}

// forgetful lets a claim replace an outcome.
type forgetful struct{ *memstore.Store }

func (f forgetful) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if rec, err := f.Get(ctx, c.Record.ID); err == nil && rec != nil && rec.State == idem.Completed {
		f.Delete(rec.ID)
		c.Seen, c.Replace = "", false
	}
	return f.Store.Acquire(ctx, now, c)
}

func TestABrokenHistoryIsSeen(t *testing.T) {
	w := play(t, forgetful{memstore.New()}, idem.Operation{Name: "register"}, 5)
	require.NotEmpty(t, (&world{t: t, op: w.op, history: w.history}).check())
}
