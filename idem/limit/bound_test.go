package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
)

// 64 callers of eight processes and a bound of ten: what is open at once is counted in the table.
func TestNeverMoreAreOpenThanTheBound(t *testing.T) {
	const callers, processes, bound = 64, 8, 10
	for name, made := range stores {
		t.Run(name, func(t *testing.T) {
			store, records := made(t)
			op := idem.Operation{Name: "export", Repeat: idem.Repeatable, Limit: limit.PerTenant{Open: bound}}
			var most, ran, holding atomic.Int64
			var engines []*idem.Engine
			for range processes {
				e, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
				require.NoError(t, err)
				engines = append(engines, e)
			}
			full, turnedAway := make(chan struct{}), make(chan struct{})
			ends := newBell()
			var once, first sync.Once
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					value := fmt.Sprint("order-", i)
					for idle := 0; idle < 60; {
						ended := ends.next()
						_, err := idem.Do(context.Background(), engines[i%processes], op.Key("acme", value), i, func(context.Context, int) (int, error) {
							if holding.Add(1) == bound {
								once.Do(func() { close(full) })
							}
							<-full // all places are taken at least once, and somebody has asked for one more
							<-turnedAway
							n := int64(open(records()))
							for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
							}
							holding.Add(-1)
							if ran.Add(1)%3 == 0 {
								return 0, errPlain // released
							}
							return i, nil
						})
						if !errors.Is(err, idem.ErrTooMany) {
							ends.ring()
						}
						switch {
						case err == nil:
							return
						case errors.Is(err, idem.ErrTooMany):
							first.Do(func() { close(turnedAway) })
							select {
							case <-ended:
								idle = 0
							case <-time.After(time.Second): // a look may have found a place
								idle++
							}
						case !errors.Is(err, errPlain):
							t.Errorf("%s: %v", value, err)
							return
						}
					}
					t.Errorf("%s: there is no place, and no call has ended for a minute", value)
				})
			}
			wg.Wait()
			require.EqualValues(t, bound, most.Load())
			all := records()
			require.Len(t, all, callers, "nothing is recorded of a refusal")
			require.Zero(t, open(all))
		})
	}
}

// bell wakes up all that wait for its next ring.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

func newBell() *bell { return &bell{c: make(chan struct{})} }

func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}

// Processes die, replies and requests are lost and come late, in any order.
func TestTheBoundHoldsUnderRandomFaults(t *testing.T) {
	for seed := range uint64(300) {
		// The queues of the processes write beside the calls.
		var mu sync.Mutex
		src := rand.New(rand.NewPCG(seed, 7))
		pick := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return src.IntN(n)
		}
		r := newRig(t, 2)
		ops := []idem.Operation{r.of(idem.Repeatable), r.of(idem.Repeatable), r.of(idem.NotRepeatable)}
		ops[0].Retention = time.Minute
		var late []*idemtest.Call
		ps := []*process{r.process(), r.process(), r.process()}
		for range 60 {
			i := pick(len(ps))
			p, next := ps[i], ps[(i+1)%len(ps)]
			other := func() {
				_ = next.do(ops[pick(len(ops))], fmt.Sprint(pick(5)), nil)
			}
			for _, m := range []idemtest.Method{idemtest.Get, idemtest.TakePlace, idemtest.Acquire, idemtest.Finish, idemtest.ReturnPlace, idemtest.Withdraw, idemtest.CheckPlaces} {
				switch pick(12) {
				case 0:
					p.faults.Next(m, idemtest.LoseReply)
				case 1:
					p.faults.Next(m, idemtest.LoseRequest)
				case 2:
					p.faults.Next(m, func(_ context.Context, c *idemtest.Call) error {
						mu.Lock()
						defer mu.Unlock()
						late = append(late, c)
						return c.Lost()
					})
				case 3: // another process calls before
					p.faults.Next(m, func(ctx context.Context, c *idemtest.Call) error { other(); return c.Do(ctx) })
				case 4: // or after
					p.faults.Next(m, func(ctx context.Context, c *idemtest.Call) error {
						err := c.Do(ctx)
						other()
						return err
					})
				}
			}
			value := fmt.Sprint(pick(5))
			handler := []error{nil, errPlain, idem.Permanent(errPlain)}[pick(3)]
			_ = p.do(ops[pick(len(ops))], value, func(context.Context) error {
				other()
				return handler
			})
			if pick(3) == 0 {
				mu.Lock()
				var c *idemtest.Call
				if len(late) > 0 {
					at := src.IntN(len(late))
					c = late[at]
					late = slices.Delete(late, at, at+1)
				}
				mu.Unlock()
				if c != nil {
					_ = c.Do(context.Background())
				}
			}
			r.clock.Advance(time.Duration(pick(90)) * time.Second)
			if pick(8) == 0 {
				ps[pick(len(ps))] = r.process() // one has died
			}
		}
		require.LessOrEqual(t, r.peak(), 2, "seed %d", seed)
	}
}
