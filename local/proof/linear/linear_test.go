package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/idem-go/idempotency/local/proof/rig/register"
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
	last  atomic.Int64 // execution or resolution

	history *register.History

	mu        sync.Mutex
	random    *rand.Rand
	processes []*service
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
		Observer: register.Observe})
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
		w.processes[n] = w.start()
	}
	return w.processes[n]
}

var errPlain = errors.New("plain")

// call calls an operation in a process.
func (w *world) call(p *service, key string) {
	begun := time.Now()
	var mine atomic.Int64
	ctx, kept := register.Watch(w.t.Context())
	res, err := idem.Run(ctx, p.engine, w.op.Key(idem.SingleTenant, key), 1,
		func(context.Context, int) (int, error) {
			mine.Store(w.last.Add(1))
			time.Sleep(w.upTo(20 * time.Millisecond))
			if w.chance(15) {
				return 0, errPlain
			}
			return int(mine.Load()), nil
		})
	o := register.Operation{What: register.Nothing, Value: int(mine.Load())}
	switch {
	case p.dead.Load(), kept.Load():
		o.What = register.Lost
	case err == nil && res.Outcome.Executed:
		o.What = register.Ran
	case err == nil:
		o.What, o.Value = register.Replayed, res.Value
	case errors.Is(err, errPlain):
		o.What = register.Uncertain
	case errors.Is(err, idem.ErrOutcomeUnknown) && mine.Load() == 0:
		o.What = register.Parked
	case mine.Load() != 0: // it lost its claim
		o.What = register.Lost
	}
	w.history.Note(key, begun, o)
}

// resolve records an outcome from outside, if the key has an open question.
func (w *world) resolve(key string) {
	begun, value := time.Now(), w.last.Add(1)
	r, err := reconcile.New(w.store, &reconcile.Options{Margin: margin})
	require.NoError(w.t, err)
	err = r.Resolve(w.t.Context(), w.op.Key(idem.SingleTenant, key).ID(), reconcile.Resolution{
		To: idem.Completed, Result: &protocol.Encoded{Body: fmt.Appendf(nil, "%d", value)},
	}, reconcile.Change{Actor: "alice", Reason: "a test"})
	if err == nil {
		w.history.Note(key, begun, register.Operation{What: register.Resolved, Value: int(value)})
	}
}

func newWorld(t *testing.T, s store, op idem.Operation) *world {
	return &world{t: t, store: s, op: op, random: rand.New(rand.NewPCG(1, 2)), history: register.NewHistory()}
}

// play has clients call the keys.
func play(t *testing.T, s store, op idem.Operation, keys int) *world {
	w := newWorld(t, s, op)
	const clients = 6
	for range 3 {
		w.processes = append(w.processes, w.start())
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range 4 * keys {
				key := fmt.Sprint("key-", (n+client)%keys)
				if op.Repeat == idem.NotRepeatable && w.chance(5) {
					w.resolve(key)
				}
				w.call(w.process(int(w.upTo(3))), key)
				time.Sleep(w.upTo(10 * time.Millisecond))
			}
		})
	}
	all.Wait()
	return w
}

// broken are the keys whose histories no register could have.
func (w *world) broken() []register.Broken {
	return w.history.Broken(w.t, func(string) bool { return w.op.Repeat == idem.NotRepeatable })
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
				t.Log(w.history.Counts())
				for _, b := range w.broken() {
					t.Errorf("%s: no order of its operations is right: %s\n%v", b.Key, b.Picture(t), b.Operations)
				}
				require.NotZero(t, w.history.Counts()[register.Ran])
			})
		}
	}
}

// A claim whose reply was lost is taken back, and that may be lost too: it then leaves an open question.
func TestAClaimThatIsNotTakenBack(t *testing.T) {
	w := newWorld(t, memstore.New(), idem.Operation{Name: "register", Repeat: idem.NotRepeatable})
	p := w.start()
	p.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
		if c.Method == idemtest.Withdraw {
			return idemtest.LoseRequest(ctx, c)
		}
		return idemtest.LoseReply(ctx, c)
	})
	w.call(p, "key")
	time.Sleep(lease + 2*margin) // a lease is rounded up
	w.resolve("key")
	require.Equal(t, 1, w.history.Counts()[register.Resolved])
	require.Empty(t, w.broken())
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
	broken := w.broken()
	require.NotEmpty(t, broken)
	require.NoError(t, os.Remove(broken[0].Picture(t)))
}
