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

// An order's process is killed in its at-most-once charge. The sweep asks the provider what the
// charge did, and sends the order to its worker again, from the caller's own table, since a
// record has no input. The worker does not charge again, and ships.
func ExampleContinueWith() {
	h := idemtest.New(nil, nil)
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable, Values: idem.KeepValues}
	orders := map[string]int{"order-1": 1200} // the caller's table
	charges := map[string]string{}            // what the provider remembers, by token
	sent := false                             // to the worker's queue

	work := func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, op.Key("acme", "order-1"), orders["order-1"],
			func(ctx context.Context, cents int) (string, error) {
				charge, err := idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
					fmt.Println("charge", cents)
					charges[idem.Token(ctx)] = "ch_123"
					h.Crash()
					return "ch_123", nil
				}, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
				if err != nil {
					return "", idem.PermanentStep(err)
				}
				return charge, idem.StepEffect(ctx, "ship", func(context.Context) error {
					fmt.Println("ship")
					return nil
				}, nil)
			})
	}
	fmt.Println(idemtest.Deliver(h, 1, work)[0].Err)
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
				steps := map[string]reconcile.Answer{}
				for _, s := range q.Steps {
					if charge, ok := charges[s.Token]; s.Begun && ok {
						steps[s.Name] = reconcile.CompletedWith(charge)
					} else if s.Begun {
						steps[s.Name] = reconcile.NotExecuted()
					}
				}
				if len(steps) == 0 {
					return reconcile.CannotBeKnown("it was not interrupted in a step"), nil
				}
				return reconcile.ContinueWith(steps), nil
			},
			// Send the same input as before: here the whole order, by its number.
			OnAbandoned: func(_ context.Context, q reconcile.Question) error {
				fmt.Println("send again:", q.Tenant, q.Value, orders[q.Value])
				sent = true
				return nil
			},
		}},
	})
	if err != nil {
		panic(err)
	}
	for range 3 { // a function on a schedule does this every minute
		report, err := sweeper.Sweep(context.Background())
		if err != nil {
			panic(err)
		}
		for _, a := range report.Actions {
			fmt.Printf("%s: %s\n", a.Kind, a.Why)
		}
		if sent { // the queue delivers it
			charge := idemtest.Deliver(h, 1, work)[0].Value
			fmt.Printf("%s: %q\n", h.Record(op.Key("acme", "order-1")).State, charge)
			sent = false
		}
		h.Clock.Advance(time.Minute)
	}
	// Output:
	// charge 1200
	// idemtest: the process crashed
	// send again: acme order-1 1200
	// abandoned: OnAbandoned was called
	// unknown: ""
	// resolved: the provider says that step charge took effect
	// send again: acme order-1 1200
	// abandoned: OnAbandoned was called
	// ship
	// completed: "ch_123"
}
