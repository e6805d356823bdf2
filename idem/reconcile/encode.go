package reconcile

import (
	"fmt"
	"reflect"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/codec"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Encode makes of a handler's result what [idem.Do] records of it. A result that later calls
// could not read is an error.
func Encode[Out any](out Out) (protocol.Encoded, error) {
	if err := idem.CheckResultType(reflect.TypeFor[Out]()); err != nil {
		return protocol.Encoded{}, err
	}
	var back Out
	body, err := codec.Through(out, &back)
	if err != nil {
		return protocol.Encoded{}, fmt.Errorf("idem: the result cannot be recorded: %w", err)
	}
	return protocol.Encoded{Body: body}, nil
}
