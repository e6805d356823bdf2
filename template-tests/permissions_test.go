package templatetests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPermissions compares what the roles of the stacks may do with a list: by name, and in policies of their own.
func TestPermissions(t *testing.T) {
	var all []string
	s := withDefaults(t)
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources("AWS::IAM::Role") {
			require.Len(t, r["Properties"], 1, "%s has more than who assumes it", id)
		}
		for id, policy := range tt.resources("AWS::IAM::Policy") {
			for _, raw := range at(policy, "Properties", "PolicyDocument", "Statement").([]any) {
				m := raw.(map[string]any)
				require.ElementsMatch(t, []string{"Effect", "Action", "Resource"}, slices.Collect(maps.Keys(m)), id)
				require.Equal(t, "Allow", m["Effect"])
				roles, actions := texts(at(policy, "Properties", "Roles")), texts(m["Action"])
				for _, resource := range s.named(m["Resource"]) {
					all = append(all, fmt.Sprintf("%s on %s: %s", strings.Join(roles, " "), resource, strings.Join(actions, " ")))
				}
			}
		}
	}
	slices.Sort(all)
	compareText(t, "testdata/permissions.txt", strings.Join(all, "\n")+"\n")
}

// named are the texts of a value, with imports as what is exported.
func (s stacks) named(v any) []string {
	b, _ := json.Marshal(v)
	whole := string(b)
	outputs, _ := s.payments["Outputs"].(map[string]any)
	for _, o := range outputs {
		if export, ok := at(o, "Export", "Name").(string); ok {
			value, _ := json.Marshal(at(o, "Value"))
			whole = strings.ReplaceAll(whole, `{"Fn::ImportValue":"`+export+`"}`, string(value))
		}
	}
	var resolved any
	if json.Unmarshal([]byte(whole), &resolved) != nil {
		return []string{whole}
	}
	return texts(resolved)
}
