package streampoller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// pattern is that of an event source mapping's filter: an object in the form of the record, whose
// leaves are lists of rules. A field must match one of its rules, and all fields must match.
//
// Source: AWS Lambda developer guide, "Control which events Lambda sends to your function".
type pattern map[string]any

// parse reads a pattern, and refuses rules that [pattern.matches] does not know. Empty is the empty one.
func parse(filter string) (p pattern, err error) {
	if filter == "" {
		return pattern{}, nil
	}
	if err := json.Unmarshal([]byte(filter), &p); err != nil {
		return nil, fmt.Errorf("streampoller: filter %q: %w", filter, err)
	}
	if err := check(map[string]any(p)); err != nil {
		return nil, fmt.Errorf("streampoller: filter %q: %w", filter, err)
	}
	return p, nil
}

func check(value any) error {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if err := check(inner); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	case []any:
		for _, rule := range v {
			operator, _ := rule.(map[string]any)
			_, text := rule.(string)
			_, prefix := operator["prefix"].(string)
			if !text && (len(operator) != 1 || !prefix && operator["exists"] != true) {
				return fmt.Errorf("the rule %v is not imitated", rule)
			}
		}
		return nil
	}
	return fmt.Errorf("%v is neither an object nor a list of rules", value)
}

// matches reports whether a record, as the function would get it, matches. Every record matches the
// empty pattern.
func (p pattern) matches(record []byte) bool {
	var fields map[string]any
	return json.Unmarshal(record, &fields) == nil && matches(map[string]any(p), fields)
}

func matches(pattern, value any) bool {
	rules, leaf := pattern.([]any)
	if !leaf {
		object, _ := value.(map[string]any)
		for name, inner := range pattern.(map[string]any) {
			if !matches(inner, object[name]) {
				return false
			}
		}
		return true
	}
	text, ok := value.(string)
	return ok && slices.ContainsFunc(rules, func(rule any) bool {
		operator, ok := rule.(map[string]any)
		if !ok {
			return rule == text
		}
		prefix, _ := operator["prefix"].(string) // none: it exists
		return strings.HasPrefix(text, prefix)
	})
}
