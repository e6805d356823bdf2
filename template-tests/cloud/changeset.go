package cloud

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// changeSet is a template that may become a stack's.
type changeSet struct {
	name, id   string
	template   string
	parsed     template
	parameters map[string]string
	changes    []change
	status     string
	reason     string
}

type change struct{ action, logical, kind string }

const noChanges = "The submitted information didn't contain changes. Submit different information to create a change set."

// propose makes a change set. What CloudFormation refuses at once is an error; what
// it finds later is the status of the set.
func (s *Server) propose(form url.Values) (*stack, *changeSet, error) {
	name := form.Get("StackName")
	text := form.Get("TemplateBody")
	if text == "" {
		body, err := s.object(form.Get("TemplateURL"))
		if err != nil {
			return nil, nil, err
		}
		text = string(body)
	}
	parsed, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	st := s.find(name)
	if form.Get("ChangeSetType") == "CREATE" {
		if st != nil && st.status != "REVIEW_IN_PROGRESS" {
			return nil, nil, fmt.Errorf("stack [%s] already exists and cannot be created again with the changeSet", name)
		}
		if st == nil {
			st = &stack{name: name, status: "REVIEW_IN_PROGRESS"}
			st.id = fmt.Sprintf("arn:aws:cloudformation:%s:%s:stack/%s/%s", s.Region, s.Account, name, s.next())
			s.stacks[name] = st
		}
	} else if st == nil {
		return nil, nil, fmt.Errorf("stack [%s] does not exist", name)
	}
	set := &changeSet{name: form.Get("ChangeSetName"), template: text, parsed: parsed, status: "CREATE_COMPLETE"}
	set.id = fmt.Sprintf("arn:aws:cloudformation:%s:%s:changeSet/%s/%s", s.Region, s.Account, set.name, s.next())
	if set.parameters, err = s.parametersOf(form, st, parsed); err == nil {
		err = s.check(st, set, members(form, "Capabilities"))
	}
	if err != nil {
		set.status, set.reason = "FAILED", err.Error()
	} else if set.changes = changes(st.parsed, parsed); len(set.changes) == 0 && reflect.DeepEqual(st.parsed.Outputs, parsed.Outputs) && st.updates > 0 {
		set.status, set.reason = "FAILED", noChanges
	}
	st.set = set
	return st, set, nil
}

// parametersOf a change set: what is given, what the stack has, the defaults; those
// of SSM are looked up.
func (s *Server) parametersOf(form url.Values, st *stack, parsed template) (map[string]string, error) {
	values := map[string]string{}
	for i := 1; form.Has(fmt.Sprintf("Parameters.member.%d.ParameterKey", i)); i++ {
		prefix := fmt.Sprintf("Parameters.member.%d.", i)
		key := form.Get(prefix + "ParameterKey")
		if form.Get(prefix+"UsePreviousValue") == "true" {
			values[key] = st.parameters[key]
			continue
		}
		values[key] = form.Get(prefix + "ParameterValue")
	}
	for name, p := range parsed.Parameters {
		if _, ok := values[name]; !ok {
			if p.Default == nil {
				return nil, fmt.Errorf("parameters: [%s] must have values", name)
			}
			values[name] = fmt.Sprint(p.Default)
		}
		if strings.HasPrefix(p.Type, "AWS::SSM::Parameter::Value") {
			if _, ok := parameters[values[name]]; !ok {
				return nil, fmt.Errorf("no parameter %s in SSM", values[name])
			}
		}
	}
	return values, nil
}

// check resolves all that the template refers to, and looks at what CloudFormation
// or Lambda would refuse: permissions nobody has agreed to, code that is not there.
func (s *Server) check(st *stack, set *changeSet, capabilities []string) error {
	e := &evaluation{server: s, stack: st, parsed: set.parsed, given: set.parameters}
	for _, logical := range slices.Sorted(maps.Keys(set.parsed.Resources)) {
		r := set.parsed.Resources[logical]
		resolved, err := e.value(map[string]any(r.Properties))
		if err != nil {
			return fmt.Errorf("%s: %w", logical, err)
		}
		if strings.HasPrefix(r.Type, "AWS::IAM::") && !slices.Contains(capabilities, "CAPABILITY_IAM") && !slices.Contains(capabilities, "CAPABILITY_NAMED_IAM") {
			return errors.New("requires capabilities : [CAPABILITY_IAM]")
		}
		if r.Type == "AWS::Lambda::Function" {
			if err := s.code(resolved.(map[string]any)); err != nil {
				return fmt.Errorf("%s: %w", logical, err)
			}
		}
	}
	_, _, err := e.outputs()
	return err
}

// code of a function must be an archive in the bucket with the program in it.
func (s *Server) code(properties map[string]any) error {
	at, _ := properties["Code"].(map[string]any)
	if at["S3Bucket"] != s.assets() {
		return fmt.Errorf("the code lies in the bucket %v", at["S3Bucket"])
	}
	body, ok := s.objects[fmt.Sprint(at["S3Key"])]
	if !ok {
		return fmt.Errorf("no object %v: the specified key does not exist", at["S3Key"])
	}
	archive, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return fmt.Errorf("could not unzip uploaded file: %w", err)
	}
	for _, file := range archive.File {
		if file.Name == properties["Handler"] && file.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fmt.Errorf("the code has no program %v", properties["Handler"])
}

func changes(from, to template) []change {
	var all []change
	for _, logical := range slices.Sorted(maps.Keys(to.Resources)) {
		was, ok := from.Resources[logical]
		is := to.Resources[logical]
		switch {
		case !ok:
			all = append(all, change{"Add", logical, is.Type})
		case !reflect.DeepEqual(was, is):
			all = append(all, change{"Modify", logical, is.Type})
		}
	}
	for _, logical := range slices.Sorted(maps.Keys(from.Resources)) {
		if _, ok := to.Resources[logical]; !ok {
			all = append(all, change{"Remove", logical, from.Resources[logical].Type})
		}
	}
	return all
}

// outputs of the template, and those that other stacks may import.
func (e *evaluation) outputs() (outputs, exports map[string]string, err error) {
	outputs, exports = map[string]string{}, map[string]string{}
	for name, o := range e.parsed.Outputs {
		value, err := e.value(o.Value)
		if err != nil {
			return nil, nil, fmt.Errorf("output %s: %w", name, err)
		}
		outputs[name] = fmt.Sprint(value)
		if o.Export.Name == nil {
			continue
		}
		export, err := e.value(o.Export.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("export of %s: %w", name, err)
		}
		exports[fmt.Sprint(export)] = outputs[name]
	}
	return outputs, exports, nil
}

// execute makes the change set's template the stack's, at once.
func (s *Server) execute(st *stack, token string) error {
	set := st.set
	if set.status != "CREATE_COMPLETE" {
		return fmt.Errorf("ChangeSet [%s] cannot be executed in its current status of [%s]", set.id, set.status)
	}
	e := &evaluation{server: s, stack: st, parsed: set.parsed, given: set.parameters}
	for _, logical := range slices.Sorted(maps.Keys(set.parsed.Resources)) {
		if _, err := e.value(map[string]any(set.parsed.Resources[logical].Properties)); err != nil {
			return err
		}
	}
	outputs, exports, err := e.outputs()
	if err != nil {
		return err
	}
	for name, value := range st.exports {
		if exports[name] == value {
			continue
		}
		for _, other := range s.stacks {
			if slices.Contains(other.imports, name) {
				return fmt.Errorf("export %s cannot be updated as it is in use by %s", name, other.name)
			}
		}
	}
	verb := "UPDATE"
	if st.status == "REVIEW_IN_PROGRESS" {
		verb = "CREATE"
	}
	const itself = "AWS::CloudFormation::Stack"
	s.happened(st, st.name, itself, verb+"_IN_PROGRESS", token)
	for _, c := range set.changes {
		did := map[string]string{"Add": "CREATE", "Modify": "UPDATE", "Remove": "DELETE"}[c.action]
		s.happened(st, c.logical, c.kind, did+"_IN_PROGRESS", token)
		s.happened(st, c.logical, c.kind, did+"_COMPLETE", token)
	}
	s.happened(st, st.name, itself, verb+"_COMPLETE", token)
	st.status, st.template, st.parsed, st.parameters = verb+"_COMPLETE", set.template, set.parsed, set.parameters
	st.outputs, st.exports, st.imports, st.set = outputs, exports, e.imports, nil
	st.updates++
	return nil
}
