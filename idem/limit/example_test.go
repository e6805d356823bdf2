package limit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
)

// Each tenant may begin a thousand exports a minute.
func ExampleOver() {
	table := memstore.New()
	store, err := limit.Over(table, map[string]limit.PerTenant{"export": {Keys: 1000, Window: time.Minute}})
	if err != nil {
		panic(err)
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		panic(err)
	}
	operation := idem.Operation{Name: "export", Repeat: idem.Repeatable}
	var limited *idem.LimitExceededError
	for n := 0; limited == nil; n++ {
		key := operation.Key("acme", fmt.Sprint("export-", n))
		_, err := idem.Do(context.Background(), engine, key, n, func(context.Context, int) (string, error) { return "", nil })
		limited, _ = errors.AsType[*idem.LimitExceededError](err)
	}
	fmt.Println(limited)
	// Output: idem: the tenant has too many new keys; nothing has taken effect, try again later
}
