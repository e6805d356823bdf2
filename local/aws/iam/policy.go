package iam

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// answer says whether something is so. The answers to two questions combine by min (and) and max (or).
type answer int8

const (
	no answer = iota
	unknown
	yes
)

// patterns match what one of them matches or, if not is set, what none of them does. What matches only a pattern with
// a policy variable in it may match.
type patterns struct {
	closed, open []*regexp.Regexp
	not          bool
}

// variable is a policy variable.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// compile makes patterns of texts. flags are those of package regexp; wild gives * and ? their meaning.
func compile(texts []word, not bool, flags string, wild bool) patterns {
	p := patterns{not: not}
	for _, text := range texts {
		const any = "\x00"
		expression := regexp.QuoteMeta(variable.ReplaceAllString(string(text), any))
		if wild {
			expression = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(expression)
		}
		closed := strings.ReplaceAll(expression, any, ".*")
		re := regexp.MustCompile("(?s" + flags + ")^" + closed + "$")
		if closed == expression {
			p.closed = append(p.closed, re)
		} else {
			p.open = append(p.open, re)
		}
	}
	return p
}

func (p patterns) match(text string) answer {
	matches := func(re *regexp.Regexp) bool { return re.MatchString(text) }
	a := no
	if slices.ContainsFunc(p.closed, matches) {
		a = yes
	} else if slices.ContainsFunc(p.open, matches) {
		a = unknown
	}
	if p.not {
		return yes - a
	}
	return a
}

// List is a list, which may also be written as its only member.
type List[T any] []T

func (l *List[T]) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]T)(l))
	}
	*l = make([]T, 1)
	return json.Unmarshal(text, &(*l)[0])
}

// word is a text. Numbers and truth values become text.
type word string

func (w *word) UnmarshalJSON(text []byte) error {
	if strings.Contains(`"{[`, string(text[:1])) {
		return json.Unmarshal(text, (*string)(w))
	}
	*w = word(text)
	return nil
}

// Policy is a policy of a role.
type Policy struct {
	Name       string // what reports call it
	statements []statement
}

type statement struct {
	deny               bool
	actions, resources patterns
	conditions         []condition
}

// Parse reads the document of a policy, of plain values: the functions of its template are evaluated.
func Parse(name string, document any) (Policy, error) {
	var is struct {
		Statement List[struct {
			Effect                                   string
			Action, NotAction, Resource, NotResource List[word]
			Condition                                map[string]map[string]List[word]
		}]
	}
	p := Policy{Name: name}
	text, err := json.Marshal(document)
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		return p, fmt.Errorf("%s is no policy: %w", name, err)
	}
	for _, w := range is.Statement {
		s := statement{deny: w.Effect == "Deny",
			actions:   compile(slices.Concat(w.Action, w.NotAction), w.NotAction != nil, "i", true),
			resources: compile(slices.Concat(w.Resource, w.NotResource), w.NotResource != nil, "", true)}
		if !s.deny && w.Effect != "Allow" || len(w.Action)+len(w.NotAction) == 0 || len(w.Resource)+len(w.NotResource) == 0 {
			return p, fmt.Errorf("%s is no policy: a statement needs an Effect, an Action and a Resource", name)
		}
		for _, operator := range slices.Sorted(maps.Keys(w.Condition)) {
			for _, key := range slices.Sorted(maps.Keys(w.Condition[operator])) {
				s.conditions = append(s.conditions, newCondition(operator, key, w.Condition[operator][key]))
			}
		}
		p.statements = append(p.statements, s)
	}
	return p, nil
}

// applies says whether the statement is about a request. why is the condition without which it would be, or what is
// not evaluated.
func (s statement) applies(q Request) (a answer, why string) {
	a, resource := s.actions.match(q.Action), s.resources.match(q.Resource)
	if q.Resource == "" && (resource == no || s.resources.not) {
		resource = unknown
	}
	if a = min(a, resource); a == unknown {
		why = "the Resource"
	}
	for _, c := range s.conditions {
		if a == no {
			break
		}
		if met := c.holds(q); met != yes {
			a, why = met, c.text
		}
	}
	return a, why
}

// operators of conditions that are evaluated, without Not.
var operators = map[string]struct {
	flags string
	wild  bool
}{
	"StringEquals": {}, "StringEqualsIgnoreCase": {flags: "i"}, "StringLike": {wild: true}, "ArnEquals": {wild: true},
	"ArnLike": {wild: true}, "Bool": {flags: "i"}, "Null": {flags: "i"},
}

type condition struct {
	text, key, set  string
	values          patterns
	evaluated, null bool
	absent          answer // if the key has no value
}

func newCondition(operator, key string, values []word) condition {
	c := condition{text: operator + " of " + key, key: strings.ToLower(key)}
	i := strings.Index(operator, ":") + 1
	c.set = operator[:i]
	name, ifExists := strings.CutSuffix(operator[i:], "IfExists")
	positive := strings.Replace(name, "Not", "", 1)
	how, evaluated := operators[positive]
	c.evaluated, c.null = evaluated, name == "Null"
	c.values = compile(values, positive != name, how.flags, how.wild)
	if c.set == "ForAllValues:" || c.set == "" && (ifExists || c.values.not) {
		c.absent = yes
	}
	return c
}

func (c condition) holds(q Request) answer {
	values, known := q.Context[c.key]
	if !known {
		values, known = everywhere[c.key]
	}
	switch {
	case !c.evaluated || !known || c.set == "" && len(values) > 1:
		return unknown
	case c.null:
		return c.values.match(strconv.FormatBool(len(values) == 0))
	case len(values) == 0:
		return c.absent
	}
	all, one := yes, no
	for _, v := range values {
		a := c.values.match(v)
		all, one = min(all, a), max(one, a)
	}
	if c.set == "ForAnyValue:" {
		return one
	}
	return all
}
