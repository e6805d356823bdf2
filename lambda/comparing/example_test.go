package comparing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/idem-go/idempotency/idem/reconcile/ledger"
	"github.com/idem-go/idempotency/lambda/comparing"
)

// refundsOfTheProvider reads the provider's list, page by page.
func refundsOfTheProvider(ctx context.Context, from, to time.Time) iter.Seq2[ledger.Entry, error] {
	return func(yield func(ledger.Entry, error) bool) {
		for next := ""; ; {
			page, err := pageOfTheProvider(ctx, url.Values{
				"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}, "after": {next},
			})
			if err != nil {
				yield(ledger.Entry{}, err) // ends the comparison, which reports nothing
				return
			}
			for _, r := range page.Refunds {
				amount := fmt.Sprint(r.Amount, " ", r.Currency)
				e := ledger.Entry{Token: r.MerchantReference, Ref: r.ID, Value: amount, At: r.Created}
				if r.Status == "succeeded" && !yield(e, nil) {
					return
				}
			}
			if next = page.Next; next == "" {
				return
			}
		}
	}
}

type page struct {
	Refunds []struct {
		ID, MerchantReference, Currency, Status string
		Amount                                  int64
		Created                                 time.Time
	}
	Next string
}

func pageOfTheProvider(ctx context.Context, query url.Values) (p page, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://provider.example/refunds?"+query.Encode(), nil)
	if err != nil {
		return p, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return p, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return p, fmt.Errorf("the provider answered %s", res.Status)
	}
	return p, json.NewDecoder(res.Body).Decode(&p)
}

// amountOf is what a refund's record expects.
func amountOf(ctx context.Context, rec ledger.Record) (ledger.Expected, error) {
	var refund struct {
		Amount   int64
		Currency string
	}
	body, err := rec.Result(ctx)
	if err == nil {
		err = json.Unmarshal(body, &refund)
	}
	return ledger.Expected{Effect: true, Value: fmt.Sprint(refund.Amount, " ", refund.Currency)}, err
}

// The main function of a ledger of refunds.
func ExampleMain() {
	comparing.Main(func(aws.Config) (comparing.Options, error) {
		return comparing.Options{Options: ledger.Options{
			Operation: "refund", Entries: refundsOfTheProvider, Expect: amountOf,
		}}, nil
	})
}
