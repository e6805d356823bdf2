package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

var aSecret, anotherSecret = []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")

// A table of operations with a secret has no digest that somebody could have made without them: not
// in a record, its key, its fingerprint, a part, an entry of the history, a message or shadow.
func TestAnExportLetsNobodyGuess(t *testing.T) {
	const value, input = "order-4711", "DE02120300000000202051"
	errBusy := errors.New("busy")
	use := func(v protocol.Values) []byte {
		f := open(t, nil)
		q := f.adminStore(t)
		engine, err := idem.New(q, nil)
		require.NoError(t, err)
		do := func(name string, change func(*idem.Operation), fn func(context.Context, string) (string, error)) error {
			op := idem.Operation{Name: name, Values: v}
			if change != nil {
				change(&op)
			}
			_, err := idem.Do(t.Context(), engine, op.Key("t", value), input, fn)
			return err
		}
		require.NoError(t, do("large", nil, func(context.Context, string) (string, error) { return string(noise(500 << 10)), nil }))
		require.NoError(t, do("shadow", func(o *idem.Operation) { o.Shadow = true }, func(context.Context, string) (string, error) { return "", nil }))
		require.NoError(t, do("message", nil, func(ctx context.Context, _ string) (string, error) {
			TxOf(ctx).Publish("told", outbox.Message{Destination: "d", Type: "t", Body: []byte("{}")})
			return "", nil
		}))
		require.ErrorIs(t, do("unknown", nil, func(ctx context.Context, _ string) (string, error) {
			if _, err := idem.Step(ctx, "one", func(context.Context) (string, error) { return string(noise(5 << 10)), nil }, nil); err != nil {
				return "", err
			}
			return "", errBusy
		}), errBusy)
		r, err := reconcile.New(q, nil)
		require.NoError(t, err)
		require.NoError(t, reconcile.Resolve(t.Context(), r, idem.Operation{Name: "unknown", Values: v}.Key("t", value), "done",
			reconcile.Change{Actor: "alice", Reason: "a test"}))
		return f.export(t)
	}
	keyed := use(secrets.New(aSecret))
	plain := use(nil)
	of := func(text string) (all []string) {
		sum := sha256.Sum256([]byte(text))
		return append(all, base64.RawURLEncoding.EncodeToString(sum[:]), base64.RawStdEncoding.EncodeToString(sum[:]), hex.EncodeToString(sum[:]), strings.ToUpper(hex.EncodeToString(sum[:])), text)
	}
	for _, digest := range append(of(value), of(input)...) {
		require.NotContains(t, string(keyed), digest)
	}
	require.True(t, bytes.Contains(plain, []byte(of(value)[0])), "the test finds what it looks for")
	// The fingerprint is of the input's canonical form.
	f := open(t, nil)
	engine, err := idem.New(f.Store, nil)
	require.NoError(t, err)
	key := idem.Operation{Name: "fingerprint"}.Key("t", value)
	_, err = idem.Do(t.Context(), engine, key, input, func(context.Context, string) (string, error) { return "", nil })
	require.NoError(t, err)
	rec, err := f.Get(t.Context(), key.ID())
	require.NoError(t, err)
	require.True(t, bytes.Contains(plain, []byte(rec.Fingerprint)))
	require.False(t, bytes.Contains(keyed, []byte(rec.Fingerprint)))
}

// A wrong secret fails closed over a table, with nothing written, also where results are encrypted or
// the table has no transactions.
func TestAWrongSecretFailsClosedOverATable(t *testing.T) {
	for name, o := range map[string]*Options{"plain": nil, "no transactions": &noTransactions, "sealed": sealing(newGCM(t, 1))} {
		f := open(t, o)
		ran := 0
		charge := func(v protocol.Values, value string) (int, error) {
			engine, err := idem.New(f.Store, nil)
			require.NoError(t, err)
			return idem.Do(t.Context(), engine, idem.Operation{Name: "charge", Repeat: idem.Repeatable, Values: v}.Key("t", value), "input of "+value,
				func(context.Context, string) (int, error) { ran++; return ran, nil })
		}
		is := func(want int, value string) {
			t.Helper()
			got, err := charge(secrets.New(aSecret), value)
			require.NoError(t, err, name)
			require.Equal(t, want, got)
		}
		is(1, "one")
		is(1, "one")
		is(2, "two")
		before := f.export(t)
		for _, value := range []string{"one", "three"} {
			_, err := charge(secrets.New(anotherSecret), value)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.ErrorContains(t, err, "under another secret than this process has")
		}
		require.Equal(t, before, f.export(t))
		require.Equal(t, 2, ran)
		check, err := f.admin.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &f.table, Key: key("#charge#")})
		require.NoError(t, err)
		require.NotContains(t, check.Item, "expires_at", "TTL does not delete it")
		require.NotContains(t, check.Item, "open_due", "it is no open question")
		// One that cannot be read is none that is absent.
		delete(check.Item, "fp")
		f.put(t, check.Item)
		_, err = charge(secrets.New(aSecret), "four")
		require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
		require.Equal(t, 2, ran)
	}
}
