package cloud

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/aws/template"
)

// Plan is what templates describe, as far as it runs here.
type Plan struct {
	Tables        []Table
	Queues        []Queue
	Topics        []Topic
	Subscriptions []Subscription
	Functions     []Function
	APIs          []API
	Mappings      []Mapping
	Schedules     []Schedule
	// Outputs are the values of the stacks' outputs, by the stack and the output's name. The URL of an API is that on this
	// machine. A stack without outputs is left out.
	Outputs map[string]map[string]string
	// Roles are those of the functions and of the templates, by their name, with what their policies say.
	Roles map[string]iam.Role
	// Silent are the resources without behaviour here, by their type.
	Silent map[string][]string
	// Notes say which properties have no effect here.
	Notes []string

	options ReadOptions
	stacks  []*stack
	exports map[string]func() (any, error)
}

// ReadOptions say how templates are read. Nil means the defaults.
type ReadOptions struct {
	// Ignore are types of resources that are left out.
	Ignore []string
	// Parameters are values of the templates' parameters.
	Parameters map[string]string
	// Endpoints are where the parts listen. Before they do, their URLs are any.
	Endpoints Endpoints
}

// Endpoints are the URLs of what runs.
type Endpoints struct {
	DynamoDB, Queues string
	// Functions is what functions have in place of AWS. It has Invoke of Lambda too.
	Functions string
	APIs      map[string]string // by their key
}

// notYet is in place of a URL before there is one.
const notYet = "http://127.0.0.1:1"

// Read reads the templates of a cloud assembly, or one template. The error has all that is wrong, a line each.
func Read(path string, o *ReadOptions) (*Plan, error) {
	stacks, err := template.Open(path)
	if err != nil {
		return nil, err
	}
	p := &Plan{Silent: map[string][]string{}, exports: map[string]func() (any, error){}}
	if o != nil {
		p.options = *o
	}
	var wrong []error
	for _, s := range stacks {
		if err := s.Template.Check(); err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				wrong = append(wrong, fmt.Errorf("%s: %s", s.Name, line))
			}
			continue
		}
		wrong = append(wrong, p.add(s)...)
	}
	for _, name := range slices.Sorted(maps.Keys(p.options.Parameters)) {
		if !slices.ContainsFunc(stacks, func(s template.Stack) bool { return s.Template.Parameters[name].Type != "" }) {
			wrong = append(wrong, fmt.Errorf("no template has a parameter %s", name))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	for _, r := range p.resources() {
		if r.kind.plan == nil {
			p.Silent[r.Type] = append(p.Silent[r.Type], r.String())
			continue
		}
		if err := r.kind.plan(p, r); err != nil {
			wrong = append(wrong, err)
		}
	}
	wrong = append(wrong, p.connect()...)
	p.evaluate()
	p.findRoles()
	return p, errors.Join(wrong...)
}

// add adds a stack with the resources that are deployed.
func (p *Plan) add(of template.Stack) (wrong []error) {
	s := &stack{plan: p, Stack: of, resources: map[string]*resource{}}
	s.scope = template.Scope{
		Template: of.Template, Stack: of.Name, Region: region, Account: account, Parameters: p.options.Parameters,
		Resource: s.attribute,
		Import: func(name string) (any, error) {
			if value, ok := p.exports[name]; ok {
				return value()
			}
			return nil, fmt.Errorf("no stack before %s exports %s", of.Name, name)
		},
	}
	p.stacks = append(p.stacks, s)
	unknown := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(of.Template.Resources)) {
		r := &resource{Resource: of.Template.Resources[id], id: id, stack: s}
		there, err := s.scope.Exists(r.Condition)
		if err != nil {
			wrong = append(wrong, r.fail("%w", err))
		}
		if !there {
			continue
		}
		known := false
		if r.kind, known = kinds[r.Type]; !known && !slices.Contains(p.options.Ignore, r.Type) {
			unknown[r.Type] = append(unknown[r.Type], r.String())
			continue
		}
		s.resources[id] = r
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		wrong = append(wrong, fmt.Errorf("%s is not known here (%s): leave it out with -ignore %s, if what runs can do "+
			"without", name, strings.Join(unknown[name], ", "), name))
	}
	for _, o := range of.Template.Outputs {
		if there, err := s.scope.Exists(o.Condition); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: an output: %w", s.Name, err))
		} else if !there || o.Export.Name == nil {
			continue
		}
		name, err := s.scope.Eval(o.Export.Name)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: an output's name: %w", s.Name, err))
			continue
		}
		p.exports[fmt.Sprint(name)] = func() (any, error) { return s.scope.Eval(o.Value) }
	}
	return wrong
}

// resources are those of all stacks, in the order of the stacks and of their ids.
func (p *Plan) resources() (all []*resource) {
	for _, s := range p.stacks {
		for _, id := range slices.Sorted(maps.Keys(s.resources)) {
			all = append(all, s.resources[id])
		}
	}
	return all
}

func (s *stack) attribute(id, name string) (any, error) {
	r, ok := s.resources[id]
	if !ok {
		return nil, fmt.Errorf("%s is not deployed", id)
	}
	return r.attribute(name)
}

// function is the one of that name; nil if there is none.
func (p *Plan) function(name string) *Function {
	if at := slices.IndexFunc(p.Functions, func(f Function) bool { return f.Name == name }); at >= 0 {
		return &p.Functions[at]
	}
	return nil
}

// connect finds what the parts name each other by, and refuses what is not there.
func (p *Plan) connect() (wrong []error) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	type part struct{ kind, name string }
	known := map[part]bool{}
	add := func(kind, name string) {
		if known[part{kind, name}] {
			fail("two %ss have the name %s", kind, name)
		}
		known[part{kind, name}] = true
	}
	needs := func(of *resource, kind, name, why string) bool {
		if !known[part{kind, name}] {
			fail("%s: there is no %s %s%s", of, kind, name, why)
		}
		return known[part{kind, name}]
	}
	for _, f := range p.Functions {
		add("function", f.Name)
	}
	for _, q := range p.Queues {
		add("queue", q.Name)
	}
	for _, t := range p.Topics {
		add("topic", t.Name)
	}
	for _, t := range p.Tables {
		add("table", t.Name)
	}
	for _, s := range p.Subscriptions {
		needs(s.of, "topic", s.Topic, "")
		needs(s.of, "queue", s.Queue, "")
	}
	for _, q := range p.Queues {
		if q.DeadLetters != "" {
			needs(q.of, "queue", q.DeadLetters, " for its dead letters")
		}
	}
	for _, m := range p.Mappings {
		if !needs(m.of, "function", m.Function, "") || m.Queue != "" && !needs(m.of, "queue", m.Queue, "") ||
			m.Table != "" && !needs(m.of, "table", m.Table, "") {
			continue
		}
		if err := m.check(p); err != nil {
			fail("%s: %w", m.of, err)
		}
	}
	for _, s := range p.Schedules {
		needs(s.of, "function", s.Function, "")
	}
	for _, a := range p.APIs {
		if err := a.check(); err != nil {
			fail("%s: %w", a.of, err)
		}
		for _, route := range slices.Sorted(maps.Keys(a.Routes)) {
			if f := a.Routes[route].Function; p.function(f) == nil {
				fail("%s: the route %s has no function: there is no %s", a.of, route, f)
			}
			if by := a.Routes[route].Authorizer; by != nil && p.function(by.Name) == nil {
				fail("%s: the route %s has no authorizer: there is no function %s", a.of, route, by.Name)
			}
		}
	}
	return wrong
}
