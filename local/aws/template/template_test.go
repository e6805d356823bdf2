package template

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The functions, as their pages in the template reference show them.
func TestFunctions(t *testing.T) {
	parsed, err := Parse([]byte(`
Parameters:
  Stage: {Type: String, Default: dev}
  Zones: {Type: CommaDelimitedList, Default: "a, b"}
  Missing: {Type: String}
  Remote: {Type: AWS::SSM::Parameter::Value<String>, Default: /shop/table}
Mappings:
  Size: {dev: {memory: 128}, prod: {memory: 1024}}
Conditions:
  IsProd: !Equals [!Ref Stage, prod]
  IsNotProd: !Not [!Condition IsProd]
  Both: !And [!Condition IsNotProd, !Equals [a, a]]
  Either: !Or [!Condition IsProd, !Condition Both]
Resources:
  Queue: {Type: "AWS::SQS::Queue"}
`))
	require.NoError(t, err)
	s := &Scope{Template: parsed, Stack: "Shop",
		Resource: func(id, attribute string) (any, error) {
			if id == "Missing" {
				return nil, fmt.Errorf("no resource %s", id)
			}
			return strings.TrimSuffix("the "+id+" "+attribute, " "), nil
		},
		Import: func(name string) (any, error) { return "imported " + name, nil },
	}
	for in, want := range map[string]string{
		`"text"`://
		`"text"`,
		`{"Ref":"Queue"}`://
		`"the Queue"`,
		`{"Ref":"Stage"}`://
		`"dev"`,
		`{"Ref":"Zones"}`://
		`["a","b"]`,
		`[{"Ref":"AWS::Region"},{"Ref":"AWS::AccountId"},{"Ref":"AWS::Partition"},{"Ref":"AWS::StackName"}]`://
		`["us-east-1","123456789012","aws","Shop"]`,
		`{"a":{"Ref":"AWS::NoValue"},"b":[{"Ref":"AWS::NoValue"},1]}`://
		`{"b":[1]}`,
		`{"Fn::GetAtt":["Queue","Arn"]}`://
		`"the Queue Arn"`,
		`{"Fn::GetAtt":"Queue.Arn"}`://
		`"the Queue Arn"`,
		`{"Fn::Join":[":",["a",{"Ref":"Stage"},3,true]]}`://
		`"a:dev:3:true"`,
		`{"Fn::Join":["",{"Ref":"Zones"}]}`://
		`"ab"`,
		`{"Fn::Split":["|","a|b||c"]}`://
		`["a","b","","c"]`,
		`{"Fn::Select":["1",{"Fn::Split":["|","a|b"]}]}`://
		`"b"`,
		`{"Fn::Select":[0,{"Ref":"Zones"}]}`://
		`"a"`,
		`{"Fn::Sub":"${Queue.Arn}/${ Stage }/${!Literal}"}`://
		`"the Queue Arn/dev/${Literal}"`,
		`{"Fn::Sub":["${a}-${AWS::Region}",{"a":{"Ref":"Stage"}}]}`://
		`"dev-us-east-1"`,
		`{"Fn::FindInMap":["Size",{"Ref":"Stage"},"memory"]}`://
		`128`,
		`{"Fn::ImportValue":{"Fn::Sub":"${Stage}-table"}}`://
		`"imported dev-table"`,
		`{"Fn::Base64":"text"}`://
		`"dGV4dA=="`,
		`{"Fn::GetAZs":""}`://
		`["us-east-1a","us-east-1b","us-east-1c"]`,
		`{"Fn::If":["IsProd",{"Ref":"Missing"},"small"]}`://
		`"small"`,
		`{"a":{"Fn::If":["Either",{"Ref":"AWS::NoValue"},"x"]}}`://
		`{}`,
		`{"Fn::If":["Both","yes","no"]}`://
		`"yes"`,
	} {
		got, err := s.Eval(value(t, in))
		require.NoError(t, err, in)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, want, string(text), in)
	}
	for in, want := range map[string]string{
		`{"a":{"b":[{"Fn::Join":[":","text"]}]}}`://
		"a: b: Fn::Join: text is no list",
		`{"Ref":"Missing"}`://
		"Ref: parameter Missing has no default: give it with -parameter Missing=VALUE",
		`{"Ref":"Remote"}`://
		"Ref: parameter Remote has a value in SSM on AWS: give it with -parameter Remote=VALUE",
		`{"Fn::Select":[2,["a","b"]]}`://
		"Fn::Select: [a b] has no member 2",
		`{"Fn::Sub":"${Missing.Arn}"}`://
		"Fn::Sub: ${Missing.Arn}: no resource Missing",
		`{"Fn::Sub":{"a":"b"}}`://
		"Fn::Sub: map[a:b] is no text",
		`{"Fn::If":["Unknown",1,2]}`://
		`Fn::If: there is no condition "Unknown"`,
		`{"Fn::If":["IsProd",1]}`://
		"Fn::If: it takes a condition and two values: [IsProd 1]",
		`{"Fn::FindInMap":["Size","test","memory"]}`://
		"Fn::FindInMap: no mapping has Size, test, memory",
		`{"Fn::Transform":{"Name":"AWS::Include"}}`://
		"Fn::Transform: there is no such function here",
		`{"Fn::GetAtt":"Queue"}`://
		"Fn::GetAtt: Queue names no attribute of a resource",
		`{"Fn::Join":[":"]}`://
		"Fn::Join: its arguments are wrong: [:]",
		`{"Fn::Join":[":",["a",{"Fn::GetAZs":""}]]}`://
		"Fn::Join: [us-east-1a us-east-1b us-east-1c] is no text",
	} {
		_, err := s.Eval(value(t, in))
		require.EqualError(t, err, want, in)
	}
	s.Import = nil
	_, err = s.Eval(map[string]any{"Fn::ImportValue": "table"})
	require.EqualError(t, err, `Fn::ImportValue: no other stack exports "table"`)
	s.Parameters = map[string]string{"Stage": "prod", "Missing": "given", "Remote": ""}
	got, err := s.Eval(map[string]any{"Fn::If": []any{"IsProd", map[string]any{"Ref": "Missing"}, "small"}})
	require.NoError(t, err)
	require.Equal(t, "given", got)
	got, err = s.Eval(map[string]any{"Ref": "Remote"})
	require.NoError(t, err)
	require.Empty(t, got, "an empty value is one")
}

func TestTemplatesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"Resources":{}}`://
		"it is no CloudFormation template: it has no Resources",
		`[1]`://
		"it is no CloudFormation template",
		`{"Resources":{"A":{"Type":"T"}}`://
		"it is no CloudFormation template: unexpected EOF",
		"Transform: AWS::Serverless-2016-10-31\nResources: {A: {Type: T}}": //
		"its Transform AWS::Serverless-2016-10-31 runs on AWS alone, sam build does not: write the types that come of it, " +
			"or deploy it and give what this writes: aws cloudformation get-template --stack-name STACK --template-stage",
	} {
		_, err := Parse([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{
		`A: {Type: T, Properties: {x: !Ref B}}`://
		"A refers to B, and the template has no such resource or parameter",
		`A: {Type: T, DependsOn: [B, C], Condition: D}`: //
		"A refers to B, and the template has no such resource or parameter\n" +
			"A refers to C, and the template has no such resource or parameter\n" +
			"A has the condition D, and the template has no such one",
		`{A: {Type: T, Properties: {x: !GetAtt B.Arn}}, B: {Type: T, Properties: {x: !Sub "${C.Arn}"}}, ` +
			`C: {Type: T, DependsOn: A}}`: //
		"resources refer to each other: A → B → C → A",
		`{A: {Type: T, Properties: {x: !Sub ["${own}", {own: !Ref A}]}}}`://
		"resources refer to each other: A → A",
	} {
		parsed, err := Parse([]byte("Resources:\n  " + text))
		require.NoError(t, err)
		require.EqualError(t, parsed.Check(), want, text)
	}
	parsed, err := Parse([]byte("Conditions: {A: !Not [!Condition B], B: !Not [!Condition A]}\nResources: {R: {Type: T}}"))
	require.NoError(t, err)
	require.EqualError(t, parsed.Check(), "conditions refer to each other: A → B → A")
}

func value(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}
