// Command refundsweeper is the sweeper of the payments example: it looks for claims whose
// process died, and asks the payment provider what became of refunds. Charges need no
// question: they are repeatable.
//
// Environment: that of lambda/functions/sweeper; PROVIDER_URL, the payment provider; and
// ESCALATE_AFTER, such as 30m, the age at which a refund is escalated that the provider says
// nothing about (if unset, 4 hours).
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/lambda/sweeping"
)

func main() {
	sweeping.Main(func(store idem.Store) ([]reconcile.Operation, error) {
		engine, err := idem.New(store, nil)
		if err != nil {
			return nil, err
		}
		age, err := escalateAfter(os.Getenv("ESCALATE_AFTER"))
		if err != nil {
			return nil, err
		}
		return operations(engine, provider{os.Getenv("PROVIDER_URL")}, age)
	})
}

func escalateAfter(text string) (time.Duration, error) {
	if text == "" {
		return reconcile.DefaultProbeAge, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age <= 0 {
		return 0, fmt.Errorf("ESCALATE_AFTER is %q: use a positive duration, such as 30m", text)
	}
	return age, nil
}
