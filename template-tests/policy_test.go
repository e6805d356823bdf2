package templatetests

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

type statement struct {
	actions, resources []string
	conditions         map[string]any
}

// statements of all policies of roles.
func (tt template) statements(t *testing.T) []statement {
	t.Helper()
	var all []statement
	for _, policy := range tt.resources("AWS::IAM::Policy") {
		p := policy["Properties"].(map[string]any)
		for _, raw := range p["PolicyDocument"].(map[string]any)["Statement"].([]any) {
			m := raw.(map[string]any)
			require.Equal(t, "Allow", m["Effect"])
			s := statement{actions: texts(m["Action"]), resources: texts(m["Resource"])}
			s.conditions, _ = m["Condition"].(map[string]any)
			all = append(all, s)
		}
	}
	return all
}

// hash is what CDK appends to a logical id.
var hash = regexp.MustCompile("[0-9A-F]{8}$")

// name is a logical id without its hash.
func name(id string) string { return hash.ReplaceAllString(id, "") }

// texts flattens a value or a list of values: references as the name of what they refer to, and its attribute.
func texts(v any) []string {
	switch v := v.(type) {
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, texts(one)...)
		}
		return all
	case string:
		return []string{v}
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			return []string{name(ref)}
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			return []string{fmt.Sprint(name(get[0].(string)), ".", get[1])}
		}
		if join, ok := v["Fn::Join"].([]any); ok && join[0] == "" {
			var whole string
			for _, part := range texts(join[1]) {
				whole += part
			}
			return []string{whole}
		}
	}
	text, _ := json.Marshal(v)
	return []string{string(text)}
}
