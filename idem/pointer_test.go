package idem_test

import (
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// A text that cannot be read is an error, whatever was to be found in it.
func TestValuesAtOfATextThatIsNoJSON(t *testing.T) {
	for _, pointers := range [][]string{nil, {"/id"}, {"/id", "/tenant"}} {
		_, err := idem.ValuesAt([]byte(`{"id":`), "event", pointers...)
		require.ErrorIs(t, err, idem.ErrKeyInvalid)
	}
}
