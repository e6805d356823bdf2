package dynamostore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
)

// A ledger scans a table of several pages, reads large results with a call each, and writes nothing.
func TestALedgerComparesATable(t *testing.T) {
	const all = 500
	type result struct {
		Amount string
		More   []byte
	}
	f := open(t, nil)
	day := base.Truncate(24 * time.Hour)
	at := func(n int) time.Time { return day.Add(time.Duration(n) * time.Minute) }
	refund := idem.Operation{Name: "refund", Retention: 72 * time.Hour}
	entries := make([]ledger.Entry, all)
	var g errgroup.Group
	g.SetLimit(8)
	for n := range all {
		g.Go(func() error {
			o := unhurried
			o.Now = func() time.Time { return at(n) }
			engine := must(idem.New(f.Store, &o))
			_, err := idem.Do(t.Context(), engine, refund.Key(fmt.Sprint("tenant-", n%7), fmt.Sprint("r-", n)), n,
				func(ctx context.Context, n int) (result, error) {
					e := ledger.Entry{Token: idem.Token(ctx), Ref: fmt.Sprint("re_", n), Value: fmt.Sprint(n, " EUR"), At: at(n)}
					entries[n] = e
					if n == 5 {
						return result{}, errors.New("the connection broke")
					}
					size := 2500 // compressed, in the record
					if n == 6 {
						size = 30_000 // lies in parts
					}
					return result{e.Value, noise(size)}, idem.SetReference(ctx, e.Ref)
				})
			if n == 5 {
				return nil
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	entries[1].Value, entries[6].Value = "1000 EUR", "6000 EUR"
	doubled := entries[4]
	doubled.Ref, doubled.At = "re_4b", doubled.At.Add(time.Second)
	byHand := ledger.Entry{Ref: "re_by_hand", Value: "7 EUR", At: at(3)}
	entries = append(slices.Delete(entries, 2, 3), doubled, byHand)
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	before := f.everything(t)

	l, err := ledger.New(must(NewScanner(f.clientAs(asLedger), f.table, f.o)), ledger.Options{
		Operation: "refund", Now: func() time.Time { return day.Add(28 * time.Hour) }, Rate: 1e6,
		Entries: func(context.Context, time.Time, time.Time) iter.Seq2[ledger.Entry, error] {
			return func(yield func(ledger.Entry, error) bool) {
				for _, e := range entries {
					if !yield(e, nil) {
						return
					}
				}
			}
		},
		Expect: func(ctx context.Context, rec ledger.Record) (ledger.Expected, error) {
			var r result
			body, err := rec.Result(ctx)
			if err == nil {
				err = json.Unmarshal(body, &r)
			}
			return ledger.Expected{Effect: true, Value: r.Amount}, err
		},
	})
	require.NoError(t, err)
	f.wire.calls() // of the handlers
	var got []string
	report, err := l.Compare(t.Context(), day, day.Add(24*time.Hour), func(found ledger.Finding) error {
		if found.Kind == ledger.Complete {
			return nil
		}
		s := string(found.Kind)
		for _, e := range []*ledger.Entry{found.Here, found.There} {
			if e != nil {
				s += " " + e.Ref + "/" + e.Value
			}
		}
		got = append(got, s)
		return nil
	})
	require.NoError(t, err)
	slices.Sort(got)
	require.Equal(t, []string{
		"different re_1/1 EUR re_1/1000 EUR", "different re_6/6 EUR re_6/6000 EUR", "doubled re_4/4 EUR re_4b/4 EUR",
		"missing_here / re_5/5 EUR", "missing_here re_by_hand/7 EUR", "missing_there re_2/2 EUR",
	}, got)
	require.Equal(t, []int{all - 2, all, all + 1}, []int{report.Compared, report.Records, report.Entries})
	require.Greater(t, report.Units, 150.0, "half a unit for each 4 KB")
	calls := f.wire.calls()
	require.GreaterOrEqual(t, len(calls), 3)
	for _, op := range calls {
		require.Contains(t, []string{"Scan", "BatchGetItem"}, op)
	}
	require.Equal(t, before, f.everything(t))
}

// everything is the table's items by their keys.
func (f *fixture) everything(t *testing.T) map[string]item {
	t.Helper()
	all := map[string]item{}
	for p := dynamodb.NewScanPaginator(f.admin, &dynamodb.ScanInput{TableName: &f.table,
		ConsistentRead: aws.Bool(true)}); p.HasMorePages(); {
		out, err := p.NextPage(t.Context())
		require.NoError(t, err)
		for _, it := range out.Items {
			all[text(it, "pk")+" "+text(it, "sk")] = it
		}
	}
	return all
}
