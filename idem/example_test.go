package idem_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type Payment struct {
	ID    string
	Cents int
}

type Receipt struct{ Number int }

// The second call with the same key and input gets the first one's result.
func ExampleDo() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	charge := idem.Operation{Name: "charge"}
	payment := Payment{ID: "payment-1", Cents: 4200}
	n := 0
	for range 2 {
		r, err := idem.Do(context.Background(), engine, charge.Key("acme", payment.ID), payment,
			func(ctx context.Context, p Payment) (Receipt, error) {
				n++
				return Receipt{Number: n}, nil
			})
		fmt.Println(r, err)
	}

	payment.Cents = 100
	_, err = idem.Do(context.Background(), engine, charge.Key("acme", payment.ID), payment,
		func(context.Context, Payment) (Receipt, error) { panic("must not run") })
	fmt.Println("another amount, same key:", errors.Is(err, idem.ErrKeyReused))
	// Output:
	// {1} <nil>
	// {1} <nil>
	// another amount, same key: true
}

// Run returns, in addition to the result, whether it was replayed and which attempt made it.
func ExampleRun() {
	engine, _ := idem.New(memstore.New(), nil)
	charge := idem.Operation{Name: "charge"}
	for range 2 {
		r, _ := idem.Run(context.Background(), engine, charge.Key("acme", "payment-1"), "input",
			func(context.Context, string) (string, error) { return "charged", nil })
		fmt.Println(r.Value, "replayed:", r.Outcome.Replayed, "attempt:", r.Outcome.Attempt)
	}
	// Output:
	// charged replayed: false attempt: 1
	// charged replayed: true attempt: 1
}

// An error that proves that nothing happened lets the next call try again.
func ExampleNotExecuted() {
	engine, _ := idem.New(memstore.New(), nil)
	charge := idem.Operation{Name: "charge"}
	up := false
	handler := func(context.Context, string) (string, error) {
		if !up {
			return "", idem.NotExecuted(errors.New("connection refused"))
		}
		return "charged", nil
	}
	for range 2 {
		fmt.Println(idem.Do(context.Background(), engine, charge.Key("acme", "payment-1"), "input", handler))
		up = true
	}
	// Output:
	//  connection refused
	// charged <nil>
}

// An unknown outcome stays open until an operator finds out.
func Example_resolve() {
	store := memstore.New()
	engine, _ := idem.New(store, nil)
	charge := idem.Operation{Name: "charge"}
	key := charge.Key("acme", "payment-1")
	handler := func(context.Context, string) (string, error) { return "", errors.New("connection reset") }

	_, err := idem.Do(context.Background(), engine, key, "input", handler)
	fmt.Println(err)
	_, err = idem.Do(context.Background(), engine, key, "input", handler)
	fmt.Println("unknown:", errors.Is(err, idem.ErrOutcomeUnknown))

	r, _ := reconcile.New(store, nil)
	err = reconcile.Resolve(context.Background(), r, key, "charged",
		reconcile.Change{Actor: "alice", Reason: "ch_123 is in the provider's console"})
	fmt.Println("resolved:", err == nil)
	fmt.Println(idem.Do(context.Background(), engine, key, "input", handler))
	// Output:
	// connection reset
	// unknown: true
	// resolved: true
	// charged <nil>
}

// The token is what a handler sends downstream: the same on every attempt.
func ExampleToken() {
	engine, _ := idem.New(memstore.New(), nil)
	charge := idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	tokens := map[string]bool{}
	for range 3 {
		_, _ = idem.Do(context.Background(), engine, charge.Key("acme", "payment-1"), "input",
			func(ctx context.Context, _ string) (string, error) {
				tokens[idem.Token(ctx)] = true
				return "", errors.New("time-out")
			})
	}
	fmt.Println("attempts: 3, tokens:", len(tokens))
	// Output:
	// attempts: 3, tokens: 1
}
