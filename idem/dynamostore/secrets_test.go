package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

var formerSecret, newSecret = []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")

// whole is the table as an export of it would be.
func (f *fixture) whole(t *testing.T) []byte {
	var all []byte
	pages := dynamodb.NewScanPaginator(f.admin, &dynamodb.ScanInput{TableName: &f.table})
	for pages.HasMorePages() {
		p, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range p.Items {
			line, err := json.Marshal(plainItem(it))
			require.NoError(t, err)
			all = append(append(all, line...), '\n')
		}
	}
	return all
}

// plainItem is an item with its values alone.
func plainItem(it item) map[string]any {
	m := map[string]any{}
	for name, a := range it {
		switch a := a.(type) {
		case *types.AttributeValueMemberM:
			m[name] = plainItem(a.Value)
		case *types.AttributeValueMemberB:
			m[name] = string(a.Value)
		default:
			m[name] = a
		}
	}
	return m
}

// A table of operations with secrets has no digest that somebody could have made without them: not
// in a record, its key, its fingerprint, a part, an entry of the history, a message or shadow.
func TestAnExportLetsNobodyGuess(t *testing.T) {
	const value, input = "order-4711", "DE02120300000000202051"
	errBusy := errors.New("busy")
	use := func(d protocol.Digester) []byte {
		f := open(t, nil)
		q := f.questions(t)
		engine, err := idem.New(q, nil)
		require.NoError(t, err)
		do := func(name string, change func(*idem.Operation), fn func(context.Context, string) (string, error)) error {
			op := idem.Operation{Name: name, Secrets: d}
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
		require.NoError(t, reconcile.Resolve(t.Context(), r, idem.Operation{Name: "unknown", Secrets: d}.Key("t", value), "done", reconcile.Change{Actor: "alice", Reason: "a test"}))
		return f.whole(t)
	}
	keyed := use(secrets.New(newSecret))
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

// The rotation over a table: what is under the former secret stays, what is new has moved, and a
// wrong secret fails closed with nothing written.
func TestARotationOverATable(t *testing.T) {
	for _, o := range []*Options{nil, &noTransactions} {
		f := open(t, o)
		ran := 0
		clock := time.Now
		charge := func(s protocol.Digester, value string) (int, error) {
			engine, err := idem.New(f.Store, &idem.Options{Now: func() time.Time { return clock() }})
			require.NoError(t, err)
			return idem.Do(t.Context(), engine, idem.Operation{Name: "charge", Repeat: idem.Repeatable, Secrets: s}.Key("t", value), "input of "+value,
				func(context.Context, string) (int, error) { ran++; return ran, nil })
		}
		is := func(want int, s protocol.Digester, value string) {
			t.Helper()
			got, err := charge(s, value)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		is(1, nil, "plain")
		both := func() protocol.Digester { return secrets.AfterPlain(newSecret, formerSecret) }
		is(1, secrets.AfterPlain(formerSecret), "plain")
		is(2, secrets.AfterPlain(formerSecret), "former")
		is(2, both(), "former")
		is(1, both(), "plain")
		is(3, both(), "new")
		is(3, secrets.AfterPlain(formerSecret, newSecret), "new")
		before := f.whole(t)
		for _, wrong := range []protocol.Digester{secrets.New(newSecret), secrets.New([]byte("a wrong secret of some length")), secrets.AfterPlain([]byte("a wrong secret of some length"), newSecret)} {
			_, err := charge(wrong, "new")
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.ErrorContains(t, err, "which this process does not have")
		}
		_, err := charge(nil, "new")
		require.ErrorIs(t, err, idem.ErrStoreUnavailable, "a process without secrets meets the mark")
		_, err = charge(secrets.AfterPlain(formerSecret), "new")
		require.ErrorContains(t, err, "under a secret that this process does not have")
		require.Equal(t, len(before), len(f.whole(t)))
		require.Equal(t, 3, ran)
		clock = func() time.Time { return time.Now().Add(25 * time.Hour) }
		is(4, both(), "plain")
		is(4, secrets.StillPlain(newSecret, formerSecret), "plain")
	}
}

// A register that cannot be read is none that is absent.
func TestADamagedRegisterFailsClosed(t *testing.T) {
	f := open(t, nil)
	good := protocol.Register{Operation: "charge", Version: 1, Secrets: []protocol.RegisteredSecret{{Check: "a", Since: base}}}
	require.NoError(t, f.SetRegister(t.Context(), base, good))
	got, err := f.Register(t.Context(), "charge")
	require.NoError(t, err)
	require.Equal(t, &good, got)
	whole, err := f.admin.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &f.table, Key: registerKey("charge")})
	require.NoError(t, err)
	list := func(a ...types.AttributeValue) types.AttributeValue { return &types.AttributeValueMemberL{Value: a} }
	for name, change := range map[string]func(item){
		"no version":      func(it item) { delete(it, "changes") },
		"another version": func(it item) { it["changes"] = str("1") },
		"no list":         func(it item) { delete(it, "registered") },
		"an empty list":   func(it item) { it["registered"] = list() },
		"no map":          func(it item) { it["registered"] = list(str("a")) },
		"no check": func(it item) {
			it["registered"] = list(&types.AttributeValueMemberM{Value: item{"created_at": num("1")}})
		},
		"no time": func(it item) { it["registered"] = list(&types.AttributeValueMemberM{Value: item{"checks": str("a")}}) },
	} {
		it := item{}
		for n, a := range whole.Item {
			it[n] = a
		}
		change(it)
		_, err := f.admin.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &f.table, Item: it})
		require.NoError(t, err)
		_, err = f.Register(t.Context(), "charge")
		require.ErrorIs(t, err, protocol.ErrRecordUnreadable, name)
	}
	mark := item{}
	for n, a := range itemKey("t#charge#x", "#") {
		mark[n] = a
	}
	mark["in_state"] = str("moved")
	_, err = f.admin.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &f.table, Item: mark})
	require.NoError(t, err)
	_, err = f.Get(t.Context(), "t#charge#x")
	require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
}
