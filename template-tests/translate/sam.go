package translate

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// SAM returns the template as a template of the Serverless Application Model. The code of a function is
// in a folder of its name in build.
func SAM(t Template) string {
	resources, parameters, outputs := read(t)
	all := map[string]any{}
	for id, r := range resources {
		out := map[string]any{"Type": r.kind, "Properties": r.properties}
		if r.retained() {
			out["DeletionPolicy"], out["UpdateReplacePolicy"] = r.deletion, "Retain"
		}
		if len(r.dependsOn) > 0 {
			out["DependsOn"] = r.dependsOn
		}
		if r.kind == lambda {
			out["Type"] = "AWS::Serverless::Function"
			out["Metadata"] = map[string]any{"SkipBuild": true}
			properties := maps.Clone(r.properties)
			delete(properties, "Code")
			properties["CodeUri"] = "build/" + words(id, "-") + "/"
			out["Properties"] = properties
		}
		all[id] = out
	}
	document := &yaml.Node{Kind: yaml.MappingNode}
	for _, part := range []struct {
		name  string
		value any
	}{
		{"AWSTemplateFormatVersion", "2010-09-09"}, {"Transform", "AWS::Serverless-2016-10-31"},
		{"Description", t["Description"]}, {"Parameters", parameters}, {"Resources", all}, {"Outputs", outputs},
	} {
		document.Content = append(document.Content, scalar(part.name), node(part.value))
	}
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	_ = e.Encode(document) // nodes in memory
	return "# " + header + "\n" + section.ReplaceAllString(b.String(), "\n$0")
}

// section begins what an empty line precedes.
var section = regexp.MustCompile(`(?m)^(?:  )?\w+:$`)

func scalar(v any) *yaml.Node {
	if f, ok := v.(float64); ok && f == math.Trunc(f) {
		v = int64(f) // which large ones are not written as
	}
	n := &yaml.Node{}
	_ = n.Encode(v) // a string, a number or a boolean
	return n
}

func node(v any) *yaml.Node {
	switch v := v.(type) {
	case text:
		id, attribute, one := v.reference()
		switch {
		case one && attribute == "":
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!Ref", Value: id}
		case one:
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!GetAtt", Value: id + "." + attribute}
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!Sub", Value: string(v), Style: yaml.DoubleQuotedStyle}
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v {
			n.Content = append(n.Content, node(one))
		}
		return compact(n)
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		names := slices.SortedFunc(maps.Keys(v), func(a, b string) int {
			if (a == "Type") != (b == "Type") {
				return map[bool]int{true: -1, false: 1}[a == "Type"]
			}
			return strings.Compare(a, b)
		})
		for _, name := range names {
			n.Content = append(n.Content, scalar(name), node(v[name]))
		}
		return compact(n)
	}
	return scalar(v)
}

// compact has what is short and holds nothing but scalars in one line.
func compact(n *yaml.Node) *yaml.Node {
	length := 0
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return n
		}
		length += len(c.Value) + len(c.Tag) + 2
	}
	if length < 70 {
		n.Style = yaml.FlowStyle
	}
	return n
}

const header = "Made from the constructs of package infra: see README.md. " +
	"go test ./template-tests -run TestPlain -update renews it."

const lambda = "AWS::Lambda::Function"

// words are those of an id in camel case, in lower case.
func words(id, separator string) string {
	return strings.ToLower(boundary.ReplaceAllString(id, fmt.Sprintf("${1}%s${2}", separator)))
}

var boundary = regexp.MustCompile(`([a-z0-9])([A-Z])`)
