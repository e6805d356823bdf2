package limit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// The shortest and the longest window.
const (
	MinWindow = time.Second
	MaxWindow = 5 * 365 * 24 * time.Hour
)

// PerTenant bounds how many new keys of an operation each tenant may have in a window.
type PerTenant struct {
	// Keys is the bound, at least one.
	Keys int
	// Window is the length of a window, in whole seconds: [MinWindow] to [MaxWindow]. One window
	// follows the other. Windows of a minute, an hour and a day begin with the minute, the hour and
	// the day (UTC).
	Window time.Duration
}

func (p PerTenant) problem() string {
	switch {
	case p.Keys < 1:
		return fmt.Sprintf("Keys is %d: use at least 1, or leave the operation out", p.Keys)
	case p.Window < MinWindow || p.Window > MaxWindow || p.Window%time.Second != 0:
		return fmt.Sprintf("Window is %v: use whole seconds, from one second to five years", p.Window)
	}
	return ""
}

// Counter is what a store can do for a limit. It is safe for concurrent use.
type Counter interface {
	// CountKey adds one to the counter, on the condition that it is below the bound, and reports
	// whether it was. It is one atomic change. A counter without an item is zero. The store forgets
	// it some time after it has expired. A change whose reply was lost may be made again, and then
	// counts again. Errors are a [*protocol.StoreError].
	CountKey(ctx context.Context, counter string, bound int, expires time.Time) (counted bool, err error)
}

// Over returns the store with a limit for each of the operations, by their names. Other operations
// have none. Mistakes in the limits, and a store that is no [Counter], are a [*protocol.ConfigError].
func Over(over protocol.Store, operations map[string]PerTenant) (protocol.Store, error) {
	counter, ok := over.(Counter)
	if !ok {
		return nil, &protocol.ConfigError{What: "limit.Over", Problem: fmt.Sprintf("the store, a %T, cannot count keys: "+
			"use one that implements limit.Counter, such as dynamostore.Store", over)}
	}
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		problem := operations[name].problem()
		if name == "" {
			problem = "the operation has no name"
		}
		if problem != "" {
			return nil, &protocol.ConfigError{What: fmt.Sprintf("limit of operation %q", name), Problem: problem}
		}
	}
	return &store{Store: over, counter: counter, operations: maps.Clone(operations)}, nil
}
