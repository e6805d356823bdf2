package streampoller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// Filter is a compiled pattern of an event source mapping's filter criteria.
//
// A pattern is a JSON object shaped as the record; the fields that it names must
// all match. A leaf is an array of rules, of which one must match: a string,
// number, true, false or null that the field equals, or one of
//
//	{"prefix": "a"}                  {"suffix": "a"}
//	{"equals-ignore-case": "a"}      {"exists": true}
//	{"anything-but": ["a", 1]}       {"numeric": [">", 0, "<=", 10]}
//
// A field that is an array matches if one of its elements does. Everything else
// that AWS has ($or, wildcard, cidr, nested anything-but) is refused. Numbers of
// an item are strings ({"N": "12"}) and are compared as such, so numeric is for
// fields such as SizeBytes.
//
// Source: AWS Lambda developer guide, "Control which events Lambda sends to your
// function"; Amazon EventBridge user guide, "Comparison operators".
type Filter struct{ fields []field }

// field is one member of a pattern's object: an object again, or rules.
type field struct {
	name  string
	inner []field // of an object
	rules []rule  // of a leaf
}

// rule says whether a leaf's value matches; present is false if there is none.
type rule func(value any, present bool) bool

// ParseFilter compiles a pattern. The error says what is wrong with it and where.
func ParseFilter(pattern string) (*Filter, error) {
	v, err := decode([]byte(pattern))
	if err != nil {
		return nil, fmt.Errorf("streampoller: filter %q is not JSON: %w", pattern, err)
	}
	object, ok := v.(map[string]any)
	if !ok || len(object) == 0 {
		return nil, fmt.Errorf("streampoller: filter %q: use a JSON object that names at least one field", pattern)
	}
	fields, err := parseObject(object, "")
	if err != nil {
		return nil, fmt.Errorf("streampoller: filter %q: %w", pattern, err)
	}
	return &Filter{fields}, nil
}

// Match reports whether a record, as the function would get it, matches.
func (f *Filter) Match(record []byte) (bool, error) {
	v, err := decode(record)
	if err != nil {
		return false, fmt.Errorf("streampoller: the record is not JSON: %w", err)
	}
	return matchObject(f.fields, v), nil
}

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON value")
	}
	return v, nil
}

func parseObject(object map[string]any, path string) ([]field, error) {
	var fields []field
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		f := field{name: name}
		var err error
		switch v := object[name].(type) {
		case map[string]any:
			if len(v) == 0 {
				return nil, fmt.Errorf("%s is an empty object: name a field in it", at)
			}
			f.inner, err = parseObject(v, at)
		case []any:
			switch {
			case strings.HasPrefix(name, "$"):
				err = fmt.Errorf("%s is not imitated", at)
			case len(v) == 0:
				err = fmt.Errorf("%s is an empty array: give it at least one rule", at)
			}
			for _, r := range v {
				if err != nil {
					break
				}
				var compiled rule
				compiled, err = parseRule(r, at)
				f.rules = append(f.rules, compiled)
			}
		default:
			err = fmt.Errorf("%s must be an object or an array of rules, as [%s]", at, toJSON(v))
		}
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func parseRule(v any, at string) (rule, error) {
	operator, ok := v.(map[string]any)
	if !ok {
		if _, nested := v.([]any); nested {
			return nil, fmt.Errorf("%s: a rule cannot be an array", at)
		}
		return func(value any, present bool) bool { return present && equal(v, value) }, nil
	}
	if len(operator) != 1 {
		return nil, fmt.Errorf("%s: a rule has one operator, this one has %d", at, len(operator))
	}
	for name, argument := range operator {
		if parse := operators[name]; parse != nil {
			r, err := parse(argument)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", at, name, err)
			}
			return r, nil
		}
		return nil, fmt.Errorf("%s: operator %q is not imitated; there are %s", at, name,
			strings.Join(slices.Sorted(maps.Keys(operators)), ", "))
	}
	panic("unreachable")
}

var operators = map[string]func(any) (rule, error){
	"prefix":             text(strings.HasPrefix),
	"suffix":             text(strings.HasSuffix),
	"equals-ignore-case": text(strings.EqualFold),
	"exists": func(v any) (rule, error) {
		want, ok := v.(bool)
		if !ok {
			return nil, fmt.Errorf("use true or false")
		}
		return func(_ any, present bool) bool { return present == want }, nil
	},
	"anything-but": func(v any) (rule, error) {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("the list is empty")
		}
		for _, e := range list {
			switch e.(type) {
			case string, json.Number:
			default:
				return nil, fmt.Errorf("%s: only strings and numbers are imitated", toJSON(e))
			}
		}
		return func(value any, present bool) bool {
			return present && !slices.ContainsFunc(list, func(e any) bool { return equal(e, value) })
		}, nil
	},
	"numeric": parseNumeric,
}

// text makes a rule of a comparison of strings.
func text(compare func(value, argument string) bool) func(any) (rule, error) {
	return func(v any) (rule, error) {
		argument, ok := v.(string)
		if !ok || argument == "" {
			return nil, fmt.Errorf("use a string that is not empty")
		}
		return func(value any, _ bool) bool {
			s, ok := value.(string)
			return ok && compare(s, argument)
		}, nil
	}
}

func parseNumeric(v any) (rule, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 && len(list) != 4 {
		return nil, fmt.Errorf(`use ["=", 1] or a range such as [">", 0, "<=", 10]`)
	}
	type bound struct {
		operator string
		number   *big.Rat
	}
	var bounds []bound
	for i := 0; i < len(list); i += 2 {
		op, ok := list[i].(string)
		if !ok || !slices.Contains([]string{"=", "<", "<=", ">", ">="}, op) {
			return nil, fmt.Errorf("%s is none of = < <= > >=", toJSON(list[i]))
		}
		n, ok := number(list[i+1])
		if !ok {
			return nil, fmt.Errorf("%s is no number in the range of a filter", toJSON(list[i+1]))
		}
		bounds = append(bounds, bound{op, n})
	}
	if len(bounds) == 2 && (bounds[0].operator[0] != '>' || bounds[1].operator[0] != '<') {
		return nil, fmt.Errorf("a range has its lower bound first, with > or >=, then the upper one, with < or <=")
	}
	return func(value any, _ bool) bool {
		n, ok := number(value)
		if !ok {
			return false
		}
		for _, b := range bounds {
			c := n.Cmp(b.number)
			if !(c == 0 && strings.Contains(b.operator, "=") || c < 0 && b.operator[0] == '<' || c > 0 && b.operator[0] == '>') {
				return false
			}
		}
		return true
	}, nil
}

// limit is the largest number that AWS's numeric rules take: five billion.
var limit = big.NewRat(5e9, 1)

func number(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > 32 {
		return nil, false
	}
	if _, exponent, found := strings.Cut(strings.ToLower(string(n)), "e"); found && len(strings.TrimLeft(exponent, "+-0")) > 2 {
		return nil, false // out of range, or nothing: not worth expanding
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok || new(big.Rat).Abs(r).Cmp(limit) > 0 {
		return nil, false
	}
	return r, true
}

func equal(a, b any) bool {
	if x, ok := a.(json.Number); ok {
		y, ok := b.(json.Number)
		if !ok {
			return false
		}
		m, mok := number(x)
		n, nok := number(y)
		return x == y || mok && nok && m.Cmp(n) == 0
	}
	return a == b // scalars; an object or array is compared with scalars alone
}

// matchObject reports whether all fields match in v, or in one element of v if it
// is an array.
func matchObject(fields []field, v any) bool {
	if list, ok := v.([]any); ok && len(list) > 0 {
		return slices.ContainsFunc(list, func(e any) bool { return matchObject(fields, e) })
	}
	object, _ := v.(map[string]any) // of nothing, every field is absent
	for _, f := range fields {
		value, present := object[f.name]
		if f.inner != nil {
			if !matchObject(f.inner, value) {
				return false
			}
			continue
		}
		if !matchLeaf(f.rules, value, present) {
			return false
		}
	}
	return true
}

func matchLeaf(rules []rule, value any, present bool) bool {
	if list, ok := value.([]any); ok {
		if len(list) == 0 {
			present, value = false, nil
		} else {
			return slices.ContainsFunc(list, func(e any) bool { return matchLeaf(rules, e, true) })
		}
	}
	if _, object := value.(map[string]any); object {
		present, value = false, nil // rules are about leaves
	}
	return slices.ContainsFunc(rules, func(r rule) bool { return r(value, present) })
}

func toJSON(v any) string {
	b, _ := json.Marshal(v) // it was JSON
	return string(b)
}
