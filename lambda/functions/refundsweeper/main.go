// Command refundsweeper is the sweeper of the payments example: it looks for claims whose
// process died, and asks the payment provider what became of refunds. Charges need no
// question: they are repeatable.
//
// Environment: that of lambda/functions/sweeper, and PROVIDER_URL, the payment provider.
package main

import (
	"os"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/lambda/functions/internal/provider"
	"github.com/idem-go/idempotency/lambda/functions/internal/sweeping"
)

func main() {
	sweeping.Main(func(store idem.Store) ([]reconcile.Operation, error) {
		engine, err := idem.New(store, nil)
		if err != nil {
			return nil, err
		}
		return operations(engine, provider.Client{URL: os.Getenv("PROVIDER_URL")})
	})
}
