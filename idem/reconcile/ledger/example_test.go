package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
)

// Three refunds are recorded, and the provider has three. One is recorded with another amount, one the provider
// never made, and one it made although no record says so.
func Example() {
	type Refund struct{ Amount, Currency string }
	ctx, noon := context.Background(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := memstore.New() // on AWS: dynamostore.NewScanner
	engine, err := idem.New(store, &idem.Options{Now: func() time.Time { return noon }})
	if err != nil {
		panic(err)
	}
	op := idem.Operation{Name: "refund", Retention: 7 * 24 * time.Hour}
	var provider []ledger.Entry
	for order, paid := range map[string]string{"order-1": "1200 EUR", "order-2": "12 EUR", "order-3": ""} {
		_, err := idem.Do(ctx, engine, op.Key("acme", order), order, func(ctx context.Context, order string) (Refund, error) {
			ref := "re_" + order
			if paid != "" {
				provider = append(provider, ledger.Entry{Token: idem.Token(ctx), Ref: ref, Value: paid, At: noon})
			}
			return Refund{"1200", "EUR"}, idem.SetReference(ctx, ref)
		})
		if err != nil {
			panic(err)
		}
	}
	provider = append(provider, ledger.Entry{Ref: "re_by_hand", Value: "500 EUR", At: noon})

	l, err := ledger.New(store, ledger.Options{
		Operation: "refund",
		Entries: func(ctx context.Context, from, to time.Time) iter.Seq2[ledger.Entry, error] {
			return func(yield func(ledger.Entry, error) bool) { // asks for a page after the other
				for _, e := range provider {
					if !yield(e, nil) {
						return
					}
				}
			}
		},
		Expect: func(ctx context.Context, rec ledger.Record) (ledger.Expected, error) {
			var refund Refund
			body, err := rec.Result(ctx)
			if err == nil {
				err = json.Unmarshal(body, &refund)
			}
			return ledger.Expected{Effect: true, Value: refund.Amount + " " + refund.Currency}, err
		},
		Now: func() time.Time { return noon.Add(24 * time.Hour) },
	})
	if err != nil {
		panic(err)
	}
	day := noon.Truncate(24 * time.Hour)
	report, err := l.Compare(ctx, day, day.AddDate(0, 0, 1), func(f ledger.Finding) error {
		switch f.Kind {
		case ledger.MissingHere:
			fmt.Println(f.Kind, f.There.Ref, f.There.Value)
		case ledger.MissingThere:
			fmt.Println(f.Kind, f.Here.Ref, f.Here.Value)
		case ledger.Different:
			fmt.Println(f.Kind, f.Here.Ref, f.Here.Value, "but", f.There.Value)
		}
		return nil // ledger.Lines(file) writes each as a line of JSON
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(report.Compared, "compared,", report.Differences(), "differences")
	// Output:
	// missing_here re_by_hand 500 EUR
	// missing_there re_order-3 1200 EUR
	// different re_order-2 1200 EUR but 12 EUR
	// 2 compared, 3 differences
}
