package idem_test

import (
	"context"
	"fmt"
	"os"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

// Without the variable the operation is protected.
var Fulfil = idem.Operation{Name: "fulfil", Shadow: os.Getenv("IDEM_SHADOW") == "true"}

// In shadow each call runs, and the observer learns what the live mode would have done.
func ExampleOperation_shadow() {
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: func(_ context.Context, n notice.Notice) {
		fmt.Println(n.Kind, n.State)
	}})
	if err != nil {
		panic(err)
	}
	shadow := Fulfil
	shadow.Shadow = true // as with IDEM_SHADOW=true
	for n := range 2 {
		got, err := idem.Do(context.Background(), engine, shadow.Key("acme", "order-1"), "one book",
			func(context.Context, string) (int, error) {
				return n, nil
			})
		fmt.Println(got, err)
	}
	// Output:
	// shadow_executed completed
	// 0 <nil>
	// shadow_duplicate completed
	// 1 <nil>
}
