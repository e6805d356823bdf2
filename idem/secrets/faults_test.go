package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// Whatever becomes of a call of the rotation, nothing runs without it, and the next attempt goes on.
func TestFaultsOfARotation(t *testing.T) {
	for _, m := range []idemtest.Method{idemtest.Register, idemtest.SetRegister, idemtest.Move, idemtest.Acquire} {
		for name, fault := range map[string]idemtest.Fault{
			"reply lost": idemtest.LoseReply, "request lost": idemtest.LoseRequest, "refused": idemtest.Refuse, "denied": idemtest.Deny,
		} {
			r := newRig(t)
			one := r.process(secrets.New(secretA)).runs("one")
			b := r.process(secrets.New(secretB, secretA))
			b.faults.Next(m, fault)
			_, err := b.charge("two")
			require.ErrorIs(t, err, idem.ErrStoreUnavailable, "%s of %s", name, m)
			require.EqualValues(t, 1, r.ran.Load())
			a := r.process(secrets.New(secretA, secretB))
			two := a.runs("two")
			b.replays("two", two)
			b.restart()
			b.replays("two", two)
			b.replays("one", one)
		}
	}
}

// A process dies before and after each of its calls up to its claim.
func TestAProcessDiesInARotation(t *testing.T) {
	for n := 1; n <= 4; n++ { // Register, SetRegister, Move, Acquire
		for _, landed := range []bool{false, true} {
			h := idemtest.New(t, &idem.Options{Observer: func(context.Context, notice.Notice) {}})
			ran := 0
			charge := func(s *secrets.Secrets) []idemtest.Delivery[int] {
				key := idem.Operation{Name: "charge", Repeat: idem.Repeatable, Secrets: s}.Key("t", "4711")
				return idemtest.Deliver(h, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
					return idem.Do(ctx, e, key, 1, func(context.Context, int) (int, error) { ran++; return ran, nil })
				})
			}
			register(t, h.Store, secretA)
			h.CrashAfter(n, landed)
			require.ErrorIs(t, charge(secrets.New(secretB, secretA))[0].Err, idemtest.ErrCrashed)
			require.Zero(t, ran)
			h.Restart()
			h.Clock.Advance(idem.DefaultLease + time.Minute)
			for _, s := range []*secrets.Secrets{secrets.New(secretA, secretB), secrets.New(secretB, secretA), secrets.New(secretC, secretB, secretA)} {
				d := charge(s)[0]
				require.NoError(t, d.Err)
				require.Equal(t, 1, d.Value, "call %d, landed %v", n, landed)
			}
		}
	}
}

// register has the operation used with the secret.
func register(t *testing.T, store protocol.Store, key []byte) {
	e, err := idem.New(store, nil)
	require.NoError(t, err)
	op := idem.Operation{Name: "charge", Repeat: idem.Repeatable, Secrets: secrets.New(key)}
	_, err = idem.Do(t.Context(), e, op.Key("t", "first"), 1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
}

// Processes of three deployments run beside each other, on the same keys, with faults, and each
// key runs once.
func TestDeploymentsBesideEachOther(t *testing.T) {
	const keys, calls = 60, 1500
	stages := [][]func() *secrets.Secrets{
		{func() *secrets.Secrets { return secrets.New(secretA) }, func() *secrets.Secrets { return secrets.New(secretA, secretB) }, func() *secrets.Secrets { return secrets.New(secretB, secretA) }},
		{func() *secrets.Secrets { return secrets.StillPlain(secretB) }, func() *secrets.Secrets { return secrets.AfterPlain(secretB) }, func() *secrets.Secrets { return secrets.AfterPlain(secretC, secretB) }},
		{func() *secrets.Secrets { return secrets.New(secretA, secretB, secretC) }, func() *secrets.Secrets { return secrets.New(secretB, secretC, secretA) }, func() *secrets.Secrets { return secrets.New(secretC, secretA, secretB) }},
	}
	for _, mode := range []idem.Mode{idem.Reserved, idem.Atomic} {
		for i, stage := range stages {
			t.Run(fmt.Sprintf("%d %d", mode, i), func(t *testing.T) {
				r := newRig(t)
				// As in a deployment the oldest comes first.
				require.NoError(t, ignore(r.process(stage[0]()).charge("register")))
				var ps []*process
				for _, s := range stage {
					p := r.process(s())
					p.op.Mode = mode
					p.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
						switch rand.IntN(8) {
						case 0:
							return idemtest.LoseReply(ctx, c)
						case 1:
							return idemtest.LoseRequest(ctx, c)
						case 2:
							return idemtest.Refuse(ctx, c)
						}
						return c.Do(ctx)
					}, idemtest.Register, idemtest.SetRegister, idemtest.Move, idemtest.Get, idemtest.Acquire)
					ps = append(ps, p)
				}
				var mu sync.Mutex
				ran, seen := map[string]int{}, map[string]string{}
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for range calls / 8 {
							p, value := ps[rand.IntN(len(ps))], fmt.Sprint(rand.IntN(keys))
							out, err := idem.Do(t.Context(), p.engine, p.op.Key("t", value), "input", func(context.Context, string) (string, error) {
								mu.Lock()
								defer mu.Unlock()
								ran[value]++
								return fmt.Sprint(value, " by ", ran[value]), nil
							})
							mu.Lock()
							if err == nil {
								if seen[value] == "" {
									seen[value] = out
								}
								if seen[value] != out {
									t.Errorf("key %s: %s, and %s", value, seen[value], out)
								}
							} else if !errors.Is(err, idem.ErrStoreUnavailable) && !errors.Is(err, idem.ErrInFlight) && !errors.Is(err, idem.ErrNotCommitted) {
								t.Errorf("key %s: %v", value, err)
							}
							mu.Unlock()
						}
					})
				}
				all.Wait()
				for value, n := range ran {
					if mode == idem.Reserved {
						require.Equal(t, 1, n, "key %s", value)
					}
				}
				require.Greater(t, len(seen), keys/2)
				// Nobody has a record of its own beside the one that others have.
				live := 0
				for _, rec := range r.store.Records() {
					if rec.State == protocol.Completed {
						live++
					}
				}
				require.LessOrEqual(t, live, len(ran)+1)
				require.GreaterOrEqual(t, live, len(seen))
			})
		}
	}
}

func ignore(_ string, err error) error { return err }
