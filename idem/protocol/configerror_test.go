package protocol_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

func TestAConfigErrorIsASentence(t *testing.T) {
	require.EqualError(t, &protocol.ConfigError{What: "region", Problem: "is missing: set AWS_REGION"}, "idem: region is missing: set AWS_REGION")
	require.EqualError(t, &protocol.ConfigError{What: "idem.New", Problem: "the store is nil"}, "idem: idem.New: the store is nil")
}
