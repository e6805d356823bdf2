package idem_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

// TestInvalidTextIsNotMadeEqual: encoding/json replaces invalid bytes, so that
// two inputs could share a fingerprint.
func TestInvalidTextIsNotMadeEqual(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	type nested struct {
		Names map[string][]*string
		Any   any
	}
	bad, good := "caf\xe9", "café \ufffd"
	op := idem.Operation{Name: "text"}
	do := func(in nested) error {
		_, err := idem.Do(t.Context(), engine, op.Key("t", "k"), in, func(context.Context, nested) (int, error) { return 1, nil })
		return err
	}
	for name, in := range map[string]nested{
		"in a list":   {Names: map[string][]*string{"a": {&good, &bad}}},
		"as a key":    {Names: map[string][]*string{bad: nil}},
		"behind any":  {Any: []string{bad}},
		"in a string": {Any: bad},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, do(in), idem.ErrNotCanonical) })
	}
	require.NoError(t, do(nested{Names: map[string][]*string{good: {&good}}, Any: json.RawMessage(`"\ufffd \\ufffd"`)}))
}
