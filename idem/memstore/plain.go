package memstore

import (
	"os"

	"github.com/idem-go/idempotency/idem/protocol"
)

// NewPlain returns a store that turns every wrapper over it into a plain call: each
// attempt has a record of its own, which no other call finds. Every call runs its handler,
// whatever came before it or runs at the same time, and nothing is replayed, in flight or
// refused for its key. Tokens, steps and units of work are as ever, within the
// attempt. It is the switch for tests that are about something else:
//
//	store, err := memstore.NewPlain()
//	engine, err := idem.New(store, nil)
//
// Inside Lambda it would protect no caller, so that it returns an [*idem.ConfigError] there:
// where AWS_LAMBDA_RUNTIME_API is set, as in every function's process.
func NewPlain() (*Store, error) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		return nil, &protocol.ConfigError{
			What:    "memstore.NewPlain",
			Problem: "this is Lambda, where a store that forgets protects no caller: use dynamostore.New, and keep NewPlain to tests",
		}
	}
	s := New()
	s.plain = true
	return s, nil
}
