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

// connect finds what the parts name each other by, and refuses what is not there.
func (p *Plan) connect() (wrong []error) {
	has := func(all []string, name string) bool { return slices.Contains(all, name) }
	var functions, queues, topics, tables []string
	add := func(all *[]string, kind, name string) {
		if has(*all, name) {
			wrong = append(wrong, fmt.Errorf("two %s have the name %s", kind, name))
		}
		*all = append(*all, name)
	}
	for _, f := range p.Functions {
		add(&functions, "functions", f.Name)
	}
	for _, q := range p.Queues {
		add(&queues, "queues", q.Name)
	}
	for _, t := range p.Topics {
		add(&topics, "topics", t.Name)
	}
	for _, t := range p.Tables {
		add(&tables, "tables", t.Name)
	}
	for _, s := range p.Subscriptions {
		switch {
		case !has(topics, s.Topic):
			wrong = append(wrong, fmt.Errorf("%s: there is no topic %s", s.of, s.Topic))
		case !has(queues, s.Queue):
			wrong = append(wrong, fmt.Errorf("%s: there is no queue %s", s.of, s.Queue))
		}
	}
	for _, q := range p.Queues {
		if q.DeadLetters != "" && !has(queues, q.DeadLetters) {
			wrong = append(wrong, fmt.Errorf("%s: there is no queue %s for its dead letters", q.of, q.DeadLetters))
		}
	}
	for _, m := range p.Mappings {
		switch {
		case !has(functions, m.Function):
			wrong = append(wrong, fmt.Errorf("%s: there is no function %s", m.of, m.Function))
		case m.Queue != "" && !has(queues, m.Queue):
			wrong = append(wrong, fmt.Errorf("%s: there is no queue %s", m.of, m.Queue))
		case m.Table != "" && !has(tables, m.Table):
			wrong = append(wrong, fmt.Errorf("%s: there is no table %s", m.of, m.Table))
		default:
			if err := m.check(p); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", m.of, err))
			}
		}
	}
	for _, s := range p.Schedules {
		if !has(functions, s.Function) {
			wrong = append(wrong, fmt.Errorf("%s: there is no function %s", s.of, s.Function))
		}
	}
	for _, a := range p.APIs {
		if err := a.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", a.of, err))
		}
		for _, route := range slices.Sorted(maps.Keys(a.Routes)) {
			if f := a.Routes[route].Function; !has(functions, f) {
				wrong = append(wrong, fmt.Errorf("%s: the route %s has no function: there is no %s", a.of, route, f))
			}
			if by := a.Routes[route].Authorizer; by != nil && !has(functions, by.Name) {
				wrong = append(wrong, fmt.Errorf("%s: the route %s has no authorizer: there is no function %s", a.of, route,
					by.Name))
			}
		}
	}
	return wrong
}
