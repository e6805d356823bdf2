package protocol_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// The group is the tenant's, whatever the record.
func TestRecordsOfATenantHaveOneGroup(t *testing.T) {
	const acme = "822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757"
	require.Equal(t, acme, protocol.TenantGroup("acme#charge#abc"), "programs of two versions send to one queue: it never changes")
	require.Equal(t, acme, protocol.TenantGroup("acme#refund#abd"))
	require.Equal(t, acme, protocol.TenantGroup(protocol.ShadowID("acme#charge#abc")))
	require.Equal(t, "4e1f789a9b3730368aceb6ad361768f5974badfb18724a0a42fedad68c377a97", protocol.TenantGroup("s%C3%B6hne#charge#abc"))
	require.NotEqual(t, acme, protocol.TenantGroup("Acme#charge#abc"))
	require.Empty(t, protocol.TenantGroup("#charge#abc"), "no tenant")
	require.Empty(t, protocol.TenantGroup(""))
}
