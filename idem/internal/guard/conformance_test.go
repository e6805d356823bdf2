package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
)

func silent(context.Context, notice.Kind, string, notice.Notice) {}

// Each guard is a store like the one that it is around.
func TestConformance(t *testing.T) {
	for name, around := range map[string]func(protocol.Store) protocol.Store{
		"circuit":     func(s protocol.Store) protocol.Store { return guard.Circuit(s, silent) },
		"holding":     guard.Holding,
		"hot":         guard.Hot,
		"pending":     func(s protocol.Store) protocol.Store { return guard.NewPending(s, time.Now, time.Minute, silent) },
		"withdrawals": func(s protocol.Store) protocol.Store { return guard.Withdrawals(s, 2*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Harness {
				inner := memstore.New()
				s := around(inner)
				return storetest.Harness{Store: s, Delete: func(_ context.Context, id string) error {
					inner.Delete(id)
					guard.Forget(s, id) // TTL deletes nothing under a lease that runs, nor so soon
					return nil
				}}
			})
		})
	}
}
