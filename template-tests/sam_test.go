package templatetests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// sameInSAM requires that the text is the template, with functions as SAM's. The dependencies that a reference
// makes are left out there.
func sameInSAM(t *testing.T, tt template, yamlText string) {
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(yamlText), &document))
	got, wanted := fromYAML(t, document.Content[0]), substituted(map[string]any(tt)).(map[string]any)
	wanted["AWSTemplateFormatVersion"], wanted["Transform"] = "2010-09-09", "AWS::Serverless-2016-10-31"
	for id, raw := range wanted["Resources"].(map[string]any) {
		r := raw.(map[string]any)
		if r["Type"] == "AWS::Lambda::Function" {
			r["Type"], r["Metadata"] = "AWS::Serverless::Function", map[string]any{"SkipBuild": true}
			properties := r["Properties"].(map[string]any)
			properties["CodeUri"] = "build/" + strings.ToLower(id) + "/"
			delete(properties, "Code")
		}
		is, _ := at(got, "Resources", id).(map[string]any)
		dependsOn, _ := r["DependsOn"].([]any)
		for _, on := range texts(dependsOn) {
			require.True(t, strings.Contains(text(is["DependsOn"]), on) ||
				strings.Contains(text(r["Properties"]), "${"+on+"."), id)
		}
		delete(r, "DependsOn")
		delete(is, "DependsOn")
		for _, policy := range []string{"DeletionPolicy", "UpdateReplacePolicy"} {
			if r[policy] == "Delete" {
				delete(r, policy) // which is what CloudFormation does anyway
			}
		}
	}
	require.Equal(t, any(wanted), got)
}

// fromYAML is a value with its functions as by substituted.
func fromYAML(t *testing.T, n *yaml.Node) any {
	tags := []string{"!Ref", "!GetAtt", "!Sub", "!!map", "!!seq", "!!str", "!!int", "!!bool", "!!float"}
	require.Contains(t, tags, n.Tag)
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
	require.NotContains(t, n.Value, "${", "a reference without !Sub is text")
	var v any
	require.NoError(t, n.Decode(&v))
	return v
}

// substituted is a value with each function as in Fn::Sub.
func substituted(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "${", "${!") // text, as it stands in Fn::Sub
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
