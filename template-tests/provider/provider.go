// Package provider knows Terraform's AWS provider: the attributes and blocks of the resource types that
// infra/terraform uses. It reads an extract, provider.json, of version 6.25.0. The extract is made of the
// npm package @cdktf/provider-aws (Mozilla Public License 2.0), which is made of the provider's own schema.
package provider

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

//go:embed provider.json
var extract []byte

// Block of a resource, or the resource itself.
type Block struct {
	Attributes map[string]Attribute `json:"attributes,omitempty"`
	Blocks     map[string]Block     `json:"blocks,omitempty"`
	// Single blocks are there once at most.
	Single   bool `json:"single,omitempty"`
	Required bool `json:"required,omitempty"`
	// Exports are the strings and numbers of a resource that other resources may refer to.
	Exports []string `json:"exports,omitempty"`
}

// Attribute is of type string, number, boolean, list or map.
type Attribute struct {
	Type     string `json:"type"`
	Required bool   `json:"required,omitempty"`
}

// Resources are the attributes and blocks of a module's resources, by their addresses such as aws_sqs_queue.work.
// A block is a list of objects. References are strings such as ${aws_sqs_queue.work.arn}.
type Resources map[string]map[string]any

// known are the resource types of the extract.
func known() (all map[string]Block) {
	if err := json.Unmarshal(extract, &all); err != nil {
		panic(err) // which is embedded
	}
	return all
}

// Evaluate returns the resources of a module. What is not Terraform's syntax, refers to nothing, or does not
// fit the provider is among the diagnostics. A variable that is no text has its default.
func Evaluate(files map[string]string) (Resources, hcl.Diagnostics) {
	m := module{
		provider: known(), found: Resources{}, variables: map[string]cty.Value{},
		exports: map[string]map[string]cty.Value{},
	}
	var blocks hcl.Blocks
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, problems := hclsyntax.ParseConfig([]byte(files[name]), name, hcl.InitialPos)
		m.problems = append(m.problems, problems...)
		content, problems := file.Body.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
			{Type: "terraform"}, {Type: "variable", LabelNames: []string{"name"}},
			{Type: "resource", LabelNames: []string{"type", "name"}}, {Type: "output", LabelNames: []string{"name"}},
		}})
		m.problems = append(m.problems, problems...)
		blocks = append(blocks, content.Blocks...)
	}
	for _, b := range blocks {
		m.declare(b)
	}
	context := m.context()
	for _, b := range blocks {
		switch b.Type {
		case "resource":
			m.found[strings.Join(b.Labels, ".")] = m.decode(b, m.provider[b.Labels[0]].resource(), context)
		case "output":
			m.decode(b, hcldec.ObjectSpec{"value": &hcldec.AttrSpec{Name: "value", Type: cty.String}}, context)
		}
	}
	return m.found, m.problems
}

type module struct {
	provider  map[string]Block
	found     Resources
	variables map[string]cty.Value
	exports   map[string]map[string]cty.Value // of resources, by type and name
	problems  hcl.Diagnostics
}

// declare makes what expressions may refer to.
func (m *module) declare(b *hcl.Block) {
	switch b.Type {
	case "variable":
		value := cty.StringVal("${var." + b.Labels[0] + "}")
		if usual, ok := b.Body.(*hclsyntax.Body).Attributes["default"]; ok {
			if v, _ := usual.Expr.Value(nil); v.Type() != cty.String {
				value = v
			}
		}
		m.variables[b.Labels[0]] = value
	case "resource":
		exports := map[string]cty.Value{}
		for _, name := range m.provider[b.Labels[0]].Exports {
			exports[name] = cty.StringVal("${" + strings.Join(append(b.Labels, name), ".") + "}")
		}
		if m.exports[b.Labels[0]] == nil {
			m.exports[b.Labels[0]] = map[string]cty.Value{}
		}
		m.exports[b.Labels[0]][b.Labels[1]] = cty.ObjectVal(exports)
	}
}

func (m *module) context() *hcl.EvalContext {
	variables := map[string]cty.Value{"var": cty.ObjectVal(m.variables)}
	for kind, all := range m.exports {
		variables[kind] = cty.ObjectVal(all)
	}
	return &hcl.EvalContext{Variables: variables, Functions: map[string]function.Function{
		"jsonencode": stdlib.JSONEncodeFunc, "merge": stdlib.MergeFunc,
		"filebase64sha256": stdlib.TrimSpaceFunc, // the path stands for the digest
	}}
}

// decode returns the attributes and blocks, as of JSON.
func (m *module) decode(b *hcl.Block, spec hcldec.Spec, context *hcl.EvalContext) (all map[string]any) {
	value, problems := hcldec.Decode(b.Body, spec, context)
	m.problems = append(m.problems, problems...)
	if text, err := ctyjson.Marshal(value, value.Type()); err == nil { // else there are problems
		_ = json.Unmarshal(text, &all)
	}
	delete(all, "depends_on")
	return all
}

// resource is the block with what Terraform itself knows.
func (b Block) resource() hcldec.Spec {
	all := b.spec()
	all["depends_on"] = &hcldec.AttrSpec{Name: "depends_on", Type: cty.DynamicPseudoType}
	lifecycle := Block{Attributes: map[string]Attribute{"prevent_destroy": {Type: "boolean"}}, Single: true}
	all["lifecycle"] = lifecycle.list("lifecycle")
	return all
}

func (b Block) spec() hcldec.ObjectSpec {
	all := hcldec.ObjectSpec{}
	for name, a := range b.Attributes {
		all[name] = &hcldec.AttrSpec{Name: name, Type: a.ctyType(), Required: a.Required}
	}
	for name, inner := range b.Blocks {
		all[name] = inner.list(name)
	}
	return all
}

func (b Block) list(name string) hcldec.Spec {
	all := &hcldec.BlockListSpec{TypeName: name, Nested: b.spec()}
	if b.Single {
		all.MaxItems = 1
	}
	if b.Required {
		all.MinItems = 1
	}
	return all
}

// ctyType is the attribute's type. The extract has no types of elements: Terraform converts numbers and
// booleans to strings.
func (a Attribute) ctyType() cty.Type {
	return map[string]cty.Type{"string": cty.String, "number": cty.Number, "boolean": cty.Bool,
		"list": cty.List(cty.String), "map": cty.Map(cty.String)}[a.Type]
}
