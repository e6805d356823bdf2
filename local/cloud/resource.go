package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/aws/template"
)

// account of everything that runs here is that of the queue server, which knows no other.
const (
	account = iam.Account
	region  = iam.Region
)

type kind struct {
	service string                                     // in its ARN
	arn     func(r *resource, name string) string      // what follows the account; its name if nil
	name    string                                     // the property with its name
	suffix  func(r *resource) string                   // of a name that the template does not give
	ref     string                                     // the attribute that Ref gives: its name if empty
	more    func(r *resource, attribute string) string // further attributes
	plan    func(p *Plan, r *resource) error           // nil: no behaviour here
	ignored []string                                   // properties without effect here
}

// kinds are all types that are known. Types add themselves, since their plans refer to all of them.
var kinds = map[string]kind{}

type resource struct {
	template.Resource
	id       string
	physical string // its name, when it is planned
	stack    *stack
	kind     kind
}

type stack struct {
	template.Stack
	plan      *Plan
	scope     template.Scope
	resources map[string]*resource // those whose condition is met
}

func (r *resource) String() string { return r.stack.Name + "/" + r.id }

// fail is an error about the resource.
func (r *resource) fail(format string, args ...any) error {
	return fmt.Errorf("%s (%s): %w", r, r.Type, fmt.Errorf(format, args...))
}

// key names the resource in its plan, in all stacks.
func (r *resource) key() string { return r.stack.Name + "-" + r.id }

// name is the resource's physical name. CloudFormation makes one up where the template has none.
func (r *resource) name() (string, error) {
	if given := r.Properties[r.kind.name]; given != nil {
		v, err := r.stack.scope.Eval(given)
		if err != nil {
			return "", fmt.Errorf("%s: %w", r.kind.name, err)
		}
		return template.Text(v)
	}
	if r.kind.suffix != nil {
		return r.key() + r.kind.suffix(r), nil
	}
	return r.key(), nil
}

// attribute is what Fn::GetAtt gives, and Ref where it has no name.
func (r *resource) attribute(name string) (any, error) {
	physical, err := r.name()
	if err != nil {
		return nil, err
	}
	if name == "" {
		if name = r.kind.ref; name == "" {
			return physical, nil
		}
	}
	if r.kind.more != nil {
		if v := r.kind.more(r, name); v != "" {
			return v, nil
		}
	}
	switch name {
	case "Arn", "TopicArn", "AlarmArn", "PolicyArn":
		path, in := physical, region
		if r.kind.arn != nil {
			path = r.kind.arn(r, physical)
		}
		if r.kind.service == "iam" { // it has no regions
			in = ""
		}
		return fmt.Sprintf("arn:aws:%s:%s:%s:%s", r.kind.service, in, account, path), nil
	case "Name", "TableName", "QueueName", "TopicName", "FunctionName", "RoleName", "KeyId", "Id", "ApiId", "RestApiId":
		return physical, nil
	}
	return nil, fmt.Errorf("%s (%s) has no attribute %s here", r, r.Type, name)
}

// planned is a plan that gets a resource's properties in a struct.
func planned[T any](do func(*Plan, *resource, T) error) func(*Plan, *resource) error {
	return func(p *Plan, r *resource) error {
		var is T
		if err := p.decode(r, &is); err != nil {
			return err
		}
		physical, err := r.name()
		if err != nil {
			return r.fail("%w", err)
		}
		r.physical = physical
		return do(p, r, is)
	}
}

// decode fills the fields of a struct with the properties of the same names, and notes those that have no effect.
func (p *Plan) decode(r *resource, into any) error {
	properties, err := r.stack.scope.Properties(r.id)
	if err != nil {
		return r.fail("%w", err)
	}
	known := map[string]any{}
	for name, v := range properties {
		_, is := reflect.TypeOf(into).Elem().FieldByName(name)
		switch {
		case is:
			known[name] = v
		case !slices.Contains(r.kind.ignored, name) && name != "Tags" && name != "Description" && name != r.kind.name:
			p.Notes = append(p.Notes, fmt.Sprintf("%s: %s has no effect here", r, name))
		}
	}
	text, err := json.Marshal(known)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(into)
	}
	if err != nil {
		return r.fail("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// number is one that a template may also write as text.
type number int

func (n *number) UnmarshalJSON(text []byte) error {
	return json.Unmarshal([]byte(strings.Trim(string(text), `"`)), (*int)(n))
}

// texts are a list that a template may also write as one text with commas.
type texts []string

func (t *texts) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) != nil {
		return json.Unmarshal(text, (*[]string)(t))
	}
	for part := range strings.SplitSeq(one, ",") {
		*t = append(*t, strings.TrimSpace(part))
	}
	return nil
}

// flag is a truth value that a template may also write as text.
type flag bool

func (f *flag) UnmarshalJSON(text []byte) error {
	return json.Unmarshal([]byte(strings.Trim(string(text), `"`)), (*bool)(f))
}
