package limit_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
)

// What the package's documentation says that a limit costs, as DynamoDB counts it.
func TestUnitsOfEachPath(t *testing.T) {
	admin := dynamotest.Client(t)
	table := "limit-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: admin}, table))
	var written, read float64
	client, err := dynamostore.NewClient(aws.Config{APIOptions: []func(*middleware.Stack) error{
		dynamostore.MeterCapacity(table, func(_ context.Context, _ string, w, r float64) { written, read = written+w, read+r }),
	}}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	e, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
	require.NoError(t, err)
	free := idem.Operation{Name: "export", Repeat: idem.Repeatable}
	limited, fresh := free, free
	limited.Limit, fresh.Limit = limit.PerTenant{Open: 60}, limit.PerTenant{New: 1000}
	play := func(op idem.Operation, tenant, value string, write, reads float64) {
		t.Helper()
		written, read = 0, 0
		_, err := idem.Do(t.Context(), e, op.Key(tenant, value), 1, func(context.Context, int) (string, error) { return "done", nil })
		if err != nil {
			require.ErrorIs(t, err, idem.ErrTooMany)
		}
		require.Equal(t, []float64{write, reads}, []float64{written, read}, "write and read units of %s", value)
	}
	hold := func(n int) {
		for i := range n {
			id := limited.Key("acme", fmt.Sprint("held-", i)).ID()
			require.NoError(t, store.TakePlace(t.Context(), time.Now(), protocol.PlaceTaking{ID: id, Attempt: 1, MaxOpen: 60}))
		}
	}
	hold(1)
	play(free, "other", "free", 2, 0)
	play(limited, "acme", "a", 2+2, 1)
	play(limited, "acme", "a", 0, 1) // a replay
	play(free, "other", "free", 1, 0)
	hold(15)
	play(limited, "acme", "b", 2+2, 1)
	hold(35)
	play(limited, "acme", "c", 2+4, 1)
	require.NoError(t, store.TakePlace(t.Context(), time.Now(), protocol.PlaceTaking{ID: fresh.Key("new", "x").ID(), Attempt: 1, MaxNew: 1}))
	play(fresh, "new", "a", 2+1, 1)
	hold(60)
	require.NoError(t, store.CheckPlaces(t.Context(), time.Now().Add(time.Minute), protocol.PlaceCheck{ID: limited.Key("acme", "a").ID()}))
	play(limited, "acme", "refused", 4, 1) // by the size of the item, with 60 places
}
