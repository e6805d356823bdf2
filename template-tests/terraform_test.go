package templatetests

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/template-tests/provider"
)

// only are the values that a resource has in the template alone, and in Terraform alone, by its type.
var only = map[string]struct{ template, terraform []string }{
	"AWS::DynamoDB::GlobalTable": {
		[]string{"HASH", "RANGE", "HASH", "RANGE", schema.OpenIndex, "${AWS::Region}"}, // the last two: of the replica
		[]string{"true", "true"}, // stream_enabled, prevent_destroy
	},
	"AWS::Logs::LogGroup": {nil, []string{"true"}}, // skip_destroy
}

// sameInTerraform requires that Terraform's resources have the values of the template, whatever they are called
// there, and that nothing else is there but names, archives and what says that a resource stays. The attributes'
// names are compared with the provider's.
func sameInTerraform(t *testing.T, tt template, files map[string]string) {
	found, problems := provider.Evaluate(files)
	require.Empty(t, problems)
	require.Subset(t, []string{"Description", "Parameters", "Resources", "Outputs"}, slices.Collect(maps.Keys(tt)))
	all := strings.Join(slices.Collect(maps.Values(files)), "")
	got := map[string][]string{}
	for address, r := range found {
		_, name, _ := strings.Cut(address, ".")
		name = strings.TrimSuffix(name, "_target") // of a rule
		got[name] = append(got[name], values(r)...)
	}
	for id, raw := range tt["Resources"].(map[string]any) {
		r, name := raw.(map[string]any), snake(id)
		kind := r["Type"].(string)
		require.Subset(t, []string{"Type", "Properties", "DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "Metadata"},
			slices.Collect(maps.Keys(r)), id)
		properties := maps.Clone(r["Properties"].(map[string]any))
		delete(properties, "Code")
		delete(properties, "PolicyName")
		wanted := append(tt.referring(values(substituted(properties))), only[kind].terraform...)
		if kind == "AWS::SQS::Queue" && r["DeletionPolicy"] == "RetainExceptOnCreate" {
			wanted = append(wanted, "true") // prevent_destroy
		}
		switch kind {
		case "AWS::Lambda::Function":
			wanted = append(wanted, "${"+name+"_zip}", "${"+name+"_zip}")
		case "AWS::Events::Rule":
			wanted = append(wanted, "${"+name+"}") // of its target
		}
		is := append(got[name], only[kind].template...)
		called := "${name}-" + strings.ReplaceAll(name, "_", "-")
		is = slices.DeleteFunc(is, func(v string) bool { return v == called })
		require.ElementsMatch(t, wanted, is, id)
		delete(got, name)
		dependsOn, _ := r["DependsOn"].([]any)
		_, block, _ := strings.Cut(all, `" "`+name+"\" {\n")
		block, _, _ = strings.Cut(block, "\n}\n")
		for _, on := range texts(dependsOn) {
			require.Regexp(t, `\.`+snake(on)+`\b`, block, "%s waits for %s", id, on)
		}
	}
	require.Empty(t, got, "resources that the template has not")
}

var reference = regexp.MustCompile(`\$\{(?:aws_\w+|var)\.(\w+)(?:\.(\w+))?\}(?::\*)?`)

// values are those that a value consists of, without their names. References are such as ${work_queue.arn}.
func values(v any) (all []string) {
	switch v := v.(type) {
	case nil:
	case map[string]any:
		if dimension, ok := v["Value"]; ok {
			return values(dimension) // whose Name is the value's name in Terraform
		}
		if _, policy := v["Statement"]; policy {
			return []string{referenced(text(v))} // one value: which actions go with which resource counts
		}
		for _, one := range v {
			all = append(all, values(one)...)
		}
	case []any:
		for _, one := range v {
			all = append(all, values(one)...)
		}
	case string:
		var document map[string]any
		if json.Unmarshal([]byte(v), &document) == nil {
			return values(document)
		}
		return []string{referenced(v)}
	default:
		return []string{text(v)}
	}
	return all
}

func referenced(v string) string {
	return reference.ReplaceAllStringFunc(v, func(whole string) string {
		m := reference.FindStringSubmatch(whole)
		return "${" + m[1] + arns[m[2]] + "}"
	})
}

// arns are the references to an ARN. All others are to a name or a URL.
var arns = map[string]string{"arn": ".arn", "Arn": ".arn", "stream_arn": ".stream_arn", "StreamArn": ".stream_arn"}

var subReference = regexp.MustCompile(`\$\{(\w+)(?:\.(\w+))?\}`)

// referring are values of the template with references as in values.
func (tt template) referring(all []string) []string {
	for i, v := range all {
		all[i] = subReference.ReplaceAllStringFunc(v, func(whole string) string {
			m := subReference.FindStringSubmatch(whole)
			if number, ok := at(map[string]any(tt), "Parameters", m[1], "Default").(float64); ok {
				return text(number)
			}
			return "${" + snake(m[1]) + arns[m[2]] + "}"
		})
	}
	return all
}

// snake is a name in camel case as Terraform writes it.
func snake(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "${1}_${2}"))
}
