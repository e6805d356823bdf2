package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

func TestBadRelays(t *testing.T) {
	s, p := newMemoryStore(), &post{}
	good := map[string]outbox.Sender{"orders": p}
	for says, c := range map[string]struct {
		store   outbox.Store
		senders map[string]outbox.Sender
		o       *outbox.Options
	}{
		"store is nil":             {nil, good, nil},
		"no senders":               {s, nil, nil},
		`sender for "x" is nil`:    {s, map[string]outbox.Sender{"x": nil}, nil},
		"letters":                  {s, map[string]outbox.Sender{"a b": p}, nil},
		"MaxTries is -1":           {s, good, &outbox.Options{MaxTries: -1}},
		"Backoff is -1ns":          {s, good, &outbox.Options{Backoff: -1}},
		"Keep is -1ns":             {s, good, &outbox.Options{Keep: -1}},
		"MaxBackoff is 2m0s and l": {s, good, &outbox.Options{Backoff: time.Hour}},
	} {
		_, err := outbox.NewRelay(c.store, c.senders, c.o)
		require.ErrorContains(t, err, says)
	}
}
