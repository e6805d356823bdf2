package idem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// The process dies before it has recorded that the parcel is on its way. The retry
// skips what is recorded and goes on from there.
func ExampleStep() {
	h := idemtest.New(nil, nil)
	fulfil := idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}
	handler := func(ctx context.Context, order string) (string, error) {
		receipt, err := idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			fmt.Println("charging")
			return "receipt 7", nil // with idem.Token(ctx), which is the step's own
		}, nil)
		if err != nil {
			return "", err
		}
		parcel, err := idem.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			fmt.Println("shipping")
			return "parcel 9", nil
		}, nil)
		return receipt + ", " + parcel, err
	}
	request := func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, fulfil.Key("acme", "order-1"), "order-1", handler)
	}

	h.CrashAfter(3, false) // the claim, the first step, and here
	fmt.Println(idemtest.Deliver(h, 1, request)[0].Err)
	h.Restart()
	h.Clock.Advance(time.Minute)
	fmt.Println(idemtest.Deliver(h, 1, request)[0].Value)
	// Output:
	// charging
	// shipping
	// idemtest: the process crashed
	// shipping
	// receipt 7, parcel 9
}

// A step fails permanently: what was done before it is undone, the latest first.
func ExampleStepConfig_compensate() {
	h := idemtest.New(nil, nil)
	travel := idem.Operation{Name: "travel", Repeat: idem.Repeatable}
	book := func(name string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			fmt.Println("book", name)
			return name + " 1", nil
		}
	}
	cancel := func(_ context.Context, booking string) error {
		fmt.Println("cancel", booking)
		return nil
	}
	handler := func(ctx context.Context, _ string) (string, error) {
		if _, err := idem.Step(ctx, "flight", book("flight"), &idem.StepConfig[string]{Compensate: cancel}); err != nil {
			return "", err
		}
		if _, err := idem.Step(ctx, "hotel", book("hotel"), &idem.StepConfig[string]{Compensate: cancel}); err != nil {
			return "", err
		}
		return "", idem.Permanent(errors.New("no car is left"))
	}
	got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, travel.Key("acme", "trip-1"), "trip-1", handler)
	})
	fmt.Println(got[0].Err, "- replayed:", got[1].Replayed)
	// Output:
	// book flight
	// book hotel
	// cancel hotel 1
	// cancel flight 1
	// no car is left - replayed: true
}

// A handler that turns the request down in its own words: what it did is undone, and
// the answer is recorded and replayed.
func ExampleAbort() {
	h := idemtest.New(nil, nil)
	travel := idem.Operation{Name: "travel", Repeat: idem.Repeatable}
	handler := func(ctx context.Context, _ string) (string, error) {
		err := idem.StepEffect(ctx, "flight",
			func(context.Context) error { fmt.Println("book flight"); return nil },
			&idem.EffectConfig{Compensate: func(context.Context) error { fmt.Println("cancel flight"); return nil }})
		if err != nil {
			return "", err
		}
		if err := idem.Abort(ctx, errors.New("no car is left")); err != nil {
			return "", err
		}
		return "declined: no car is left", nil
	}
	for _, d := range idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, travel.Key("acme", "trip-1"), "trip-1", handler)
	}) {
		fmt.Println(d.Value, "- replayed:", d.Replayed)
	}
	// Output:
	// book flight
	// cancel flight
	// declined: no car is left - replayed: false
	// declined: no car is left - replayed: true
}

// The process dies while the bank is being asked for money. The step is not run
// again: the retry asks the bank what became of it.
func ExampleStepConfig_interrupted() {
	h := idemtest.New(nil, nil)
	pay := idem.Operation{Name: "pay", Repeat: idem.Repeatable}
	charges := map[string]string{} // at the bank, by token
	handler := func(ctx context.Context, amount string) (string, error) {
		return idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			charges[idem.Token(ctx)] = amount
			h.Crash()
			return amount, nil
		}, &idem.StepConfig[string]{
			Semantics: idem.AtMostOnce,
			Interrupted: func(ctx context.Context, _ time.Time) (string, error) {
				amount, ok := charges[idem.Token(ctx)]
				if !ok {
					return "", idem.NotExecuted(errors.New("the bank does not know the charge"))
				}
				return amount, nil
			},
			NotFoundFinalAfter: 10 * time.Minute,
		})
	}
	request := func(ctx context.Context, e *idem.Engine) (string, error) {
		return idem.Do(ctx, e, pay.Key("acme", "payment-1"), "42.00", handler)
	}

	idemtest.Deliver(h, 1, request)
	h.Restart()
	h.Clock.Advance(time.Minute)
	d := idemtest.Deliver(h, 1, request)[0]
	fmt.Println(d.Value, d.Err, "- charges:", len(charges))
	// Output:
	// 42.00 <nil> - charges: 1
}
