package template

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check finds what no deployment accepts: a reference to what is not there, and resources that depend on each other in
// a circle. The error has all of it, a line each.
func (t *Template) Check() error {
	var all []error
	needs := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		r := t.Resources[id]
		refs := t.references(r.Properties)
		switch on := r.DependsOn.(type) {
		case string:
			refs = append(refs, on)
		case []any:
			for _, v := range on {
				refs = append(refs, fmt.Sprint(v))
			}
		}
		for _, ref := range refs {
			if _, ok := t.Resources[ref]; ok {
				needs[id] = append(needs[id], ref)
			} else if _, ok := t.Parameters[ref]; !ok {
				all = append(all, fmt.Errorf("%s refers to %s, and the template has no such resource or parameter", id, ref))
			}
		}
		if _, ok := t.Conditions[r.Condition]; r.Condition != "" && !ok {
			all = append(all, fmt.Errorf("%s has the condition %s, and the template has no such one", id, r.Condition))
		}
	}
	conditions := map[string][]string{}
	for name, c := range t.Conditions {
		walk(c, func(function string, argument any) {
			if text, ok := argument.(string); ok && function == "Condition" {
				conditions[name] = append(conditions[name], text)
			}
		})
	}
	for what, needs := range map[string]map[string][]string{"conditions": conditions, "resources": needs} {
		if _, circle := sorted(needs); circle != nil {
			all = append(all, fmt.Errorf("%s refer to each other: %s", what, strings.Join(circle, " → ")))
		}
	}
	return errors.Join(all...)
}

// references are the resources and parameters that a value refers to.
func (t *Template) references(v any) (ids []string) {
	walk(v, func(function string, argument any) {
		switch function {
		case "Ref":
			if text, ok := argument.(string); ok && !strings.HasPrefix(text, "AWS::") {
				ids = append(ids, text)
			}
		case "Fn::GetAtt":
			if id, _, err := attributeOf(argument); err == nil {
				ids = append(ids, id)
			}
		case "Fn::Sub":
			text, own, err := substitution(argument)
			if err != nil {
				return
			}
			for _, found := range variable.FindAllStringSubmatch(text, -1) {
				name, _, _ := strings.Cut(strings.TrimSpace(found[1]), ".")
				if own[name] == nil && !strings.HasPrefix(name, "!") && !strings.HasPrefix(name, "AWS::") {
					ids = append(ids, name)
				}
			}
		}
	})
	return ids
}

// walk calls found for each function in a value, the outer ones first.
func walk(v any, found func(function string, argument any)) {
	switch v := v.(type) {
	case map[string]any:
		if name, argument, ok := function(v); ok {
			found(name, argument)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			walk(v[key], found)
		}
	case []any:
		for _, member := range v {
			walk(member, found)
		}
	}
}
