// Package provider knows Terraform's AWS provider: the attributes and blocks of the resource types that
// infra/terraform uses. It reads an extract, provider.json, of version 6.25.0. The extract is made of the
// npm package @cdktf/provider-aws (Mozilla Public License 2.0), which is made of the provider's own schema.
package provider

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
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

// Resources are the resources of a module, by their addresses such as aws_sqs_queue.work. A block is a list of
// objects. References are strings such as ${aws_sqs_queue.work.arn}.
type Resources map[string]map[string]any

// Evaluate returns the resources of a module, and what is wrong with its files: what is not Terraform's
// syntax, refers to nothing, or does not fit the provider.
func Evaluate(files map[string]string) (Resources, []string) {
	m := module{found: Resources{}}
	if err := json.Unmarshal(extract, &m.provider); err != nil {
		return nil, []string{err.Error()}
	}
	var blocks []*hclsyntax.Block
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, diagnostics := hclsyntax.ParseConfig([]byte(files[name]), name, hcl.InitialPos)
		m.diagnose(diagnostics)
		if file != nil {
			blocks = append(blocks, file.Body.(*hclsyntax.Body).Blocks...)
		}
	}
	m.declare(blocks)
	for _, b := range blocks {
		switch b.Type {
		case "resource":
			address := strings.Join(b.Labels, ".")
			known, ok := m.provider[b.Labels[0]]
			if !ok {
				m.problem(b, "the type is not in the extract")
				continue
			}
			if m.found[address] != nil {
				m.problem(b, "the resource is there twice")
			}
			m.found[address] = m.body(b, known, true)
		case "output":
			for _, a := range b.Body.Attributes {
				m.value(a.Expr)
			}
		case "variable", "terraform":
		default:
			m.problem(b, "the block is not known")
		}
	}
	return m.found, m.problems
}

type module struct {
	provider map[string]Block
	context  hcl.EvalContext
	found    Resources
	problems []string
}

func (m *module) diagnose(d hcl.Diagnostics) {
	for _, one := range d {
		m.problems = append(m.problems, one.Error())
	}
}

func (m *module) problem(b *hclsyntax.Block, format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf("%s: %s %s: ", b.TypeRange, b.Type, strings.Join(b.Labels, "."))+
		fmt.Sprintf(format, args...))
}

// declare makes what expressions may refer to.
func (m *module) declare(blocks []*hclsyntax.Block) {
	variables, resources := map[string]cty.Value{}, map[string]map[string]cty.Value{}
	for _, b := range blocks {
		switch b.Type {
		case "variable":
			variables[b.Labels[0]] = cty.StringVal("${var." + b.Labels[0] + "}")
			if kind, ok := b.Body.Attributes["type"]; ok {
				if _, isMap := kind.Expr.(*hclsyntax.FunctionCallExpr); isMap {
					variables[b.Labels[0]] = cty.EmptyObjectVal
				}
			}
		case "resource":
			exports := map[string]cty.Value{}
			for _, name := range m.provider[b.Labels[0]].Exports {
				exports[name] = cty.StringVal("${" + strings.Join(append(b.Labels, name), ".") + "}")
			}
			if resources[b.Labels[0]] == nil {
				resources[b.Labels[0]] = map[string]cty.Value{}
			}
			resources[b.Labels[0]][b.Labels[1]] = cty.ObjectVal(exports)
		}
	}
	m.context.Variables = map[string]cty.Value{"var": cty.ObjectVal(variables)}
	for kind, all := range resources {
		m.context.Variables[kind] = cty.ObjectVal(all)
	}
	digest := function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}}, Type: function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0], nil },
	})
	m.context.Functions = map[string]function.Function{
		"jsonencode": stdlib.JSONEncodeFunc, "merge": stdlib.MergeFunc, "filebase64sha256": digest,
	}
}

// addresses are those of the resources in a list.
func addresses(e hcl.Expression) (all []any) {
	for _, traversal := range e.Variables() {
		if name, ok := traversal[len(traversal)-1].(hcl.TraverseAttr); ok {
			all = append(all, traversal.RootName()+"."+name.Name)
		}
	}
	return all
}

func (m *module) body(b *hclsyntax.Block, known Block, top bool) map[string]any {
	got := map[string]any{}
	for name, a := range b.Body.Attributes {
		value := m.value(a.Expr)
		if top && name == "depends_on" {
			got[name] = addresses(a.Expr)
			continue
		}
		attribute, ok := known.Attributes[name]
		if !ok {
			m.problem(b, "%s is no attribute", name)
		} else if is := typeOf(value); is != attribute.Type && !strings.HasPrefix(fmt.Sprint(value), "${var.") {
			m.problem(b, "%s is a %s instead of a %s", name, is, attribute.Type)
		}
		got[name] = value
	}
	count := map[string]int{}
	for _, inner := range b.Body.Blocks {
		count[inner.Type]++
		of, ok := known.Blocks[inner.Type]
		switch {
		case top && inner.Type == "lifecycle":
			of = Block{Attributes: map[string]Attribute{"prevent_destroy": {Type: "boolean"}}, Single: true}
		case !ok:
			m.problem(b, "%s is no block", inner.Type)
		}
		if of.Single && count[inner.Type] > 1 {
			m.problem(b, "%s is there more than once", inner.Type)
		}
		all, _ := got[inner.Type].([]any)
		got[inner.Type] = append(all, m.body(inner, of, false))
	}
	for name, a := range known.Attributes {
		if a.Required && got[name] == nil {
			m.problem(b, "%s is missing", name)
		}
	}
	for name, of := range known.Blocks {
		if of.Required && got[name] == nil {
			m.problem(b, "%s is missing", name)
		}
	}
	return got
}

// value of an expression, as of JSON.
func (m *module) value(e hcl.Expression) any {
	value, diagnostics := e.Value(&m.context)
	m.diagnose(diagnostics)
	if diagnostics.HasErrors() {
		return nil
	}
	text, err := ctyjson.Marshal(value, value.Type())
	var v any
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		m.problems = append(m.problems, fmt.Sprintf("%s: %v", e.Range(), err))
	}
	return v
}

func typeOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "list"
	case map[string]any:
		return "map"
	}
	return "nothing"
}
