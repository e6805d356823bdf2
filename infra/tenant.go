package infra

import (
	"net/url"
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
			refuse(t.TableV2, "a tenant in GrantOptions is empty: name it, or set WithoutTenant for records that have none")
			continue
		case len(tenant) > maxTenant:
			refuse(t.TableV2, "the tenant %.20q… in GrantOptions has %d bytes: no key has a tenant of more than %d", tenant,
				len(tenant), maxTenant)
			continue
		}
		patterns = append(patterns, escaped(tenant)+"#*")
	}
	if patterns == nil {
		// A mistake in the tenants must not open the table.
		patterns = []string{"#"}
	}
	if !o.WithoutTenant {
		for _, operation := range o.Secrets {
			patterns = append(patterns, "#"+escaped(operation)+"#")
		}
	}
	return map[string]map[string]any{
		"ForAllValues:StringLike": {"dynamodb:LeadingKeys": patterns},
		"Null":                    {"dynamodb:LeadingKeys": "false"},
	}
}

// escaped is a tenant or an operation as it is in keys: percent-encoded. So it contains neither the
// separator nor a wildcard of IAM.
func escaped(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }
