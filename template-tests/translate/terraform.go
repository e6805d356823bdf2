package translate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Terraform returns the template as the files of a module of Terraform, by name. A resource is in the
// file that the first word of its id names. main.tf has what all of them use.
func Terraform(t Template) map[string]string {
	resources, parameters, outputs := read(t)
	for id, r := range maps.Clone(resources) {
		split(resources, id, r)
	}
	m := module{resources: resources, files: map[string]string{"main": required}}
	m.parameter("name", map[string]any{"Type": "String", "Default": "idem",
		"AllowedPattern": "^[A-Za-z0-9-]{1,32}$", // a role's name has 64 characters at most
		"Description":    "Begins the name of each resource: 1 to 32 letters, digits and hyphens.",
	})
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		m.parameter(words(name, "_"), parameters[name].(map[string]any))
	}
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		m.resource(id, resources[id])
	}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		value, _ := outputs[name].(map[string]any)["Value"].(text)
		id, _, _ := value.reference()
		m.add(file(id), block{"value": value}, "output", words(name, "_"))
	}
	files := map[string]string{}
	for name, content := range m.files {
		files[name+".tf"] = "# " + header + "\n" + string(hclwrite.Format([]byte(content)))
	}
	return files
}

const required = `
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}
`

// split makes a resource of a rule's target.
func split(resources map[string]resource, id string, r resource) {
	targets, _ := r.properties["Targets"].([]any)
	if len(targets) == 0 {
		return
	}
	of := targets[0].(map[string]any)
	of["Rule"] = text("${" + id + "}")
	resources[id+"Target"] = resource{kind: target, properties: of}
	delete(r.properties, "Targets")
}

type module struct {
	resources map[string]resource
	files     map[string]string
}

// add adds a block of the file, such as a resource with its type and name.
func (m *module) add(file string, b block, kind string, labels ...string) {
	for _, l := range labels {
		kind += " " + literal(l)
	}
	m.files[file] += "\n" + kind + " {\n" + m.block(b) + "}\n"
}

// file is the first word of an id.
func file(id string) string {
	first, _, _ := strings.Cut(words(id, "_"), "_")
	return first
}

// parameter makes a variable of a parameter.
func (m *module) parameter(name string, p map[string]any) {
	b := block{"type": expression(words(p["Type"].(string), "_")), "description": p["Description"]}
	if p["Default"] != nil {
		b["default"] = p["Default"]
	}
	if pattern, ok := p["AllowedPattern"].(string); ok {
		condition := fmt.Sprintf("can(regex(%s, var.%s))", literal(pattern), name)
		b["validation"] = block{"condition": expression(condition), "error_message": p["Description"]}
	}
	m.add("main", b, "variable", name)
}

func (m *module) resource(id string, r resource) {
	k := kinds[r.kind]
	b := block{}
	set(b, k, nil, r.properties)
	if k.called != "" {
		b[k.called] = text("${Name}-" + words(id, "-"))
	}
	for path, e := range k.further {
		b.put(path, expression(e))
	}
	if r.retained() {
		b.put(k.retained, true)
	}
	if len(r.dependsOn) > 0 {
		all := make([]any, len(r.dependsOn))
		for i, on := range r.dependsOn {
			all[i] = expression(m.named(on.(string)))
		}
		b["depends_on"] = all
	}
	if r.kind == lambda {
		m.code(id, b)
	}
	m.add(file(id), b, "resource", k.name, words(id, "_"))
}

// code adds the variables of a function: its archive, and what is added to its environment.
func (m *module) code(id string, b block) {
	name := words(id, "_")
	archive, environment := "var."+name+"_zip", b["environment"].(block)
	b["filename"], b["source_code_hash"] = expression(archive), expression("filebase64sha256("+archive+")")
	environment["variables"] = call{"merge",
		[]any{expression("var." + name + "_environment"), environment["variables"]}}
	m.add(file(id), block{"type": expression("string"),
		"description": "Path of the archive of the " + name + ", with its binary bootstrap."}, "variable", name+"_zip")
	m.add(file(id), block{"type": expression("map(string)"), "default": map[string]any{},
		"description": "Further variables in the environment of the " + name + "."}, "variable", name+"_environment")
}

// set puts a property, or what it consists of, into a block.
func set(b block, k kind, path []string, v any) {
	if to, known := k.attribute(path); known {
		b.convert(to, v)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			set(b, k, append(slices.Clip(path), name), v[name])
		}
		return
	case []any:
		if _, objects := v[0].(map[string]any); objects {
			for i, one := range v {
				set(b, k, append(slices.Clip(path), strconv.Itoa(i)), one)
			}
			return
		}
	}
	b.put(words(strings.Join(path, "."), "_"), v)
}

// attribute returns the attribute of a property, with its numbers.
func (k kind) attribute(path []string) (to string, known bool) {
	for pattern, to := range k.attributes {
		parts := strings.Split(pattern, ".")
		fits := slices.EqualFunc(parts, path, func(part, of string) bool {
			_, err := strconv.Atoi(of)
			return part == of || part == "*" && err == nil
		})
		if !fits {
			continue
		}
		for i, part := range parts {
			if part == "*" {
				to = strings.Replace(to, "*", path[i], 1)
			}
		}
		return to, true
	}
	return "", false
}

// address of what a text refers to, and what follows it.
func (m *module) address(id, attribute string) (address, rest string) {
	r, ok := m.resources[id]
	if !ok {
		return "var." + words(id, "_"), ""
	}
	of, rest, appended := strings.Cut(cmp.Or(kinds[r.kind].references[attribute], words(attribute, "_")), ":")
	if appended {
		rest = ":" + rest
	}
	return m.named(id) + "." + of, rest
}

func (m *module) named(id string) string {
	return kinds[m.resources[id].kind].name + "." + words(id, "_")
}
