package limit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
)

// limitedQuestions is a limited store that answers questions as the one below does.
type limitedQuestions struct {
	protocol.Store
	protocol.AdminStore
}

func TestConformance(t *testing.T) {
	generous := map[string]limit.PerTenant{"charge": {Keys: 1_000_000, Window: limit.MaxWindow}}
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		below := memstore.New()
		s, err := limit.Over(below, generous)
		require.NoError(t, err)
		return storetest.Harness{
			Store: limitedQuestions{s, below}, Scanner: below,
			Delete: func(_ context.Context, id string) error { below.Delete(id); return nil },
		}
	})
}

// table makes a table in DynamoDB, and a store that counts what it uses of it.
func table(t *testing.T) (store *dynamostore.Store, written, read *float64) {
	t.Helper()
	name := "limit-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: dynamotest.Client(t)}, name))
	written, read = new(float64), new(float64)
	var mu sync.Mutex
	ask := dynamostore.MeterCapacity(name, func(_ context.Context, _ string, w, r float64) {
		mu.Lock()
		defer mu.Unlock()
		*written, *read = *written+w, *read+r
	})
	client, err := dynamostore.NewClient(aws.Config{APIOptions: []func(*middleware.Stack) error{ask}},
		&dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	store, err = dynamostore.New(client, name, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	return store, written, read
}

// engine is a process over the table. Its clock stands still, so that the window does not end.
func engine(t *testing.T, below protocol.Store, keys int) *idem.Engine {
	t.Helper()
	s, err := limit.Over(below, map[string]limit.PerTenant{"export": {Keys: keys, Window: time.Minute}})
	require.NoError(t, err)
	e, err := idem.New(s, &idem.Options{
		ClaimBudget: time.Minute, FinishBudget: time.Minute, Now: func() time.Time { return noon },
	})
	require.NoError(t, err)
	return e
}

// 64 callers of eight processes begin new keys at once: as many as the limit says run.
func TestTheBoundIsExact(t *testing.T) {
	const callers, processes, bound = 64, 8, 10
	for name, open := range map[string]func(t *testing.T) protocol.Store{
		"memstore":    func(*testing.T) protocol.Store { return memstore.New() },
		"dynamostore": func(t *testing.T) protocol.Store { s, _, _ := table(t); return s },
	} {
		for mode, op := range map[string]idem.Operation{"reserved": export, "atomic": move} {
			t.Run(name+" "+mode, func(t *testing.T) {
				below := open(t)
				var engines []*idem.Engine
				for range processes {
					engines = append(engines, engine(t, below, bound))
				}
				var done, refused, down atomic.Int64
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						_, err := idem.Do(context.Background(), engines[i%processes], op.Key("acme", fmt.Sprint(i)), i,
							func(context.Context, int) (int, error) { return i, nil })
						switch {
						case err == nil:
							done.Add(1)
						case errors.Is(err, idem.ErrLimitExceeded):
							refused.Add(1)
						case errors.Is(err, idem.ErrStoreUnavailable): // on a busy machine: it may have counted
							down.Add(1)
						default:
							t.Error(err)
						}
					})
				}
				all.Wait()
				require.LessOrEqual(t, done.Load(), int64(bound))
				require.GreaterOrEqual(t, done.Load()+down.Load(), int64(bound))
				require.EqualValues(t, callers, done.Load()+refused.Load()+down.Load())
			})
		}
	}
}

// What the package's documentation says that a limit costs, as DynamoDB counts it.
func TestUnitsOfEachPath(t *testing.T) {
	store, written, read := table(t)
	e := engine(t, store, 2)
	play := func(op idem.Operation, value string, writes, reads float64) {
		t.Helper()
		*written, *read = 0, 0
		_, err := idem.Do(t.Context(), e, op.Key("acme", value), 1, done)
		if err != nil {
			require.ErrorIs(t, err, idem.ErrLimitExceeded)
		}
		require.Equal(t, []float64{writes, reads}, []float64{*written, *read}, "write and read units of %s", value)
	}
	free := idem.Operation{Name: "free", Repeat: idem.Repeatable}
	play(free, "a", 2, 0)
	play(free, "a", 1, 0)
	play(export, "a", 2+1, 1)
	play(export, "a", 0, 1)
	play(move, "b", 1+1, 2)
	play(export, "over", 1, 1)
}
