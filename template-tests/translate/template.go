package translate

import (
	"fmt"
	"maps"
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
func resolve(v any) (any, error) {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, one := range v {
			var err error
			if all[i], err = resolve(one); err != nil {
				return nil, err
			}
		}
		return all, nil
	case map[string]any:
		if t, ok, err := function(v); ok || err != nil {
			return t, err
		}
		all := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var err error
			if all[name], err = resolve(v[name]); err != nil {
				return nil, err
			}
		}
		return all, nil
	case string:
		if strings.Contains(v, "${") {
			return nil, fmt.Errorf("%q has a ${, which only Fn::Sub may have", v)
		}
	}
	return v, nil
}

func function(v map[string]any) (t text, ok bool, err error) {
	for name, of := range v {
		parts, _ := of.([]any)
		switch {
		case name == "Ref":
			return text(fmt.Sprintf("${%s}", of)), true, nil
		case name == "Fn::Sub":
			return text(fmt.Sprint(of)), true, nil
		case name == "Fn::GetAtt" && len(parts) == 2:
			return text(fmt.Sprintf("${%s.%s}", parts...)), true, nil
		case name == "Fn::Join" && len(parts) == 2 && parts[0] == "":
			joined, err := resolve(parts[1])
			if err != nil {
				return "", false, err
			}
			for _, part := range joined.([]any) {
				t += text(fmt.Sprint(part))
			}
			return t, true, nil
		case strings.HasPrefix(name, "Fn::"):
			return "", false, fmt.Errorf("the function %s %v is not known", name, of)
		}
	}
	return "", false, nil
}

// resource of a template.
type resource struct {
	kind       string
	properties map[string]any
	retained   bool
	dependsOn  []any
}

// read returns the resources by id, and the parameters and outputs.
func read(t Template) (resources map[string]resource, parameters, outputs map[string]any, err error) {
	resources = map[string]resource{}
	for member := range t {
		if !slices.Contains([]string{"Resources", "Parameters", "Outputs", "Description"}, member) {
			return nil, nil, nil, fmt.Errorf("the member %s of the template is not known", member)
		}
	}
	whole, err := resolve(t)
	if err != nil {
		return nil, nil, nil, err
	}
	all := whole.(map[string]any)
	parameters, _ = all["Parameters"].(map[string]any)
	outputs, _ = all["Outputs"].(map[string]any)
	in, _ := all["Resources"].(map[string]any)
	for id, raw := range in {
		r := resource{}
		for member, value := range raw.(map[string]any) {
			switch member {
			case "Type":
				r.kind, _ = value.(string)
			case "Properties":
				r.properties, _ = value.(map[string]any)
			case "DependsOn":
				r.dependsOn, _ = value.([]any)
			case "DeletionPolicy", "UpdateReplacePolicy":
				r.retained = value == "Retain"
			default:
				return nil, nil, nil, fmt.Errorf("%s: the member %s is not known", id, member)
			}
		}
		// A reference is a dependency too.
		shown := fmt.Sprint(r.properties)
		r.dependsOn = slices.DeleteFunc(r.dependsOn, func(on any) bool {
			return strings.Contains(shown, fmt.Sprintf("${%s.", on)) || strings.Contains(shown, fmt.Sprintf("${%s}", on))
		})
		resources[id] = r
	}
	return resources, parameters, outputs, nil
}
