package templatetests

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/template-tests/provider"
)

// inTerraform is what a resource of a type is in Terraform, and what its references are there: by the
// attribute, "" for Ref.
var inTerraform = map[string]struct {
	kind       string
	references map[string]string
}{
	"AWS::CloudWatch::Alarm": {"aws_cloudwatch_metric_alarm", nil},
	"AWS::DynamoDB::GlobalTable": {"aws_dynamodb_table",
		map[string]string{"": "name", "Arn": "arn", "StreamArn": "stream_arn"}},
	"AWS::Events::Rule":               {"aws_cloudwatch_event_rule", map[string]string{"Arn": "arn"}},
	"AWS::IAM::ManagedPolicy":         {"aws_iam_policy", nil},
	"AWS::IAM::Policy":                {"aws_iam_role_policy", nil},
	"AWS::IAM::Role":                  {"aws_iam_role", map[string]string{"": "name", "Arn": "arn"}},
	"AWS::Lambda::EventInvokeConfig":  {"aws_lambda_function_event_invoke_config", nil},
	"AWS::Lambda::EventSourceMapping": {"aws_lambda_event_source_mapping", nil},
	"AWS::Lambda::Function":           {"aws_lambda_function", map[string]string{"": "function_name", "Arn": "arn"}},
	"AWS::Lambda::Permission":         {"aws_lambda_permission", nil},
	// CloudFormation's ARN of a log group ends in :*, and Terraform's does not.
	"AWS::Logs::LogGroup":   {"aws_cloudwatch_log_group", map[string]string{"": "name", "Arn": "arn}:*"}},
	"AWS::SQS::Queue":       {"aws_sqs_queue", map[string]string{"": "url", "Arn": "arn", "QueueName": "name"}},
	"AWS::SQS::QueuePolicy": {"aws_sqs_queue_policy", nil},
}

// otherNames are attributes that are not called as their property, by the end of the property's path.
var otherNames = []struct{ property, attribute string }{
	{"AttributeDefinitions.*.AttributeName", "name"}, {"AttributeDefinitions.*.AttributeType", "type"},
	{"KeySchema.0.AttributeName", "hash_key"}, {"KeySchema.1.AttributeName", "range_key"}, {"IndexName", "name"},
	{"PointInTimeRecoveryEnabled", "enabled"}, {"SSEEnabled", "enabled"},
	{"MessageRetentionPeriod", "message_retention_seconds"}, {"VisibilityTimeout", "visibility_timeout_seconds"},
	{"AssumeRolePolicyDocument", "assume_role_policy"}, {"PolicyDocument", "policy"}, {"Roles.0", "role"},
	{"Queues.0", "queue_url"}, {"OnFailure.Destination", "destination_arn"}, {"Targets.0.Id", "target_id"},
}

// absent are properties that are not in Terraform, with their value, or nil for any.
var absent = map[string]any{
	"KeySchema.0.KeyType": "HASH", "KeySchema.1.KeyType": "RANGE", "Replicas.0.Region": "${AWS::Region}",
	"Replicas.0.GlobalSecondaryIndexes.0.IndexName": "open", ".Code": nil, ".PolicyName": nil,
}

// sameInTerraform requires that each value of the template is in Terraform's resources under its name, and
// that nothing else is there but names, archives and what says that a resource stays.
func sameInTerraform(t *testing.T, tt template, files map[string]string) {
	found, problems := provider.Evaluate(files)
	require.Empty(t, problems)
	resources := tt["Resources"].(map[string]any)
	for id, raw := range resources {
		r := raw.(map[string]any)
		kind := inTerraform[r["Type"].(string)].kind
		address := kind + "." + snake(id)
		require.Contains(t, found, address)
		properties := text(found[address])
		got := leaves("", found[address])
		delete(found, address)
		if kind == "aws_cloudwatch_event_rule" {
			target := "aws_cloudwatch_event_target." + snake(id) + "_target"
			got = append(got, leaves("", found[target])...)
			got = without(t, got, "rule=${"+address+".name}")
			delete(found, target)
		}
		for _, l := range tt.leavesOf(t, "", r["Properties"]) {
			got = without(t, got, l)
		}
		var first []string
		dependsOn, _ := r["DependsOn"].([]any)
		for _, on := range texts(dependsOn) {
			on = inTerraform[at(resources, on, "Type").(string)].kind + "." + snake(on)
			if !strings.Contains(properties, "${"+on+".") { // a reference is a dependency too
				first = append(first, on)
			}
		}
		if first != nil {
			got = without(t, got, "depends_on="+text(first))
		}
		switch kind {
		case "aws_cloudwatch_log_group":
			got = without(t, got, "skip_destroy=true")
			require.Equal(t, "Retain", r["DeletionPolicy"])
		case "aws_dynamodb_table":
			got = without(t, without(t, got, "stream_enabled=true"), "prevent_destroy=true")
			require.Equal(t, "Retain", r["DeletionPolicy"])
		case "aws_lambda_function":
			archive := "${var." + snake(id) + "_zip}"
			got = without(t, without(t, got, "filename="+archive), "source_code_hash="+archive)
			require.Contains(t, strings.Join(slices.Collect(maps.Values(files)), ""),
				"source_code_hash = filebase64sha256(var."+snake(id)+"_zip)")
		default:
			require.NotEqual(t, "Retain", r["DeletionPolicy"])
		}
		name := "${var.name}-" + strings.ReplaceAll(snake(id), "_", "-")
		got = slices.DeleteFunc(got, func(l string) bool { return strings.HasSuffix(l, "name="+name) })
		require.Empty(t, got, "%s has more than %s", address, id)
	}
	require.Empty(t, found, "resources that the template has not")
}

func without(t *testing.T, all []string, one string) []string {
	t.Helper()
	at := slices.Index(all, one)
	require.GreaterOrEqual(t, at, 0, "%s is not among %q", one, all)
	return slices.Delete(all, at, at+1)
}

// leaves are the values with the last names of their paths. Policies and lists of values are one value.
func leaves(name string, v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		if name == "variables" || name == "dimensions" {
			return []string{name + "=" + text(v)}
		}
		for inner, value := range v {
			all = append(all, leaves(inner, value)...)
		}
		return all
	case []any:
		if len(v) > 0 {
			if _, blocks := v[0].(map[string]any); blocks {
				for _, one := range v {
					all = append(all, leaves("", one)...)
				}
				return all
			}
		}
	}
	if strings.HasSuffix(name, "policy") {
		var document any
		if json.Unmarshal([]byte(shown(v)), &document) == nil {
			return []string{name + "=" + text(document)}
		}
	}
	return []string{name + "=" + shown(v)}
}

func shown(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// leavesOf are the leaves of a property as they must be in Terraform.
func (tt template) leavesOf(t *testing.T, path string, v any) (all []string) {
	for end, value := range absent {
		if strings.HasSuffix(path, end) {
			if value != nil {
				require.Equal(t, value, tt.referring(t, v))
			}
			return nil
		}
	}
	name := snake(path[strings.LastIndex(path, ".")+1:])
	for _, other := range otherNames {
		end := `\.` + strings.ReplaceAll(regexp.QuoteMeta(other.property), `\*`, `\d+`) + "$"
		if regexp.MustCompile(end).MatchString(path) {
			name = other.attribute
		}
	}
	resolved := tt.referring(t, v)
	switch name {
	case "policy", "assume_role_policy", "redrive_policy", "variables":
		return []string{name + "=" + text(resolved)}
	case "dimensions":
		pairs := map[string]any{}
		for _, one := range resolved.([]any) {
			pairs[one.(map[string]any)["Name"].(string)] = one.(map[string]any)["Value"]
		}
		return []string{name + "=" + text(pairs)}
	}
	switch of := v.(type) {
	case map[string]any:
		if _, isText := resolved.(string); isText {
			break
		}
		for _, inner := range slices.Sorted(maps.Keys(of)) {
			all = append(all, tt.leavesOf(t, path+"."+inner, of[inner])...)
		}
		return all
	case []any:
		if path == ".AlarmActions" || path == ".Architectures" || path == ".FunctionResponseTypes" {
			break
		}
		for i, one := range of {
			all = append(all, tt.leavesOf(t, fmt.Sprintf("%s.%d", path, i), one)...)
		}
		return all
	}
	return []string{name + "=" + shown(resolved)}
}

var subReference = regexp.MustCompile(`\$\{(\w+)\.?(\w*)\}`)

// referring is a value with references as Terraform has them.
func (tt template) referring(t *testing.T, v any) any {
	switch v := substituted(v).(type) {
	case []any:
		for i, one := range v {
			v[i] = tt.referring(t, one)
		}
		return v
	case map[string]any:
		for name, one := range v {
			v[name] = tt.referring(t, one)
		}
		return v
	case string:
		return subReference.ReplaceAllStringFunc(v, func(whole string) string {
			id, attribute := subReference.FindStringSubmatch(whole)[1], subReference.FindStringSubmatch(whole)[2]
			r, ok := tt["Resources"].(map[string]any)[id]
			if !ok {
				return "${var." + snake(id) + "}"
			}
			kind := inTerraform[at(r, "Type").(string)]
			require.Contains(t, kind.references, attribute, id)
			of, rest, _ := strings.Cut(kind.references[attribute], "}")
			return "${" + kind.kind + "." + snake(id) + "." + of + "}" + rest
		})
	default:
		return v
	}
}

// snake is a name in camel case as Terraform writes it.
func snake(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "${1}_${2}"))
}
