package cloud

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// assembly writes a folder as cdk synth does, with two stacks: the second one is deployed after the first.
func assembly(t *testing.T, data, api string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"manifest.json": `{"artifacts": {
			"Api": {"type": "aws:cloudformation:stack", "dependencies": ["Data"], "properties": {"templateFile": "Api.yaml"}},
			"Data": {"type": "aws:cloudformation:stack", "properties": {"templateFile": "Data.yaml"}}}}`,
		"Data.yaml": data, "Api.yaml": api,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const dataStack = `
Parameters: {Stage: {Type: String, Default: dev}, Replay: {Type: String, Default: ""}}
Conditions:
  IsProd: !Equals [!Ref Stage, prod]
  HasReplay: !Not [!Equals [!Ref Replay, ""]]
Resources:
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: !Sub "${Stage}-records"
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
  Replays: {Type: AWS::SQS::Queue, Condition: HasReplay, Properties: {QueueName: !Ref Replay}}
  Backup: {Type: AWS::Backup::BackupPlan, Condition: IsProd}
Outputs:
  Records: {Value: !Ref Records, Export: {Name: !Sub "${AWS::StackName}:records"}}
  Replays: {Condition: HasReplay, Value: !GetAtt Replays.Arn, Export: {Name: replays}}
`

const apiStack = `
Parameters: {Stage: {Type: String, Default: dev}}
Conditions: {IsProd: !Equals [!Ref Stage, prod]}
Resources:
  Charge:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties:
      Runtime: provided.al2023
      Timeout: "20"
      ReservedConcurrentExecutions: !If [IsProd, "5", !Ref AWS::NoValue]
      Environment: {Variables: {IDEM_TABLE: !ImportValue "Data:records"}}
  Version: {Type: AWS::Lambda::Version, Properties: {FunctionName: !Ref Charge}}
  Live:
    Type: AWS::Lambda::Alias
    Properties: {FunctionName: !Ref Charge, FunctionVersion: !GetAtt Version.Version, Name: live}
  Sweep:
    Type: AWS::Events::Rule
    Properties: {ScheduleExpression: rate(1 minute), Targets: [{Arn: !Ref Live, Id: It}]}
  Pool: {Type: AWS::Cognito::UserPool}
  Http: {Type: AWS::ApiGatewayV2::Api, Properties: {ProtocolType: HTTP, CorsConfiguration: {}}}
  To:
    Type: AWS::ApiGatewayV2::Integration
    Properties:
      {ApiId: !Ref Http, IntegrationType: AWS_PROXY, IntegrationUri: !Ref Live, PayloadFormatVersion: "2.0"}
  Get:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Http, RouteKey: GET /, Target: !Sub "integrations/${To}"}
  Auth:
    Type: AWS::ApiGatewayV2::Authorizer
    Properties: {ApiId: !Ref Http, AuthorizerType: JWT, JwtConfiguration: {Issuer: !GetAtt Pool.ProviderURL}}
  Stage: {Type: AWS::ApiGatewayV2::Stage, Properties: {ApiId: !Ref Http, StageName: live}}
  Url: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !Ref Live, AuthType: NONE}}
`

// Parameters, conditions and the exports of other stacks decide what runs.
func TestStacks(t *testing.T) {
	dir := assembly(t, dataStack, apiStack)
	p, err := Read(dir, nil)
	require.NoError(t, err)
	require.Equal(t, "dev-records", p.Tables[0].Name)
	require.Empty(t, p.Queues)
	require.Equal(t, map[string]string{"IDEM_TABLE": "dev-records"}, p.Functions[0].Env)
	require.Zero(t, p.Functions[0].MaxInstances)
	require.Equal(t, "Api-Charge", p.Schedules[0].Function)
	require.Equal(t, []string{"Http", "Url"}, []string{p.APIs[0].Name, p.APIs[1].Name})
	require.Equal(t, "Api-Charge", p.APIs[1].Routes["$default"].Function)
	require.Equal(t, "live", p.APIs[0].Stage)
	require.Equal(t, []string{"Api/Auth: JwtConfiguration has no effect here",
		"Api/Http: CorsConfiguration has no effect here"}, slices.Sorted(slices.Values(p.Notes)))

	o := &ReadOptions{Parameters: map[string]string{"Stage": "prod", "Replay": "again"}}
	_, err = Read(dir, o)
	require.EqualError(t, err, "AWS::Backup::BackupPlan is not known here (Data/Backup): leave it out with "+
		"-ignore AWS::Backup::BackupPlan, if what runs can do without")
	o.Ignore = []string{"AWS::Backup::BackupPlan"}
	p, err = Read(dir, o)
	require.NoError(t, err)
	require.Equal(t, "prod-records", p.Tables[0].Name)
	require.Equal(t, "again", p.Queues[0].Name)
	require.Equal(t, 5, p.Functions[0].MaxInstances)
	require.Equal(t, map[string][]string{"AWS::Backup::BackupPlan": {"Data/Backup"},
		"AWS::Cognito::UserPool": {"Api/Pool"}}, p.Silent)

	for name, c := range map[string]struct {
		data, api  *strings.Replacer
		parameters map[string]string
		want       string
	}{
		"an export that is not there": {nil, strings.NewReplacer("Data:records", "Data:table"), nil,
			"no stack before Api exports Data:table"},
		"an export without its condition": {nil, strings.NewReplacer("Data:records", "replays"), nil,
			"no stack before Api exports replays"},
		"a resource without its condition": {strings.NewReplacer("!Ref Records", "!Ref Replays"), nil, nil,
			"Replays is not deployed"},
		"a parameter that is not there": {nil, nil, map[string]string{"Stag": "prod"}, "no template has a parameter Stag"},
		"a condition that is not there": {nil, strings.NewReplacer("[IsProd,", "[IsTest,"), nil,
			`Fn::If: there is no condition "IsTest"`},
		"a function that AWS throttles": {nil, strings.NewReplacer(`"5", !Ref AWS::NoValue`, `"5", 0`), nil,
			"Api/Charge (AWS::Lambda::Function): ReservedConcurrentExecutions 0 throttles all its invocations on AWS"},
		"no text": {nil, strings.NewReplacer(`"20"`, "[20]"), nil, "Api/Charge (AWS::Lambda::Function): "},
	} {
		none := strings.NewReplacer()
		if c.data == nil {
			c.data = none
		}
		if c.api == nil {
			c.api = none
		}
		dir := assembly(t, c.data.Replace(dataStack), c.api.Replace(apiStack))
		_, err := Read(dir, &ReadOptions{Parameters: c.parameters})
		require.ErrorContains(t, err, c.want, name)
	}
}
