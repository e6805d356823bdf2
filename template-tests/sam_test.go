package templatetests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// sameInSAM requires that the text has the resources of the template, with functions as SAM's.
func sameInSAM(t *testing.T, tt template, yamlText string) {
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(yamlText), &document))
	got := fromYAML(t, document.Content[0]).(map[string]any)
	require.Equal(t, "AWS::Serverless-2016-10-31", got["Transform"])
	for _, member := range []string{"Parameters", "Outputs", "Description"} {
		require.Equal(t, substituted(tt[member]), got[member])
	}
	require.Len(t, got["Resources"], len(tt["Resources"].(map[string]any)))
	for id, raw := range tt["Resources"].(map[string]any) {
		is, _ := at(got, "Resources", id).(map[string]any)
		require.NotNil(t, is, id)
		properties, _ := is["Properties"].(map[string]any)
		wanted, _ := substituted(at(raw, "Properties")).(map[string]any)
		if kind := at(raw, "Type"); kind == "AWS::Lambda::Function" {
			require.Equal(t, "AWS::Serverless::Function", is["Type"])
			require.Equal(t, "build/"+strings.ToLower(id)+"/", properties["CodeUri"])
			require.Equal(t, map[string]any{"SkipBuild": true}, is["Metadata"])
			delete(properties, "CodeUri")
			delete(wanted, "Code")
		} else {
			require.Equal(t, kind, is["Type"])
		}
		require.Equal(t, wanted, properties, id)
		for _, policy := range []string{"DeletionPolicy", "UpdateReplacePolicy"} {
			require.Equal(t, at(raw, policy) == "Retain", is[policy] == "Retain", id)
		}
		dependsOn, _ := at(raw, "DependsOn").([]any)
		for _, on := range texts(dependsOn) {
			require.True(t, strings.Contains(text(is["DependsOn"]), on) || strings.Contains(text(wanted), "${"+on+"."), id)
		}
	}
}

// fromYAML is a value with its functions as by substituted.
func fromYAML(t *testing.T, n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		all := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			all[n.Content[i].Value] = fromYAML(t, n.Content[i+1])
		}
		return all
	case yaml.SequenceNode:
		all := make([]any, len(n.Content))
		for i, one := range n.Content {
			all[i] = fromYAML(t, one)
		}
		return all
	}
	switch n.Tag {
	case "!Ref", "!GetAtt":
		return "${" + n.Value + "}"
	case "!Sub":
		return n.Value
	case "!!int":
		var number float64
		require.NoError(t, n.Decode(&number))
		return number
	}
	var v any
	require.NoError(t, n.Decode(&v))
	return v
}

// substituted is a value with each function as in Fn::Sub.
func substituted(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = substituted(one)
		}
		return all
	case map[string]any:
		if id, ok := v["Ref"].(string); ok {
			return "${" + id + "}"
		}
		if of := texts(v["Fn::GetAtt"]); len(of) == 2 {
			return "${" + of[0] + "." + of[1] + "}"
		}
		if sub, ok := v["Fn::Sub"]; ok {
			return sub
		}
		if join, ok := v["Fn::Join"].([]any); ok && join[0] == "" {
			return strings.Join(texts(substituted(join[1])), "")
		}
		all := map[string]any{}
		for name, one := range v {
			all[name] = substituted(one)
		}
		return all
	}
	return v
}
