// Package spec knows CloudFormation's specification of the resource types that
// package infra uses: their properties, what must be there, of which type a value
// is, and which changes replace a resource. It reads an extract, spec.json, of the
// npm package @aws-cdk/aws-service-spec (Apache License 2.0).
package spec

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

//go:embed spec.json
var extract []byte

// Spec of resource types and of the types of their properties.
type Spec struct {
	// Resources by type, such as AWS::SQS::Queue.
	Resources map[string]Resource `json:"resources"`
	// Types by the id that a reference has.
	Types map[string]map[string]Property `json:"types"`
}

// Resource type.
type Resource struct {
	Properties map[string]Property `json:"properties"`
}

// Property of a resource or of a type.
type Property struct {
	Type     Type `json:"type"`
	Required bool `json:"required,omitempty"`
	// Replaces says whether a change makes a new resource: "yes", "maybe" or empty.
	Replaces string `json:"replaces,omitempty"`
}

// Type of a value: string, number, integer, boolean, json, date-time, tag; array
// and map of Element; union of Types; ref to a type.
type Type struct {
	Kind    string   `json:"kind"`
	Element *Type    `json:"element,omitempty"`
	Types   []Type   `json:"types,omitempty"`
	Ref     string   `json:"ref,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
}

// Load returns the extract.
func Load() (*Spec, error) {
	s := &Spec{}
	return s, json.Unmarshal(extract, s)
}

// Check returns what is wrong with a template's resources.
func (s *Spec) Check(template map[string]any) (problems []string) {
	resources, _ := template["Resources"].(map[string]any)
	if len(resources) == 0 {
		return []string{"there are no resources"}
	}
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		r, _ := resources[id].(map[string]any)
		kind, _ := r["Type"].(string)
		known, ok := s.Resources[kind]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: the type %q is not in the extract", id, kind))
			continue
		}
		for _, member := range slices.Sorted(maps.Keys(r)) {
			if !slices.Contains(members, member) {
				problems = append(problems, fmt.Sprintf("%s: a resource has no member %q", id, member))
			}
		}
		properties, _ := r["Properties"].(map[string]any)
		problems = append(problems, s.object(id, known.Properties, properties)...)
	}
	return problems
}

// members that a resource has next to its properties.
// https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/resources-section-structure.html
var members = []string{"Type", "Properties", "DependsOn", "Condition", "Metadata", "DeletionPolicy",
	"UpdateReplacePolicy", "CreationPolicy", "UpdatePolicy"}

func (s *Spec) object(at string, known map[string]Property, got map[string]any) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, ok := got[name]; !ok && known[name].Required {
			problems = append(problems, fmt.Sprintf("%s.%s is missing", at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		p, ok := known[name]
		if !ok {
			problems = append(problems, fmt.Sprintf("%s.%s is not known", at, name))
			continue
		}
		problems = append(problems, s.value(at+"."+name, p.Type, got[name])...)
	}
	return problems
}

func (s *Spec) value(at string, t Type, v any) (problems []string) {
	if isFunction(v) {
		return nil // known when it is deployed
	}
	number, isNumber := v.(float64)
	list, isList := v.([]any)
	object, isObject := v.(map[string]any)
	fits := false
	switch t.Kind {
	case "string", "date-time":
		_, fits = v.(string)
	case "number":
		fits = isNumber
	case "integer":
		fits = isNumber && number == math.Trunc(number)
	case "boolean":
		_, fits = v.(bool)
	case "array":
		fits = isList
	case "map", "ref", "tag":
		fits = isObject
	case "union":
		fits = slices.ContainsFunc(t.Types, func(one Type) bool { return len(s.value(at, one, v)) == 0 })
	case "json":
		return nil
	}
	switch {
	case !fits:
		return []string{fmt.Sprintf("%s is %T %v instead of %s", at, v, v, t.Kind)}
	case len(t.Allowed) > 0 && !slices.Contains(t.Allowed, fmt.Sprint(v)):
		return []string{fmt.Sprintf("%s is %q instead of one of %q", at, fmt.Sprint(v), t.Allowed)}
	case t.Kind == "ref":
		return s.object(at, s.Types[t.Ref], object)
	case t.Kind == "tag":
		text := Property{Type: Type{Kind: "string"}, Required: true}
		return s.object(at, map[string]Property{"Key": text, "Value": text}, object)
	case t.Element == nil:
		return nil
	}
	for i, one := range list {
		problems = append(problems, s.value(fmt.Sprintf("%s[%d]", at, i), *t.Element, one)...)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		problems = append(problems, s.value(at+"."+name, *t.Element, object[name])...)
	}
	return problems
}

func isFunction(v any) bool {
	m, _ := v.(map[string]any)
	for name := range m {
		return len(m) == 1 && (name == "Ref" || strings.HasPrefix(name, "Fn::"))
	}
	return false
}

// Replaced returns the resources of a type that the change from one template to
// another would delete or replace, and why.
func (s *Spec) Replaced(before, after map[string]any, kind string) (problems []string) {
	was, _ := before["Resources"].(map[string]any)
	is, _ := after["Resources"].(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(was)) {
		old, _ := was[id].(map[string]any)
		if old["Type"] != kind {
			continue
		}
		now, ok := is[id].(map[string]any)
		switch {
		case !ok:
			problems = append(problems,
				fmt.Sprintf("%s (%s) is gone: its name in the template changed, or it was left out", id, kind))
		case now["Type"] != kind:
			problems = append(problems, fmt.Sprintf("%s becomes a %v", id, now["Type"]))
		default:
			problems = append(problems, s.replaced(id, s.Resources[kind].Properties, old["Properties"], now["Properties"])...)
		}
	}
	return problems
}

// replaced goes into what a change does not replace as a whole.
func (s *Spec) replaced(at string, known map[string]Property, before, after any) (problems []string) {
	was, _ := before.(map[string]any)
	is, _ := after.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		switch p := known[name]; {
		case reflect.DeepEqual(was[name], is[name]):
		case p.Replaces != "":
			problems = append(problems, fmt.Sprintf("%s.%s changes from %v to %v, which replaces it (%s)", at, name, was[name],
				is[name], p.Replaces))
		case p.Type.Kind == "ref":
			problems = append(problems, s.replaced(at+"."+name, s.Types[p.Type.Ref], was[name], is[name])...)
		}
	}
	return problems
}
