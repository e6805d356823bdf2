package pause_test

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// An operator pauses refunds, as idemctl pause does. What is recorded is replayed.
func ExampleNew() {
	table := memstore.New()
	operators, err := reconcile.New(table, nil)
	if err != nil {
		panic(err)
	}
	pauses, err := pause.New(table)
	if err != nil {
		panic(err)
	}
	engine, err := idem.New(table, &idem.Options{Pauses: pauses})
	if err != nil {
		panic(err)
	}
	refund := func(value string) {
		key := idem.Operation{Name: "refund"}.Key("acme", value)
		got, err := idem.Do(context.Background(), engine, key, 1,
			func(context.Context, int) (string, error) { return "refunded", nil })
		fmt.Println(got, err)
	}
	refund("r-1")
	why := reconcile.Change{Actor: "alice", Reason: "case 4711: the provider refunds twice"}
	if err := operators.Pause(context.Background(), "refund", "", time.Time{}, why); err != nil {
		panic(err)
	}
	time.Sleep(pause.Within)
	refund("r-1")
	refund("r-2")
	// Output:
	// refunded <nil>
	// refunded <nil>
	//  idem: the operation is paused; nothing was executed, try again later
}
