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
	name, id string
	template string
	parsed   template
	changes  []change
	status   string
	reason   string
}

type change struct{ action, logical, kind string }

const noChanges = "The submitted information didn't contain changes. Submit different information " +
	"to create a change set."

// propose makes a change set. What CloudFormation refuses at once is an error; what
// it finds later is the status of the set.
func (s *Server) propose(form url.Values) (*stack, *changeSet, error) {
	name := form.Get("StackName")
	body, err := s.object(form.Get("TemplateURL"))
	if err != nil {
		return nil, nil, err
	}
	text := string(body)
	parsed, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	st := s.find(name)
	if form.Get("ChangeSetType") == "CREATE" {
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
	if err := s.check(st, set, members(form, "Capabilities")); err != nil {
		set.status, set.reason = "FAILED", err.Error()
	} else if set.changes = changes(st.parsed, parsed); len(set.changes) == 0 &&
		reflect.DeepEqual(st.parsed.Outputs, parsed.Outputs) && st.updates > 0 {
		set.status, set.reason = "FAILED", noChanges
	}
	st.set = set
	return st, set, nil
}

// check resolves all that the template refers to, and looks at what CloudFormation
// or Lambda would refuse: permissions that were not agreed to, code that is not there.
func (s *Server) check(st *stack, set *changeSet, capabilities []string) error {
	e := &evaluation{server: s, stack: st, parsed: set.parsed}
	for name, p := range set.parsed.Parameters {
		if _, ok := parameters[fmt.Sprint(p.Default)]; !ok {
			return fmt.Errorf("no parameter %s in SSM, for %s", p.Default, name)
		}
	}
	for _, logical := range slices.Sorted(maps.Keys(set.parsed.Resources)) {
		r := set.parsed.Resources[logical]
		resolved, err := e.value(map[string]any(r.Properties))
		if err != nil {
			return fmt.Errorf("%s: %w", logical, err)
		}
		if strings.HasPrefix(r.Type, "AWS::IAM::") && !slices.Contains(capabilities, "CAPABILITY_IAM") &&
			!slices.Contains(capabilities, "CAPABILITY_NAMED_IAM") {
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

// execute makes the change set's template the stack's, at once. It is for new stacks.
func (s *Server) execute(st *stack, token string) error {
	set := st.set
	if set.status != "CREATE_COMPLETE" || st.updates > 0 {
		return fmt.Errorf("ChangeSet [%s] cannot be executed in its current status of [%s]", set.id, set.status)
	}
	e := &evaluation{server: s, stack: st, parsed: set.parsed}
	outputs, exports, err := e.outputs()
	if err != nil {
		return err
	}
	const itself = "AWS::CloudFormation::Stack"
	s.happened(st, st.name, itself, "CREATE_IN_PROGRESS", token)
	for _, c := range set.changes {
		s.happened(st, c.logical, c.kind, "CREATE_IN_PROGRESS", token)
		s.happened(st, c.logical, c.kind, "CREATE_COMPLETE", token)
	}
	s.happened(st, st.name, itself, "CREATE_COMPLETE", token)
	st.status, st.template, st.parsed = "CREATE_COMPLETE", set.template, set.parsed
	st.outputs, st.exports, st.set = outputs, exports, nil
	st.updates++
	return nil
}
