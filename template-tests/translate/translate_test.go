package translate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not known fails by its name.
func TestTerraformRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ kind, members, says string }{
		"a type":       {"SNS::Topic", ``, "R: the resource type AWS::SNS::Topic is not known"},
		"a property":   {"SQS::Queue", `"Properties":{"DelaySeconds":3}`, "R: the property DelaySeconds is not known"},
		"a second one": {"SQS::QueuePolicy", `"Properties":{"Queues":["a","b"]}`, "R: the property Queues.1 is not known"},
		"a value": {"DynamoDB::GlobalTable", `"Properties":{"KeySchema":[{"KeyType":"RANGE"}]}`,
			"R: the property KeySchema.0.KeyType is RANGE instead of HASH"},
		"a function": {"SQS::Queue", `"Properties":{"A":{"Fn::If":["a",1,2]}}`, "the function Fn::If [a 1 2] is not known"},
		"a reference": {"SQS::QueuePolicy", `"Properties":{"Queues":[{"Ref":"AWS::Region"}]}`,
			"R: the reference ${AWS::Region} is not known"},
		"an attribute": {"SQS::QueuePolicy", `"Properties":{"Queues":[{"Fn::GetAtt":["R","Urn"]}]}`,
			`R: the attribute "Urn" of R, a AWS::SQS::QueuePolicy, is not known`},
		"two targets":     {"Events::Rule", `"Properties":{"Targets":[{},{}]}`, "R has 2 targets instead of one"},
		"a retained type": {"SQS::Queue", `"DeletionPolicy":"Retain"`, "R: a retained AWS::SQS::Queue is not known"},
		"a member":        {"SQS::Queue", `"Condition":"C"`, "R: the member Condition is not known"},
		"a brace":         {"SQS::Queue", `"Properties":{"A":"${x"}`, `"${x" has a ${, which only Fn::Sub may have`},
	} {
		t.Run(name, func(t *testing.T) {
			resource := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte("{"+tc.members+"}"), &resource))
			resource["Type"] = "AWS::" + tc.kind
			require.PanicsWithError(t, tc.says, func() { Terraform(Template{"Resources": map[string]any{"R": resource}}) })
		})
	}
	require.PanicsWithError(t, "the member Conditions of the template is not known",
		func() { Terraform(Template{"Conditions": nil}) })
}
