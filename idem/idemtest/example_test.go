package idemtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

type Payment struct {
	ID    string
	Cents int
}

type Receipt struct {
	Number int
	Cents  int
}

// bank is the system that a test wants to see charged once.
type bank struct{ charges int }

func (b *bank) charge(_ context.Context, p Payment) (Receipt, error) {
	b.charges++
	return Receipt{Number: b.charges, Cents: p.Cents}, nil
}

// A request that is sent again gets the first answer, and nothing runs again.
func ExampleDeliver() {
	h := idemtest.New(nil, nil) // in a test: idemtest.New(t, nil)
	charge := idem.Operation{Name: "charge"}
	payment := Payment{ID: "payment-1", Cents: 4200}
	var b bank

	got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, charge.Key("acme", payment.ID), payment, b.charge)
	})
	for _, d := range got {
		fmt.Println(d.Value, d.Err, "replayed:", d.Replayed)
	}
	fmt.Println("charges:", b.charges)
	// Output:
	// {1 4200} <nil> replayed: false
	// {1 4200} <nil> replayed: true
	// charges: 1
}

// Many at once: one runs; the others, which wait here, get its result.
func ExampleDeliverParallel() {
	h := idemtest.New(nil, &idem.Options{Wait: 10 * time.Second})
	charge := idem.Operation{Name: "charge"}
	payment := Payment{ID: "payment-1", Cents: 4200}
	var b bank

	got := idemtest.DeliverParallel(h, 50, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, charge.Key("acme", payment.ID), payment, b.charge)
	})
	receipts := map[Receipt]int{}
	for _, d := range got {
		receipts[d.Value]++
	}
	fmt.Println(receipts, "charges:", b.charges)
	// Output:
	// map[{1 4200}:50] charges: 1
}

// The process dies in the handler, after the effect. What the retry gets follows
// from the declaration.
func ExampleHarness_Crash() {
	payment := Payment{ID: "payment-1", Cents: 4200}
	for _, repeat := range []idem.Repeat{idem.NotRepeatable, idem.Repeatable} {
		h := idemtest.New(nil, nil)
		op := idem.Operation{Name: "charge", Repeat: repeat}
		var b bank
		crash := true
		request := func(ctx context.Context, e *idem.Engine) (Receipt, error) {
			return idem.Do(ctx, e, op.Key("acme", payment.ID), payment, func(ctx context.Context, p Payment) (Receipt, error) {
				r, err := b.charge(ctx, p)
				if crash {
					h.Crash()
				}
				return r, err
			})
		}

		fmt.Println(repeat)
		fmt.Println("  first:", idemtest.Deliver(h, 1, request)[0].Err)

		h.Restart()
		crash = false
		early := idemtest.Deliver(h, 1, request)[0]
		fmt.Println("  at once, in flight:", errors.Is(early.Err, idem.ErrInFlight))

		h.Clock.Advance(time.Minute)
		late := idemtest.Deliver(h, 1, request)[0]
		fmt.Println("  after the lease, unknown:", errors.Is(late.Err, idem.ErrOutcomeUnknown), "charges:", b.charges)
	}
	// Output:
	// not_repeatable
	//   first: idemtest: the process crashed
	//   at once, in flight: true
	//   after the lease, unknown: true charges: 1
	// repeatable
	//   first: idemtest: the process crashed
	//   at once, in flight: true
	//   after the lease, unknown: false charges: 2
}

// The process dies at its second store call, which records the outcome: the
// effect has happened, and no process knows.
func ExampleHarness_CrashAfter() {
	for _, landed := range []bool{true, false} {
		h := idemtest.New(nil, nil)
		charge := idem.Operation{Name: "charge"}
		key := charge.Key("acme", "payment-1")
		var b bank
		request := func(ctx context.Context, e *idem.Engine) (Receipt, error) {
			return idem.Do(ctx, e, key, Payment{"payment-1", 4200}, b.charge)
		}

		h.CrashAfter(2, landed)
		idemtest.Deliver(h, 1, request)
		h.Restart()
		h.Clock.Advance(time.Minute)
		retry := idemtest.Deliver(h, 1, request)[0]
		fmt.Println("landed:", landed, "replayed:", retry.Replayed, "state:", h.Record(key).State, "charges:", b.charges)
	}
	// Output:
	// landed: true replayed: true state: completed charges: 1
	// landed: false replayed: false state: unknown charges: 1
}

// A completion whose reply was lost is found recorded by the retry.
func ExampleFaults() {
	h := idemtest.New(nil, nil)
	charge := idem.Operation{Name: "charge"}
	var b bank

	h.Faults.Next(idemtest.Finish, idemtest.LoseReply)
	got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
		return idem.Do(ctx, e, charge.Key("acme", "payment-1"), Payment{"payment-1", 4200}, b.charge)
	})
	fmt.Println(got[0].Value == got[1].Value, "charges:", b.charges)
	// Output:
	// true charges: 1
}
