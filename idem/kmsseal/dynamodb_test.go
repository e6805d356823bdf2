package kmsseal

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/kmstest"
)

// Over a table: without KMS nothing runs, and another key than the one that was written with reads
// nothing and runs nothing.
func TestOverATable(t *testing.T) {
	t.Parallel()
	service := kmstest.New(t)
	keys := service.Client()
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	table := "kmsseal-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: dynamotest.Client(t)}, table))
	ran := 0
	engine := func(key string) *idem.Engine {
		store, err := dynamostore.New(client, table, &dynamostore.Options{
			AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: open(t, keys, Options{Key: key}),
		})
		require.NoError(t, err)
		e, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
		require.NoError(t, err)
		return e
	}
	run := func(e *idem.Engine) (string, error) {
		return idem.Do(t.Context(), e, idem.Operation{Name: "pay", Repeat: idem.Repeatable}.Key("t", "k"), 1,
			func(context.Context, int) (string, error) { ran++; return "paid", nil })
	}
	service.Breaks(func(string) (int, string) { return 400, "AccessDeniedException" })
	_, err = run(engine("alias/results"))
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.ErrorContains(t, err, "AccessDeniedException")
	require.Zero(t, ran, "whose result could not be encrypted")
	service.Breaks(nil)
	got, err := run(engine("alias/results"))
	require.NoError(t, err)
	require.Equal(t, "paid", got)

	got, err = run(engine("alias/results"))
	require.NoError(t, err)
	require.Equal(t, "paid", got)
	_, err = run(engine("alias/other"))
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
	service.Breaks(func(string) (int, string) { return 500, "KMSInternalException" })
	_, err = run(engine("alias/results"))
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.NotErrorIs(t, err, idem.ErrRecordUnreadable)
	require.Equal(t, 1, ran)
}
