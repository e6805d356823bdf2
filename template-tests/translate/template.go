// Package translate makes files for SAM and Terraform from a template of the constructs. Its
// caller compares what it makes with the template, and with the schema of Terraform's provider.
package translate

import (
	"fmt"
	"slices"
	"strings"
)

// Template is a synthesized CloudFormation template.
type Template = map[string]any

// text is a string with references as in Fn::Sub: ${Records} or ${Records.Arn}.
type text string

// reference reports what a text that is one reference refers to. attribute is empty for Ref.
func (t text) reference() (id, attribute string, ok bool) {
	inner, found := strings.CutPrefix(string(t), "${")
	inner, closed := strings.CutSuffix(inner, "}")
	id, attribute, _ = strings.Cut(inner, ".")
	return id, attribute, found && closed && !strings.Contains(inner, "${")
}

// resolve returns a value with each function of CloudFormation as a text.
func resolve(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			all[i] = resolve(one)
		}
		return all
	case map[string]any:
		if t, ok := function(v); ok {
			return t
		}
		all := map[string]any{}
		for name, one := range v {
			all[name] = resolve(one)
		}
		return all
	}
	return v
}

func function(v map[string]any) (t text, ok bool) {
	for name, of := range v {
		parts, _ := of.([]any)
		switch {
		case name == "Ref":
			return text(fmt.Sprintf("${%s}", of)), true
		case name == "Fn::Sub":
			return text(fmt.Sprint(of)), true
		case name == "Fn::GetAtt" && len(parts) == 2:
			return text(fmt.Sprintf("${%s.%s}", parts...)), true
		case name == "Fn::Join" && len(parts) == 2 && parts[0] == "":
			for _, part := range resolve(parts[1]).([]any) {
				t += text(fmt.Sprint(part))
			}
			return t, true
		}
	}
	return "", false
}

// resource of a template.
type resource struct {
	kind       string
	properties map[string]any
	deletion   any // what becomes of it when the stack is deleted
	dependsOn  []any
}

// retained reports whether it outlives its stack.
func (r resource) retained() bool { return r.deletion != nil && r.deletion != "Delete" }

// read returns the resources by id, and the parameters and outputs.
func read(t Template) (resources map[string]resource, parameters, outputs map[string]any) {
	resources = map[string]resource{}
	all := resolve(t).(map[string]any)
	parameters, _ = all["Parameters"].(map[string]any)
	outputs, _ = all["Outputs"].(map[string]any)
	in, _ := all["Resources"].(map[string]any)
	for id, raw := range in {
		members := raw.(map[string]any)
		r := resource{kind: members["Type"].(string), deletion: members["DeletionPolicy"]}
		r.properties, _ = members["Properties"].(map[string]any)
		r.dependsOn, _ = members["DependsOn"].([]any)
		// A reference is a dependency too.
		shown := fmt.Sprint(r.properties)
		r.dependsOn = slices.DeleteFunc(r.dependsOn, func(on any) bool {
			return strings.Contains(shown, fmt.Sprintf("${%s.", on)) || strings.Contains(shown, fmt.Sprintf("${%s}", on))
		})
		resources[id] = r
	}
	return resources, parameters, outputs
}
