package sweeping

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/internal/kmstest"
)

// A sweep of encrypted records needs no key, unless a probe knows a result: that one is encrypted too, or
// not recorded.
func TestASweepOfEncryptedRecords(t *testing.T) {
	deployed(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "idemlocal")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "idemlocal")
	t.Setenv(schema.EnvEndpoint, dynamotest.Endpoint(t))
	table := "sweeping-" + rand.Text()
	t.Setenv(schema.EnvTable, table)
	keys := kmstest.New(t)
	t.Setenv("AWS_ENDPOINT_URL_SQS", keys.URL) // which knows no queue
	seal := func(aws.Config) (dynamostore.Sealer, error) {
		return kmsseal.New(keys.Client(), kmsseal.Options{Key: "alias/results"})
	}
	client := dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	sealer, err := seal(aws.Config{})
	require.NoError(t, err)
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: sealer})
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute})
	require.NoError(t, err)
	refund, charge, payout := idem.Operation{Name: "refund"}, idem.Operation{Name: "charge"}, idem.Operation{Name: "payout"}
	errCut := errors.New("cut")
	park := func(op idem.Operation) {
		_, err := idem.Do(t.Context(), engine, op.Key("acme", "1"), 1, func(context.Context, int) (string, error) { return "", errCut })
		require.ErrorIs(t, err, errCut)
	}
	metrics, err := emf.New(&emf.Options{Service: "sweeper", Out: io.Discard})
	require.NoError(t, err)
	sweep := func(seal func(aws.Config) (dynamostore.Sealer, error)) {
		f, err := open(t.Context(), seal, func(idem.Store) (all []reconcile.Operation, err error) {
			for _, op := range []idem.Operation{refund, charge, payout} {
				all = append(all, reconcile.Operation{Operation: op, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					if op.Name == charge.Name {
						return reconcile.CompletedWithoutResult(), nil
					}
					return reconcile.CompletedWith("re_4711"), nil
				}})
			}
			return all, nil
		}, metrics)
		require.NoError(t, err)
		_, err = f.sweep(t.Context())
		require.NoError(t, err)
	}
	recorded := func(op idem.Operation) *idem.Record {
		rec, err := store.Get(t.Context(), op.Key("acme", "1").ID())
		require.NoError(t, err)
		return rec
	}
	park(refund)
	park(charge)
	keys.Made()
	sweep(nil)
	require.Equal(t, idem.Unknown, recorded(refund).State, "people have the key")
	require.Equal(t, idem.Completed, recorded(charge).State)
	require.NotContains(t, keys.Made(), "GenerateDataKey")

	park(payout)
	sweep(seal)
	rec := recorded(payout)
	require.Equal(t, idem.Completed, rec.State)
	require.NotContains(t, string(rec.Body.Data), "re_4711")
	got, err := idem.Do(t.Context(), engine, payout.Key("acme", "1"), 1, func(context.Context, int) (string, error) { return "again", nil })
	require.NoError(t, err)
	require.Equal(t, "re_4711", got)
}
