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
func (b block) convert(to, property string, v any) error {
	how, path, converted := strings.Cut(to, " ")
	switch wanted, fixed := strings.CutPrefix(to, "="); {
	case to == "-":
	case fixed:
		if fmt.Sprint(v) != wanted {
			return fmt.Errorf("the property %s is %v instead of %s", property, v, wanted)
		}
	case !converted:
		b.put(to, v)
	case how == "json":
		b.put(path, call{"jsonencode", []any{v}})
	case how == "pairs":
		all := map[string]any{}
		for _, one := range v.([]any) {
			pair := one.(map[string]any)
			all[pair["Name"].(string)] = pair["Value"]
		}
		b.put(path, all)
	}
	return nil
}

// block returns the lines of a block: its attributes, then its blocks.
func (m *module) block(b block) (string, error) {
	var attributes, blocks strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b)) {
		inner, ok := b[name].(block)
		if !ok {
			value, err := m.expression(b[name])
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&attributes, "%s = %s\n", name, value)
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
			shown, err := m.block(one)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&blocks, "\n%s {\n%s}\n", name, shown)
		}
	}
	return strings.TrimPrefix(attributes.String()+blocks.String(), "\n"), nil
}

// expression returns a value as an expression of Terraform.
func (m *module) expression(v any) (string, error) {
	switch v := v.(type) {
	case expression:
		return string(v), nil
	case text:
		return m.template(v)
	case string:
		return literal(v), nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case call:
		arguments, err := m.all(v.arguments)
		return v.function + "(" + strings.Join(arguments, ", ") + ")", err
	case []any:
		elements, err := m.all(v)
		return "[" + strings.Join(elements, ", ") + "]", err
	case map[string]any:
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value, err := m.expression(v[name])
			if err != nil {
				return "", err
			}
			if !hclsyntax.ValidIdentifier(name) {
				name = literal(name)
			}
			fmt.Fprintf(&b, "%s = %s\n", name, value)
		}
		if b.Len() == 0 {
			return "{}", nil
		}
		return "{\n" + b.String() + "}", nil
	}
	return "", fmt.Errorf("a value of type %T is not known", v)
}

func (m *module) all(values []any) ([]string, error) {
	shown := make([]string, len(values))
	for i, v := range values {
		var err error
		if shown[i], err = m.expression(v); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

var references = regexp.MustCompile(`\$\{([^.}]*)(?:\.([^}]*))?\}`)

// template returns a text as a template, or as the only reference that it consists of.
func (m *module) template(t text) (string, error) {
	var b strings.Builder
	end := 0
	for _, at := range references.FindAllStringSubmatchIndex(string(t), -1) {
		attribute := ""
		if at[4] >= 0 {
			attribute = string(t[at[4]:at[5]])
		}
		address, rest, err := m.address(string(t[at[2]:at[3]]), attribute)
		if err != nil {
			return "", err
		}
		if at[1]-at[0] == len(t) && rest == "" {
			return address, nil
		}
		b.WriteString(inner(string(t[end:at[0]])) + "${" + address + "}" + inner(rest))
		end = at[1]
	}
	return `"` + b.String() + inner(string(t[end:])) + `"`, nil
}

func literal(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

// inner is a literal without its quotes.
func inner(s string) string {
	quoted := literal(s)
	return quoted[1 : len(quoted)-1]
}
