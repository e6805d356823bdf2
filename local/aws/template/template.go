// Package template reads CloudFormation templates, and evaluates them where there is no CloudFormation: a [Template]
// is what a file says, a [Scope] gives the values that its references and functions have.
//
//	t, err := template.Read("cdk.out/Payments.template.json")
//	...
//	err = t.Check()
//	...
//	scope := &template.Scope{Template: t, Stack: "Payments", Resource: deployed}
//	properties, err := scope.Properties("ChargeFunction")
//
// Templates are JSON, or YAML with the short forms of functions, such as !Ref. The functions are Ref, Fn::GetAtt,
// Fn::Sub, Fn::Join, Fn::Select, Fn::Split, Fn::If, Fn::FindInMap, Fn::ImportValue, Fn::Base64, Fn::GetAZs, and those
// of conditions. Macros and transforms are refused, also that of AWS SAM.
//
// There are Go libraries that read templates. Those that evaluate them leave out what they cannot evaluate, and do not
// know what a resource refers to.
//
// Source: AWS CloudFormation template reference, "Intrinsic function reference", "Pseudo parameters reference".
package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"gopkg.in/yaml.v3"
)

// Template is what a file says. Values are nil, bool, string, [json.Number], []any and map[string]any.
type Template struct {
	Parameters map[string]Parameter
	Mappings   map[string]map[string]map[string]any
	Conditions map[string]any
	Resources  map[string]Resource
	Outputs    map[string]Output
	Transform  any
}

// Parameter is a value that a deployment may set.
type Parameter struct {
	Type    string
	Default any
}

// Resource is one as the template describes it.
type Resource struct {
	Type       string
	Properties map[string]any
	Condition  string
	DependsOn  any // a logical id, or a list of them
	Metadata   map[string]any
}

// Output is a value that the stack shows, and exports if it has a name for that.
type Output struct {
	Value     any
	Condition string
	Export    struct{ Name any }
}

// Read reads a template from a file.
func Read(path string) (*Template, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func Parse(text []byte) (*Template, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		var root yaml.Node
		if err := yaml.Unmarshal(text, &root); err != nil {
			return nil, err
		}
		longForms(&root)
		var v any
		err := root.Decode(&v)
		if err != nil {
			return nil, err
		}
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	t := &Template{}
	if err := d.Decode(t); err != nil {
		return nil, fmt.Errorf("it is no CloudFormation template: %w", err)
	}
	switch {
	case len(t.Resources) == 0:
		return nil, errors.New("it is no CloudFormation template: it has no Resources")
	case t.Transform != nil:
		return nil, fmt.Errorf("its Transform %v runs on AWS alone, sam build does not: write the types that come of it, "+
			"or deploy it and give what this writes: aws cloudformation get-template --stack-name STACK "+
			"--template-stage Processed --query TemplateBody > STACK.template.json", t.Transform)
	}
	return t, nil
}

// longForms gives functions their long forms, such as Fn::Sub for !Sub. Keys and dates stay text, such as the version
// of a policy.
func longForms(n *yaml.Node) {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 || c.ShortTag() == "!!timestamp" {
			c.Tag = "!!str"
		}
		longForms(c)
	}
	name, short := strings.CutPrefix(n.Tag, "!")
	if !short || strings.HasPrefix(name, "!") {
		return
	}
	if name != "Ref" && name != "Condition" {
		name = "Fn::" + name
	}
	argument := *n
	if argument.Tag = ""; n.Kind == yaml.ScalarNode {
		argument.Tag = "!!str"
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
	*n = yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, &argument}} // in place, for aliases
}
