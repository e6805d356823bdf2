package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// TenantGroup is the message group of the tenant of the record with the id, by which a queue
// is fair to tenants; it is empty if the record has no tenant. It is the SHA-256, in
// hexadecimal, of the tenant as it is written in the id, percent-encoded. Any tenant fits
// therefore, and none is named: a queue's encryption leaves groups readable, and a message
// may reach a reader who does not know the tenant. A reader who knows a tenant finds its group.
func TenantGroup(id string) string {
	tenant, _, _ := strings.Cut(id, "#")
	if tenant == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:])
}
