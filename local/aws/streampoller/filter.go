package streampoller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// Filter is a compiled pattern of an event source mapping's filter criteria.
//
// A pattern is a JSON object in the form of the record; all fields in it must match. A leaf
// is an array of rules, and one of them must match: a string, number, true, false or null
// that the field equals, or one of
//
//	{"prefix": "a"}                  {"suffix": "a"}
//	{"equals-ignore-case": "a"}      {"exists": true}
//	{"anything-but": ["a", 1]}       {"numeric": [">", 0, "<=", 10]}
//
// A field that is an array matches if one of its elements does. AWS's other rules ($or,
// wildcard, cidr, nested anything-but) are refused. Numbers of
// an item are strings ({"N": "12"}) and are compared as such, so numeric is for
// fields such as SizeBytes.
//
// Source: AWS Lambda developer guide, "Control which events Lambda sends to your
// function"; Amazon EventBridge user guide, "Comparison operators".
type Filter struct{ matches matcher }

// matcher says whether a value matches; present is false if there is none.
type matcher func(value any, present bool) bool

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
	m, err := compile(object, "")
	if err != nil {
		return nil, fmt.Errorf("streampoller: filter %q: %w", pattern, err)
	}
	return &Filter{m}, nil
}

// Match reports whether a record, as the function would get it, matches.
func (f *Filter) Match(record []byte) (bool, error) {
	v, err := decode(record)
	if err != nil {
		return false, fmt.Errorf("streampoller: the record is not JSON: %w", err)
	}
	return f.matches(v, true), nil
}

func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

// compile compiles an object of fields or a leaf of rules.
func compile(pattern any, at string) (matcher, error) {
	var all []matcher
	switch p := pattern.(type) {
	case map[string]any:
		if len(p) == 0 {
			return nil, fmt.Errorf("%s is an empty object: name a field in it", at)
		}
		for _, name := range slices.Sorted(maps.Keys(p)) {
			inner := strings.TrimPrefix(at+"."+name, ".")
			if strings.HasPrefix(name, "$") {
				return nil, fmt.Errorf("%s is not imitated", inner)
			}
			m, err := compile(p[name], inner)
			if err != nil {
				return nil, err
			}
			all = append(all, func(value any, _ bool) bool {
				object, _ := value.(map[string]any) // of nothing, every field is absent
				field, present := object[name]
				return m(field, present)
			})
		}
		return inElements(func(value any, present bool) bool {
			return !slices.ContainsFunc(all, func(m matcher) bool { return !m(value, present) })
		}), nil
	case []any:
		if len(p) == 0 {
			return nil, fmt.Errorf("%s is an empty array: give it at least one rule", at)
		}
		for _, r := range p {
			m, err := compileRule(r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			all = append(all, m)
		}
		return inElements(func(value any, present bool) bool {
			if _, object := value.(map[string]any); object {
				present, value = false, nil // rules are about leaves
			}
			return slices.ContainsFunc(all, func(m matcher) bool { return m(value, present) })
		}), nil
	}
	return nil, fmt.Errorf("%s must be an object or an array of rules, as [%s]", at, toJSON(pattern))
}

// inElements applies a matcher to the elements of an array. One element must match; an empty
// array counts as absent.
func inElements(m matcher) matcher {
	return func(value any, present bool) bool {
		list, ok := value.([]any)
		switch {
		case !ok:
			return m(value, present)
		case len(list) == 0:
			return m(nil, false)
		}
		return slices.ContainsFunc(list, func(e any) bool { return inElements(m)(e, true) })
	}
}

func compileRule(v any) (matcher, error) {
	operator, ok := v.(map[string]any)
	if !ok {
		if _, nested := v.([]any); nested {
			return nil, errors.New("a rule cannot be an array")
		}
		return func(value any, present bool) bool { return present && equal(v, value) }, nil
	}
	if len(operator) != 1 {
		return nil, fmt.Errorf("a rule has one operator, this one has %d", len(operator))
	}
	name := slices.Collect(maps.Keys(operator))[0]
	parse := operators[name]
	if parse == nil {
		return nil, fmt.Errorf("operator %q is not imitated; there are %s", name, strings.Join(slices.Sorted(maps.Keys(operators)), ", "))
	}
	m, err := parse(operator[name])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

var operators = map[string]func(any) (matcher, error){
	"prefix":             text(strings.HasPrefix),
	"suffix":             text(strings.HasSuffix),
	"equals-ignore-case": text(strings.EqualFold),
	"exists": func(v any) (matcher, error) {
		want, ok := v.(bool)
		if !ok {
			return nil, errors.New("use true or false")
		}
		return func(_ any, present bool) bool { return present == want }, nil
	},
	"anything-but": func(v any) (matcher, error) {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		if len(list) == 0 {
			return nil, errors.New("the list is empty")
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
	"numeric": compileNumeric,
}

// text makes a rule of a comparison of strings.
func text(compare func(value, argument string) bool) func(any) (matcher, error) {
	return func(v any) (matcher, error) {
		argument, ok := v.(string)
		if !ok || argument == "" {
			return nil, errors.New("use a string that is not empty")
		}
		return func(value any, _ bool) bool {
			s, ok := value.(string)
			return ok && compare(s, argument)
		}, nil
	}
}

// comparisons are the operators of numeric, by the sign of a comparison.
var comparisons = map[any]func(sign int) bool{
	"=":  func(sign int) bool { return sign == 0 },
	"<":  func(sign int) bool { return sign < 0 },
	"<=": func(sign int) bool { return sign <= 0 },
	">":  func(sign int) bool { return sign > 0 },
	">=": func(sign int) bool { return sign >= 0 },
}

func compileNumeric(v any) (matcher, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 && len(list) != 4 {
		return nil, errors.New(`use ["=", 1] or a range such as [">", 0, "<=", 10]`)
	}
	var bounds []func(*big.Rat) bool
	for i := 0; i < len(list); i += 2 {
		operator, _ := list[i].(string)
		holds := comparisons[operator]
		if holds == nil {
			return nil, fmt.Errorf("%s is none of = < <= > >=", toJSON(list[i]))
		}
		limit, ok := number(list[i+1])
		if !ok {
			return nil, fmt.Errorf("%s is not a number in the range of a filter", toJSON(list[i+1]))
		}
		if len(list) == 4 && !strings.HasPrefix(operator, []string{">", "<"}[i/2]) {
			return nil, errors.New("a range has its lower bound first, with > or >=, then the upper one, with < or <=")
		}
		bounds = append(bounds, func(n *big.Rat) bool { return holds(n.Cmp(limit)) })
	}
	return func(value any, _ bool) bool {
		n, ok := number(value)
		return ok && !slices.ContainsFunc(bounds, func(holds func(*big.Rat) bool) bool { return !holds(n) })
	}, nil
}

// limit is the largest number in AWS's numeric rules: five billion.
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

// equal compares scalars; an object or array equals nothing.
func equal(a, b any) bool {
	m, mok := number(a)
	n, nok := number(b)
	if mok && nok {
		return m.Cmp(n) == 0
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

func toJSON(v any) string {
	b, _ := json.Marshal(v) // it was JSON
	return string(b)
}
