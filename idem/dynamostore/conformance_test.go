package dynamostore

import (
	"context"
	"os"
	"slices"
	"strconv"
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

// aloneDiffers are groups of cases that have every request in which a store without
// transactions differs: changes from outside, claims of expired records, units of work.
var aloneDiffers = []string{"lost reply", "write id", "commit", "settle", "questions", "prolonged", "random"}

// sealedDiffers are those in which results are written or read.
var sealedDiffers = []string{"result", "added result", "late outcome", "step", "accept", "settle", "commit", "unreadable", "copy"}

func conformance(t *testing.T, o *Options) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		_, group, _ := strings.Cut(t.Name(), "/")
		group, _, _ = strings.Cut(group, "/")
		var differs []string
		switch {
		case o.Sealer != nil:
			differs = sealedDiffers
		case o.WithoutTransactions:
			differs = aloneDiffers
		default:
			group = "" // all
		}
		if group != "" && os.Getenv("IDEM_LONG") != "1" && !slices.Contains(differs, strings.ReplaceAll(group, "_", " ")) {
			t.Skip("none of its requests differs from those of TestConformance and of other groups: IDEM_LONG=1 runs it")
		}
		f := open(t, o)
		h := storetest.Harness{
			Parallel: true, Store: f.adminStore(t), Scanner: f.scanner(t),
			Delete: func(ctx context.Context, id string) error {
				_, err := f.admin.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &f.table, Key: key(id)})
				return err
			},
			MaxResult: DefaultMaxResult,
		}
		n := 0
		h.Unit = func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
			n++
			tx, pk := new(Tx), "business-"+strconv.Itoa(n)
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
			h.Damages = append(h.Damages, storetest.Damage{Name: name, Parts: true, Do: func(ctx context.Context, id string) error {
				rec, err := f.Get(ctx, id)
				require.NoError(t, err)
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
