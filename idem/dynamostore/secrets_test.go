package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

var aSecret = []byte("0123456789abcdef0123456789abcdef")

// A table of operations with a secret has no digest that could be made without them: not
// in a record, its key, its fingerprint, a part, an entry of the history, a message or shadow.
func TestAnExportAllowsNoGuessing(t *testing.T) {
	const value, input = "order-4711", "DE02120300000000202051"
	errBusy := errors.New("busy")
	use := func(v protocol.Values) []byte {
		f := open(t, nil)
		q := f.adminStore(t)
		engine := must(idem.New(q, nil))
		do := func(name string, change func(*idem.Operation), fn func(context.Context, string) (string, error)) error {
			op := idem.Operation{Name: name, Values: v}
			if change != nil {
				change(&op)
			}
			_, err := idem.Do(t.Context(), engine, op.Key("t", value), input, fn)
			return err
		}
		require.NoError(t, do("large", nil,
			func(context.Context, string) (string, error) { return string(noise(500 << 10)), nil }))
		require.NoError(t, do("shadow", func(o *idem.Operation) { o.Shadow = true },
			func(context.Context, string) (string, error) { return "", nil }))
		require.NoError(t, do("message", nil, func(ctx context.Context, _ string) (string, error) {
			TxOf(ctx).Publish("ordered", outbox.Message{Destination: "d", Type: "t", Body: []byte("{}")})
			return "", nil
		}))
		require.ErrorIs(t, do("unknown", nil, func(ctx context.Context, _ string) (string, error) {
			if _, err := idem.Step(ctx, "one",
				func(context.Context) (string, error) { return string(noise(5 << 10)), nil }, nil); err != nil {
				return "", err
			}
			return "", errBusy
		}), errBusy)
		r := must(reconcile.New(q, nil))
		require.NoError(t, reconcile.Resolve(t.Context(),
			r, idem.Operation{Name: "unknown", Values: v}.Key("t", value), "done",
			reconcile.Change{Actor: "alice", Reason: "a test"}))
		return f.export(t)
	}
	keyed := use(secrets.New(aSecret))
	plain := use(nil)
	of := func(text string) (all []string) {
		sum := sha256.Sum256([]byte(text))
		return append(all, base64.RawURLEncoding.EncodeToString(sum[:]), base64.RawStdEncoding.EncodeToString(sum[:]),
			hex.EncodeToString(sum[:]), strings.ToUpper(hex.EncodeToString(sum[:])), text)
	}
	for _, digest := range append(of(value), of(input)...) {
		require.NotContains(t, string(keyed), digest)
	}
	require.True(t, bytes.Contains(plain, []byte(of(value)[0])), "the test finds what it looks for")
	// The fingerprint is of the input's canonical form.
	f := open(t, nil)
	key := idem.Operation{Name: "fingerprint"}.Key("t", value)
	_, err := idem.Do(t.Context(), f.engine(), key, input,
		func(context.Context, string) (string, error) { return "", nil })
	require.NoError(t, err)
	unkeyed := []byte(f.get(t, key.ID()).Fingerprint)
	require.True(t, bytes.Contains(plain, unkeyed))
	require.False(t, bytes.Contains(keyed, unkeyed))
}

// export is everything that the table holds: its names, its texts, and its binary values as they
// are and decompressed.
func (f *fixture) export(t *testing.T) []byte {
	t.Helper()
	var all bytes.Buffer
	var write func(a types.AttributeValue)
	write = func(a types.AttributeValue) {
		switch a := a.(type) {
		case *types.AttributeValueMemberS:
			all.WriteString(a.Value)
		case *types.AttributeValueMemberN:
			all.WriteString(a.Value)
		case *types.AttributeValueMemberBOOL:
		case *types.AttributeValueMemberB:
			all.Write(a.Value)
			if plain, err := unzipped(a.Value); err == nil {
				all.WriteByte('\n')
				all.Write(plain)
			}
		case *types.AttributeValueMemberL:
			for _, e := range a.Value {
				write(e)
			}
		case *types.AttributeValueMemberM:
			for _, name := range sorted(a.Value) {
				all.WriteString("\n" + name + "=")
				write(a.Value[name])
			}
		default:
			require.Fail(t, "unknown kind", "%T", a)
		}
		all.WriteByte('\n')
	}
	pages := dynamodb.NewScanPaginator(f.admin, &dynamodb.ScanInput{TableName: &f.table})
	for pages.HasMorePages() {
		out, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range out.Items {
			write(&types.AttributeValueMemberM{Value: it})
		}
	}
	return all.Bytes()
}

// writings are the ways in which a text may be written: as it is, in hexadecimal, percent-encoded,
// as JSON, backwards, and in base64, whose middle is the same whatever stands before it.
func writings(s string) map[string]string {
	encoded, _ := json.Marshal(s)
	back := []byte(s)
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	all := map[string]string{
		"plain": s, "hex": hex.EncodeToString([]byte(s)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(s))),
		"path": url.PathEscape(s), "query": url.QueryEscape(s), "json": strings.Trim(string(encoded), `"`),
		"backwards": string(back),
	}
	for n := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding,
			"base64url": base64.RawURLEncoding} {
			text := enc.EncodeToString([]byte(strings.Repeat("x", n) + s))
			all[name+strings.Repeat("+", n)] = text[4 : len(text)-4]
		}
	}
	return all
}

// Nothing of value, input and results can be read in an export of a table whose results are sealed.
func TestAnExportShowsNothingOfWhatIsSealed(t *testing.T) {
	t.Parallel()
	const value, input, small, step = "order<4711>for:jane.doe@example.com", "iban:DE02120300000000202051/EUR",
		"balance of Jane Döe: 1,234.56", "ticket?row=7&seat=19/Jane"
	large := strings.Repeat("statement of Jane Döe, page ", 4000) + string(noise(40<<10))
	errBusy := errors.New("busy")
	use := func(t *testing.T, o *Options) []byte {
		f := open(t, o)
		engine := f.engine()
		for name, result := range map[string]string{"small": small, "large": large} {
			_, err := idem.Do(t.Context(), engine, idem.Operation{Name: name}.Key("t", value), input,
				func(context.Context, string) (string, error) { return result, nil })
			require.NoError(t, err)
		}
		_, err := idem.Do(t.Context(), engine, idem.Operation{Name: "steps"}.Key("t", value), input,
			func(ctx context.Context, _ string) (string, error) {
				for name, result := range map[string]string{"one": step, "two": large} {
					if _, err := idem.Step(ctx, name, func(context.Context) (string, error) { return result, nil }, nil); err != nil {
						return "", err
					}
				}
				return "", idem.NotExecuted(errBusy)
			})
		require.ErrorIs(t, err, errBusy)
		for name, in := range map[string]string{"june": input, "july": strings.ToValidUTF8(large, ".")} {
			got, err := later.Accept[string](t.Context(), engine, idem.Operation{Name: name}.Key("t", value), in, nil)
			require.NoError(t, err)
			require.Equal(t, idem.Pending, got.Outcome.RecordState)
		}
		return f.export(t)
	}
	sealed, plain := use(t, sealing(newGCM(t, 1))), use(t, &patient)
	for name, s := range map[string]string{"value": value, "input": input, "small result": small,
		"large result": large[:40], "step": step} {
		for how, text := range writings(s) {
			require.False(t, bytes.Contains(sealed, []byte(text)), "%s, %s", name, how)
		}
	}
	require.True(t, bytes.Contains(sealed, []byte("busy")), "the texts of errors are for operators, and are not encrypted")
	for _, s := range []string{small[:16], large[:20], "seat=19", input} {
		require.True(t, bytes.Contains(plain, []byte(s)), "without a sealer the export has %q", s)
	}
}
