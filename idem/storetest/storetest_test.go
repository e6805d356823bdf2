package storetest

import (
	"context"
	"testing"

	"github.com/idem-go/idempotency/idem/memstore"
)

func memory(*testing.T) Harness {
	s := memstore.Options{MaxResult: 6 << 20}.New()
	return Harness{
		Store: s, Scanner: s, MaxResult: 6 << 20,
		Delete: func(_ context.Context, id string) error { s.Delete(id); return nil },
	}
}

func TestMemstore(t *testing.T) { Run(t, memory) }
