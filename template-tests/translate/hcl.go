package translate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// block of Terraform: attributes by name, and blocks in it. A block of blocks "0", "1", … is repeated.
type block map[string]any

// expression of Terraform.
type expression string

// call of a function of Terraform.
type call struct {
	function  string
	arguments []any
}

// put sets what is at a path.
func (b block) put(path string, v any) {
	first, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		b[first] = v
		return
	}
	if _, ok := b[first]; !ok {
		b[first] = block{}
	}
	b[first].(block).put(rest, v)
}

// convert sets an attribute, written as in kind, to the value of a property.
func (b block) convert(to string, v any) {
	how, path, converted := strings.Cut(to, " ")
	switch {
	case to == "-":
	case !converted:
		b.put(to, v)
	case how == "json":
		b.put(path, call{"jsonencode", []any{v}})
	case how == "one":
		b.put(path, v.([]any)[0])
	case how == "pairs":
		all := map[string]any{}
		for _, one := range v.([]any) {
			pair := one.(map[string]any)
			all[pair["Name"].(string)] = pair["Value"]
		}
		b.put(path, all)
	}
}

// block returns the lines of a block: its attributes, then its blocks.
func (m *module) block(b block) string {
	var attributes, blocks strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b)) {
		inner, ok := b[name].(block)
		if !ok {
			fmt.Fprintf(&attributes, "%s = %s\n", name, m.expression(b[name]))
			continue
		}
		all := []block{inner}
		if _, repeated := inner["0"]; repeated {
			all = make([]block, len(inner))
			for i := range all {
				all[i], _ = inner[strconv.Itoa(i)].(block)
			}
		}
		for _, one := range all {
			fmt.Fprintf(&blocks, "\n%s {\n%s}\n", name, m.block(one))
		}
	}
	return strings.TrimPrefix(attributes.String()+blocks.String(), "\n")
}

// expression returns a value as an expression of Terraform.
func (m *module) expression(v any) string {
	switch v := v.(type) {
	case expression:
		return string(v)
	case text:
		return m.template(v)
	case string:
		return literal(v)
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case call:
		return v.function + "(" + m.all(v.arguments) + ")"
	case []any:
		return "[" + m.all(v) + "]"
	case map[string]any:
		if len(v) == 0 {
			return "{}"
		}
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := m.expression(v[name])
			if !hclsyntax.ValidIdentifier(name) {
				name = literal(name)
			}
			fmt.Fprintf(&b, "%s = %s\n", name, value)
		}
		return "{\n" + b.String() + "}"
	}
	panic(fmt.Errorf("a value of type %T is not known", v))
}

func (m *module) all(values []any) string {
	shown := make([]string, len(values))
	for i, v := range values {
		shown[i] = m.expression(v)
	}
	return strings.Join(shown, ", ")
}

var references = regexp.MustCompile(`\$\{[^}]*\}`)

// template returns a text as a template, or as the only reference that it consists of.
func (m *module) template(t text) string {
	if id, attribute, one := t.reference(); one {
		if address, rest := m.address(id, attribute); rest == "" {
			return address
		}
	}
	var b strings.Builder
	end := 0
	for _, at := range references.FindAllStringIndex(string(t), -1) {
		id, attribute, _ := t[at[0]:at[1]].reference()
		address, rest := m.address(id, attribute)
		b.WriteString(inner(string(t[end:at[0]])) + "${" + address + "}" + inner(rest))
		end = at[1]
	}
	return `"` + b.String() + inner(string(t[end:])) + `"`
}

func literal(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

// inner is a literal without its quotes.
func inner(s string) string {
	quoted := literal(s)
	return quoted[1 : len(quoted)-1]
}
