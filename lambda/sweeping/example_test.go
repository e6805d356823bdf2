package sweeping_test

import (
	"context"
	"net/http"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/lambda/sweeping"
)

var refund = idem.Operation{Name: "refund", Repeat: idem.NotRepeatable}

func askProvider(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://provider.example/refunds/"+q.Token, nil)
	if err != nil {
		return reconcile.Answer{}, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reconcile.Answer{}, err // asked again later
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return reconcile.CompletedWithoutResult(), nil
	case http.StatusNotFound:
		return reconcile.NotExecuted(), nil
	}
	return reconcile.StillUnknown(0), nil
}

// The main function of a sweeper that asks the provider what became of refunds.
func ExampleMain() {
	sweeping.Main(func(idem.Store) ([]reconcile.Operation, error) {
		return []reconcile.Operation{{Operation: refund, Probe: askProvider}}, nil
	})
}
