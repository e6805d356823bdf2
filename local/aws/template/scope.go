package template

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scope is what the references and functions of a template mean. It is safe for concurrent use if its functions are.
type Scope struct {
	Template *Template
	// Stack is the stack's name. Region and Account have the values of this machine where they are empty: us-east-1 and
	// 123456789012.
	Stack, Region, Account string
	// Parameters overrides the defaults of parameters.
	Parameters map[string]string
	// Resource is an attribute of a resource of this template. Without a name it is what Ref gives.
	Resource func(id, attribute string) (any, error)
	// Import is a value that another stack exports.
	Import func(name string) (any, error)
}

// noValue is what AWS::NoValue gives: the property, or the member of a list, is not there.
type noValue struct{}

// function is a value's only member, if it is a function.
func function(v map[string]any) (name string, argument any, ok bool) {
	if len(v) != 1 {
		return "", nil, false
	}
	for name, argument = range v {
	}
	return name, argument, name == "Ref" || name == "Condition" || strings.HasPrefix(name, "Fn::")
}

func (s *Scope) Properties(id string) (map[string]any, error) {
	v, err := s.Eval(s.Template.Resources[id].Properties)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	m, _ := v.(map[string]any) // of a map
	return m, nil
}

// Exists says whether the condition of a resource or an output, if it has one, is met.
func (s *Scope) Exists(condition string) (bool, error) {
	if condition == "" {
		return true, nil
	}
	return s.condition(condition)
}

// Eval is a value with its references and functions replaced.
func (s *Scope) Eval(v any) (any, error) {
	out, err := s.eval(v)
	if _, none := out.(noValue); none {
		return nil, err
	}
	return out, err
}

func (s *Scope) eval(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		if name, argument, ok := function(v); ok {
			out, err := s.call(name, argument)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return out, nil
		}
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			member, err := s.eval(v[key])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			if _, none := member.(noValue); !none {
				out[key] = member
			}
		}
		return out, nil
	case []any:
		out := make([]any, 0, len(v))
		for _, m := range v {
			member, err := s.eval(m)
			if err != nil {
				return nil, err
			}
			if _, none := member.(noValue); !none {
				out = append(out, member)
			}
		}
		return out, nil
	}
	return v, nil
}

func (s *Scope) call(name string, argument any) (any, error) {
	switch name {
	case "Ref":
		return s.ref(argument)
	case "Fn::If":
		return s.choose(argument)
	case "Fn::Sub":
		return s.substitute(argument)
	case "Condition", "Fn::And", "Fn::Or", "Fn::Not", "Fn::Equals":
		return s.holds(map[string]any{name: argument})
	}
	argument, err := s.Eval(argument)
	if err != nil {
		return nil, err
	}
	if f, ok := ofLists[name]; ok {
		list, _ := argument.([]any)
		if len(list) != f.takes {
			return nil, fmt.Errorf("its arguments are wrong: %v", argument)
		}
		return f.do(s, list)
	}
	switch name {
	case "Fn::GetAtt":
		id, attribute, err := attributeOf(argument)
		if err != nil {
			return nil, err
		}
		return s.Resource(id, attribute)
	case "Fn::ImportValue":
		export, err := Text(argument)
		if err != nil {
			return nil, err
		}
		if s.Import == nil {
			return nil, fmt.Errorf("no other stack exports %q", export)
		}
		return s.Import(export)
	case "Fn::Base64":
		text, err := Text(argument)
		return base64.StdEncoding.EncodeToString([]byte(text)), err
	case "Fn::GetAZs":
		region := s.pseudo("AWS::Region")
		return []any{region + "a", region + "b", region + "c"}, nil
	}
	return nil, errors.New("there is no such function here")
}

// ofLists are the functions of a list of a certain length.
var ofLists = map[string]struct {
	takes int
	do    func(*Scope, []any) (any, error)
}{"Fn::Join": {2, join}, "Fn::Split": {2, split}, "Fn::Select": {2, pick}, "Fn::FindInMap": {3, (*Scope).find}}

// pseudo is the value of a pseudo-parameter; empty if there is no such one.
func (s *Scope) pseudo(name string) string {
	region, account := cmp.Or(s.Region, "us-east-1"), cmp.Or(s.Account, "123456789012")
	return map[string]string{
		"AWS::Region": region, "AWS::AccountId": account, "AWS::Partition": "aws", "AWS::StackName": s.Stack,
		"AWS::StackId":   fmt.Sprintf("arn:aws:cloudformation:%s:%s:stack/%s/local", region, account, s.Stack),
		"AWS::URLSuffix": "amazonaws.com",
	}[name]
}

func (s *Scope) ref(argument any) (any, error) {
	name, err := Text(argument)
	if err != nil {
		return nil, err
	}
	switch name {
	case "AWS::NoValue":
		return noValue{}, nil
	case "AWS::NotificationARNs":
		return []any{}, nil
	}
	if v := s.pseudo(name); v != "" {
		return v, nil
	}
	p, ok := s.Template.Parameters[name]
	value, given := s.Parameters[name]
	switch {
	case !ok:
		return s.Resource(name, "")
	case given:
		return p.value(value), nil
	case strings.HasPrefix(p.Type, "AWS::SSM::Parameter::Value<"):
		return nil, fmt.Errorf("parameter %s has a value in SSM on AWS: give it with -parameter %s=VALUE", name, name)
	case p.Default == nil:
		return nil, fmt.Errorf("parameter %s has no default: give it with -parameter %s=VALUE", name, name)
	}
	text, err := Text(p.Default)
	return p.value(text), err
}

// value is a parameter's: text, or a list of texts.
func (p Parameter) value(text string) any {
	if p.Type != "CommaDelimitedList" && !strings.HasPrefix(p.Type, "List<") {
		return text
	}
	var list []any
	for part := range strings.SplitSeq(text, ",") {
		list = append(list, strings.TrimSpace(part))
	}
	return list
}

// attributeOf reads the argument of Fn::GetAtt: a list, or a text with a dot.
func attributeOf(argument any) (id, attribute string, err error) {
	if text, ok := argument.(string); ok {
		if id, attribute, ok = strings.Cut(text, "."); ok {
			return id, attribute, nil
		}
	}
	if list, ok := argument.([]any); ok && len(list) == 2 {
		parts, err := texts(list)
		if err != nil {
			return "", "", err
		}
		return parts[0], parts[1], nil
	}
	return "", "", fmt.Errorf("%v names no attribute of a resource", argument)
}

// variable of a text in Fn::Sub. One that begins with an exclamation mark is not replaced.
var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// substitution reads the argument of Fn::Sub: a text, or a text with variables of its own.
func substitution(argument any) (text string, own map[string]any, err error) {
	if list, ok := argument.([]any); ok && len(list) == 2 {
		own, ok = list[1].(map[string]any)
		if !ok {
			return "", nil, fmt.Errorf("%v is no map of variables", list[1])
		}
		argument = list[0]
	}
	text, ok := argument.(string)
	if !ok {
		return "", nil, fmt.Errorf("%v is no text", argument)
	}
	return text, own, nil
}

func (s *Scope) substitute(argument any) (any, error) {
	text, own, err := substitution(argument)
	if err != nil {
		return nil, err
	}
	var failed error
	out := variable.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.TrimSpace(found[2 : len(found)-1])
		if literal, ok := strings.CutPrefix(name, "!"); ok {
			return "${" + literal + "}"
		}
		var v any
		var err error
		if mine, ok := own[name]; ok {
			v, err = s.Eval(mine)
		} else if id, attribute, ok := strings.Cut(name, "."); ok {
			v, err = s.Resource(id, attribute)
		} else {
			v, err = s.ref(name)
		}
		value := ""
		if err == nil {
			value, err = Text(v)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", found, err))
		}
		return value
	})
	return out, failed
}

func (s *Scope) choose(argument any) (any, error) {
	list, ok := argument.([]any)
	if !ok || len(list) != 3 {
		return nil, fmt.Errorf("it takes a condition and two values: %v", argument)
	}
	name, _ := list[0].(string)
	met, err := s.condition(name)
	switch {
	case err != nil:
		return nil, err
	case met:
		return s.eval(list[1])
	}
	return s.eval(list[2])
}

func (s *Scope) condition(name string) (bool, error) {
	c, ok := s.Template.Conditions[name]
	if !ok {
		return false, fmt.Errorf("there is no condition %q", name)
	}
	return s.holds(c)
}

// holds evaluates a condition.
func (s *Scope) holds(v any) (bool, error) {
	m, _ := v.(map[string]any)
	name, argument, _ := function(m)
	if name == "Condition" {
		text, _ := argument.(string)
		return s.condition(text)
	}
	list, _ := argument.([]any)
	switch {
	case name == "Fn::Equals" && len(list) == 2:
		a, err := s.Eval(list[0])
		if err != nil {
			return false, err
		}
		b, err := s.Eval(list[1])
		return fmt.Sprint(a) == fmt.Sprint(b), err
	case name == "Fn::Not" && len(list) == 1:
		met, err := s.holds(list[0])
		return !met, err
	case (name == "Fn::And" || name == "Fn::Or") && len(list) > 0:
		for _, c := range list {
			met, err := s.holds(c)
			if err != nil || met == (name == "Fn::Or") {
				return met, err
			}
		}
		return name == "Fn::And", nil
	}
	return false, fmt.Errorf("%v is no condition", v)
}

func (s *Scope) find(list []any) (any, error) {
	keys, err := texts(list)
	if err != nil {
		return nil, err
	}
	v, ok := s.Template.Mappings[keys[0]][keys[1]][keys[2]]
	if !ok {
		return nil, fmt.Errorf("no mapping has %s", strings.Join(keys, ", "))
	}
	return v, nil
}

func join(_ *Scope, of []any) (any, error) {
	list, ok := of[1].([]any)
	if !ok {
		return nil, fmt.Errorf("%v is no list", of[1])
	}
	parts, err := texts(list)
	if err != nil {
		return nil, err
	}
	separator, err := Text(of[0])
	return strings.Join(parts, separator), err
}

func split(_ *Scope, of []any) (any, error) {
	parts, err := texts(of)
	if err != nil {
		return nil, err
	}
	var list []any
	for part := range strings.SplitSeq(parts[1], parts[0]) {
		list = append(list, part)
	}
	return list, nil
}

func pick(_ *Scope, of []any) (any, error) {
	index, err := Text(of[0])
	if err != nil {
		return nil, err
	}
	list, ok := of[1].([]any)
	n, err := strconv.Atoi(index)
	if err != nil || !ok || n < 0 || n >= len(list) {
		return nil, fmt.Errorf("%v has no member %s", of[1], index)
	}
	return list[n], nil
}

func texts(values []any) (all []string, err error) {
	for _, v := range values {
		text, err := Text(v)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// Text is a value as text, as CloudFormation takes a number or a truth value where it expects text.
func Text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("%v is no text", v)
}
