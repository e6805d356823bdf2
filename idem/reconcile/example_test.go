package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// A refund's process is killed after the provider has paid, and its client does not come
// back for a while. A sweep finds the claim, asks the provider, and records the outcome.
func ExampleSweeper() {
	h := idemtest.New(nil, nil)
	op := idem.Operation{Name: "refund"}
	paid := map[string]string{} // what the provider remembers, by token

	request := func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, op.Key("acme", "order-1"), "order-1", func(ctx context.Context, order string) (string, error) {
			fmt.Println("the provider pays for", order)
			paid[idem.Token(ctx)] = "re_123"
			h.Crash()
			return "re_123", nil
		})
	}
	fmt.Println(idemtest.Deliver(h, 1, request)[0].Err)
	h.Restart()
	h.Clock.Advance(time.Minute)

	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
	if err != nil {
		panic(err)
	}
	sweeper, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Log: slog.New(slog.DiscardHandler),
		Operations: []reconcile.Operation{{
			Operation: op,
			Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
				if ref, ok := paid[q.Token]; ok {
					return reconcile.CompletedWith(ref).WithRef(ref), nil
				}
				return reconcile.NotExecuted(), nil
			},
		}},
	})
	if err != nil {
		panic(err)
	}
	report, err := sweeper.Sweep(context.Background()) // a function on a schedule does this every minute
	if err != nil {
		panic(err)
	}
	for _, a := range report.Actions {
		fmt.Printf("%s: %s, %s -> %s\n", a.Kind, a.Why, a.From, a.To)
	}
	fmt.Println(idemtest.Deliver(h, 1, request)[0].Value)
	// Output:
	// the provider pays for order-1
	// idemtest: the process crashed
	// sweep_parked: its lease is over and it left no outcome, in_progress -> unknown
	// resolved: the provider says that it took effect, unknown -> completed
	// re_123
}
