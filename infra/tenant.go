package infra

import (
	"strings"
)

// maxTenant is the longest tenant that a key takes, in bytes.
const maxTenant = 64

// conditions confines an action to tenants. Every action that is granted this way names its
// items, so it has a key. The second condition refuses an action without a key, for which
// "for all values" would be true.
func (o *GrantOptions) conditions(t *Table) map[string]map[string]any {
	if o == nil || len(o.Tenants) == 0 && !o.WithoutTenant {
		return nil
	}
	var patterns []string
	if o.WithoutTenant {
		patterns = append(patterns, "#*")
	}
	for _, tenant := range o.Tenants {
		switch {
		case tenant == "" || tenant == "\x00":
			// The second is the constant of package idem.
			refuse(t, "a tenant in GrantOptions is empty: name it, or set WithoutTenant for records that have none")
			continue
		case len(tenant) > maxTenant:
			refuse(t, "the tenant %.20q… in GrantOptions has %d bytes: no key has a tenant of more than %d", tenant, len(tenant), maxTenant)
			continue
		}
		patterns = append(patterns, leadingKeys(tenant))
	}
	if patterns == nil {
		// A mistake in the tenants must not open the table.
		patterns = []string{"#"}
	}
	return map[string]map[string]any{
		"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns},
		"Null":                    {"dynamodb:LeadingKeys": "false"},
	}
}

// leadingKeys is a pattern that matches all partition keys of a tenant. Records begin with
// the tenant, percent-encoded like every part of a key, so a tenant cannot contain the
// separator or a wildcard of IAM.
func leadingKeys(tenant string) string {
	var b strings.Builder
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(tenant); i++ {
		c := tenant[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String() + "#*"
}
