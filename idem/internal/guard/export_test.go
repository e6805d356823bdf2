package guard

import "github.com/idem-go/idempotency/idem/protocol"

// Forget makes a guard forget what it knows of a record that was deleted behind it.
func Forget(s protocol.Store, id string) {
	switch s := s.(type) {
	case *holding:
		s.forget(id, "")
	case *withdrawals:
		s.forget(id)
	}
}
