package idemtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

var key = idem.Operation{Name: "charge", Repeat: protocol.Repeatable}.Key("acme", "payment-1")

func TestContextIsThatOfAHandler(t *testing.T) {
	ctx := idemtest.Context(t, key)
	h := idemtest.New(t, nil)
	under, err := idem.Do(t.Context(), h.Engine, key, "", func(ctx context.Context, _ string) (string, error) {
		return idem.Token(ctx), nil
	})
	require.NoError(t, err)
	require.Equal(t, under, idem.Token(ctx), "as under a wrapper")
	require.Equal(t, under, idem.Token(idemtest.Context(t, key)), "of every attempt")

	info, ok := idem.InfoOf(ctx)
	require.True(t, ok)
	require.Equal(t, "acme", info.Tenant)
	require.Equal(t, "charge", info.Operation)
	require.Equal(t, 1, info.Attempt)

	seat, err := idem.Step(ctx, "flight", func(ctx context.Context) (string, error) { return idem.Token(ctx), nil }, nil)
	require.NoError(t, err)
	require.NotEqual(t, under, seat, "a step has a token of its own")
	_, err = idem.Step(ctx, "flight", func(ctx context.Context) (string, error) { return "", nil }, nil)
	require.Error(t, err, "a name is used once in an attempt")

	tx := dynamostore.TxOf(ctx)
	tx.Publish("charged", outbox.Message{Destination: "charges", Type: "charged", Body: []byte("1")})
	tx.Put(types.Put{TableName: new("t"), Item: item("a")}, nil)
	require.Equal(t, "charged", dynamostore.TxOf(ctx).Messages()[0].Type)
	require.Equal(t, item("a"), dynamostore.TxOf(ctx).Actions()[0].Put.Item)
}

func item(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// TestContextLivesAsLongAsTheTest: longer than a lease, and no longer.
func TestContextLivesAsLongAsTheTest(t *testing.T) {
	var ctx context.Context
	t.Run("inner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx = idemtest.Context(t, key)
			time.Sleep(10 * idem.DefaultLease)
			require.NoError(t, ctx.Err())
			_, err := idem.Step(ctx, "late", func(context.Context) (string, error) { return "", nil }, nil)
			require.NoError(t, err)
		})
	})
	require.Error(t, ctx.Err())
}

// refusing stands for a test that expects to fail.
type refusing struct {
	testing.TB
}

func (r *refusing) Helper() {}

func (r *refusing) Cleanup(func()) {}

func (r *refusing) Fatalf(format string, args ...any) { panic(errors.New(format)) }

func TestContextOfABadKey(t *testing.T) {
	bad := idem.Operation{Name: "charge"}.Key("acme", "")
	require.Panics(t, func() { idemtest.Context(&refusing{TB: t}, bad) })
	require.Panics(t, func() { idemtest.Context(nil, bad) })
}
