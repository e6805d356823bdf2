package dynamostore

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance(t, &patient)
}

func TestConformanceWithoutTransactions(t *testing.T) {
	t.Parallel()
	conformance(t, &noTransactions)
}

// aloneDiffers are groups of cases with changes that have an audit entry: only those differ
// without transactions, but for units of work, which are refused.
var aloneDiffers = []string{"questions", "prolonged"}

// sealedDiffers are those in which results are written or read.
var sealedDiffers = []string{"result", "added result", "late outcome", "step", "accept", "settle", "commit",
	"unreadable", "copy"}

// ownTable are groups that list all that there is. The other ones share a table.
var ownTable = []string{"questions", "scan"}

func conformance(t *testing.T, o *Options) {
	t.Helper()
	shared := open(t, o)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		_, group, _ := strings.Cut(t.Name(), "/")
		group, _, _ = strings.Cut(group, "/")
		group = strings.ReplaceAll(group, "_", " ")
		differs := []string{group}
		switch {
		case o.Sealer != nil:
			differs = sealedDiffers
		case o.WithoutTransactions:
			differs = aloneDiffers
		}
		if group != "" && os.Getenv("IDEM_LONG") != "1" && !slices.Contains(differs, group) {
			t.Skip("none of its requests differs from those of TestConformance and of other groups: IDEM_LONG=1 runs it")
		}
		f := shared
		if slices.Contains(ownTable, group) {
			f = open(t, o)
		}
		q := f.adminStore(t)
		q.Store.client = indexed{t, q.Store.client}
		h := storetest.Harness{
			Parallel: true, Store: q, Scanner: f.scanner(),
			Delete: func(ctx context.Context, id string) error {
				_, err := f.admin.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &f.table, Key: key(id)})
				return err
			},
			MaxResult: DefaultMaxResult,
		}
		h.Unit = func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
			tx, pk := new(Tx), "business-"+rand.Text()
			tx.Put(types.Put{TableName: &f.table, Item: key(pk)}, nil)
			return tx, func(context.Context) (bool, error) { return len(f.raw(t, pk)) > 0, nil }, tx.Err()
		}
		if o.WithoutTransactions {
			h.Unit = nil
		}
		record := func(name string, damage func(item)) {
			h.Damages = append(h.Damages, storetest.Damage{Name: name, Do: func(_ context.Context, id string) error {
				f.change(t, id, damage)
				return nil
			}})
		}
		record("newer version", func(it item) { it[schema.Version] = num("2") })
		record("unknown state", func(it item) { it[schema.State] = str("done") })
		record("no fingerprint", func(it item) { delete(it, schema.Fingerprint) })
		part := func(name string, damage func(pk string, it item)) {
			h.Damages = append(h.Damages, storetest.Damage{Name: name, Parts: true,
				Do: func(_ context.Context, id string) error {
					rec := f.get(t, id)
					require.NotZero(t, rec.Body.Parts)
					pk := partKeyPrefix(id, rec.Owner, rec.Body.Digest) + "0"
					damage(pk, f.raw(t, pk))
					return nil
				}})
		}
		data := func(it item) []byte { return it[schema.Data].(*types.AttributeValueMemberB).Value }
		part("part deleted", func(pk string, _ item) { f.remove(t, pk) })
		part("part cut short", func(pk string, it item) {
			f.change(t, pk, func(it2 item) { it2[schema.Data] = &types.AttributeValueMemberB{Value: data(it)[1:]} })
		})
		part("part altered", func(pk string, it item) {
			b := data(it)
			b[len(b)/2] ^= 1
			f.change(t, pk, func(it2 item) { it2[schema.Data] = &types.AttributeValueMemberB{Value: b} })
		})
		return h
	})
}

var _ protocol.Store = (*fixture)(nil)

// indexed requires of each record that is read that it is in the index exactly if something is due,
// under its shard, and that no open question expires or is missing there.
type indexed struct {
	t *testing.T
	Client
}

func (c indexed) GetItem(ctx context.Context, in *dynamodb.GetItemInput,
	o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	out, err := c.Client.GetItem(ctx, in, o...)
	if err != nil || len(out.Item) == 0 {
		return out, err
	}
	if rec, damaged := decode(out.Item); damaged == nil {
		want := ""
		if !rec.Due.IsZero() {
			want = questionShard(rec.ID)
		}
		got := text(out.Item, schema.OpenShard)
		if want != "" && rec.State == protocol.InProgress && got == claimShard(rec.ID) {
			want = got // or a sweep has postponed it, or it was claimed over a question
		}
		require.Equal(c.t, want, text(out.Item, schema.OpenShard), "%+v", rec)
		require.False(c.t, rec.Open() && (want == "" || !rec.ExpiresAt.IsZero()), "%+v", rec)
	}
	return out, nil
}
