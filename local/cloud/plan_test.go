package cloud

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// shop is a template of a table, an API, a queue and its function.
const shop = `
Resources:
  Records:
    Type: AWS::DynamoDB::GlobalTable
    Properties:
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
      TimeToLiveSpecification: {AttributeName: expires_at, Enabled: true}
      Replicas: [{Region: !Ref AWS::Region}]
  Charge:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./cmd/charge}
    Properties:
      Runtime: provided.al2023
      Timeout: 20
      Role: !GetAtt Role.Arn
      Environment: {Variables: {IDEM_TABLE: !Ref Records, ORDERS: !Ref Orders, LIMIT: 5, RATE: 1.5}}
      VpcConfig: {}
  Role: {Type: AWS::IAM::Role}
  Orders:
    Type: AWS::SQS::Queue
    Properties:
      FifoQueue: true
      VisibilityTimeout: 120
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}
  Dead: {Type: AWS::SQS::Queue, Properties: {FifoQueue: "true", QueueName: dead.fifo}}
  FromOrders:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      FunctionName: !Ref Charge
      EventSourceArn: !GetAtt Orders.Arn
      BatchSize: 10
      FunctionResponseTypes: [ReportBatchItemFailures]
  FromStream:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      FunctionName: !GetAtt Charge.Arn
      EventSourceArn: !GetAtt Records.StreamArn
      StartingPosition: TRIM_HORIZON
      FilterCriteria: {Filters: [{Pattern: "{}"}]}
      FunctionResponseTypes: [ReportBatchItemFailures]
  Api: {Type: AWS::ApiGatewayV2::Api, Properties: {Name: shop, ProtocolType: HTTP}}
  ToCharge:
    Type: AWS::ApiGatewayV2::Integration
    Properties:
      {ApiId: !Ref Api, IntegrationType: AWS_PROXY, IntegrationUri: !GetAtt Charge.Arn, PayloadFormatVersion: "2.0"}
  Route:
    Type: AWS::ApiGatewayV2::Route
    Properties:
      {ApiId: !Ref Api, RouteKey: POST /charges, AuthorizationType: AWS_IAM, Target: !Sub "integrations/${ToCharge}"}
  Stage: {Type: AWS::ApiGatewayV2::Stage, Properties: {ApiId: !Ref Api, StageName: $default}}
  Sweep:
    Type: AWS::Events::Rule
    Properties: {ScheduleExpression: rate(5 minutes), Targets: [{Arn: !GetAtt Charge.Arn, Id: It}]}
`

func read(t *testing.T, text string, o *ReadOptions) (*Plan, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "Shop.template.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return Read(path, o)
}

func TestPlan(t *testing.T) {
	p, err := read(t, shop, &ReadOptions{Endpoints: Endpoints{Queues: "http://queues"}})
	require.NoError(t, err)
	require.Equal(t, "Shop-Records", p.Tables[0].Name)
	require.Equal(t, "expires_at", p.Tables[0].Expiry)
	require.NotNil(t, p.Tables[0].Create.StreamSpecification)
	require.Equal(t, "dead.fifo", p.Queues[0].Name)
	require.Equal(t, "Shop-Orders.fifo", p.Queues[1].Name)
	require.Equal(t, "dead.fifo", p.Queues[1].DeadLetters)
	require.Equal(t, map[string]string{"FifoQueue": "true", "VisibilityTimeout": "120"}, p.Queues[1].Attributes)
	f := p.Functions[0]
	require.Equal(t, "./cmd/charge", f.Package)
	require.Equal(t, 20*time.Second, f.Timeout)
	require.Equal(t, "Shop-Role", f.Role)
	require.Equal(t, map[string]string{"IDEM_TABLE": "Shop-Records", "LIMIT": "5", "RATE": "1.5",
		"ORDERS": "http://queues/000000000000/Shop-Orders.fifo"}, f.Env)
	m := p.Mappings
	require.Equal(t, [2]string{"Shop-Orders.fifo", ""}, [2]string{m[0].Queue, m[0].Table})
	require.Equal(t, [2]string{"", "Shop-Records"}, [2]string{m[1].Queue, m[1].Table})
	require.Equal(t, "Shop-Charge", m[0].Function)
	require.Equal(t, "{}", m[1].Filter)
	require.Equal(t, gateway.HTTPAPI, p.APIs[0].Flavour)
	require.Equal(t, map[string]Route{"POST /charges": {"Shop-Charge", IAM, nil}}, p.APIs[0].Routes)
	require.Equal(t, "rate(5 minutes)", p.Schedules[0].Expression)
	require.Equal(t, map[string][]string{"AWS::IAM::Role": {"Shop/Role"}}, p.Silent)
	require.Equal(t, []string{"Shop/Charge: VpcConfig has no effect here"}, p.Notes)
}

// What is wrong is said before anything starts.
func TestPlansThatAreRefused(t *testing.T) {
	for change, want := range map[[2]string]string{
		{`AWS::IAM::Role`, `AWS::EC2::Instance`}://
		`AWS::EC2::Instance is not known here (Shop/Role): leave it out with -ignore AWS::EC2::Instance`,
		{`!GetAtt Role.Arn`, `!GetAtt Rolle.Arn`}://
		`Shop: Charge refers to Rolle, and the template has no such resource`,
		{`!GetAtt Role.Arn`, `!GetAtt Role.Color`}://
		`Shop/Role (AWS::IAM::Role) has no attribute Color here`,
		{`!GetAtt Dead.Arn`, `arn:aws:sqs:a:b:none`}://
		`Shop/Orders: there is no queue none for its dead letters`,
		{`!GetAtt Orders.Arn`, `arn:aws:sqs:a:b:none`}://
		`Shop/FromOrders: there is no queue none`,
		{`!GetAtt Records.StreamArn`, `arn:aws:kinesis:a:b:c`}://
		`Shop/FromStream (AWS::Lambda::EventSourceMapping): events of arn:aws:kinesis:a:b:c do not`,
		{`"idem:package": ./cmd/charge`, `"x": y`}://
		`Shop/Charge (AWS::Lambda::Function): its code is not here: give the assembly that cdk synth writes, or name`,
		{`{Name: shop, ProtocolType: HTTP}`, `{ProtocolType: WEBSOCKET}`}://
		`an API of the protocol WEBSOCKET does not run here`,
		{`!Sub "integrations/${ToCharge}"`, `integrations/none`}://
		`Shop/Route (AWS::ApiGatewayV2::Route): the route POST /charges has no function`,
		{`AWS_IAM`, `CUSTOM`}://
		`Shop/Route (AWS::ApiGatewayV2::Route): its authorizer "" is none of its API that is a function`,
		{`rate(5 minutes)`, `cron(0 12)`}://
		`the schedule "cron(0 12)" does not run here`,
		{`Timeout: 20`, `Timeout: long`}://
		`Shop/Charge (AWS::Lambda::Function): `,
		{"Type: AWS::SQS::Queue\n", "Type: AWS::SQS::Queue\n    DependsOn: FromOrders\n"}://
		"Shop: resources refer to each other: Orders → FromOrders → Orders",
		{`BatchSize: 10`, `BatchSize: 100`}://
		`Shop/FromOrders: queuepoller: Options.BatchSize 100 is not in [1, 10]`,
		{`Pattern: "{}"`, `Pattern: "[]"`}://
		`Shop/FromStream: streampoller: filter "[]"`,
		{"      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}\n", ""}://
		`Shop/FromStream: the table Shop-Records has no stream`,
		{`POST /charges`, `POST charges`}://
		`Shop/Api: gateway: route "POST charges" is neither`,
		{"  Sweep:", "  Second:\n    Type: AWS::ApiGatewayV2::Route\n    Properties: " +
			"{ApiId: !Ref Api, RouteKey: POST /charges, Target: !Sub \"integrations/${ToCharge}\"}\n  Sweep:"}: //
		"another route of Api is POST /charges too",
	} {
		require.Contains(t, shop, change[0])
		_, err := read(t, strings.Replace(shop, change[0], change[1], 1), nil)
		require.ErrorContains(t, err, want)
	}
	_, err := read(t, strings.Replace(shop, "Type: AWS::IAM::Role", "Type: AWS::EC2::Instance", 1),
		&ReadOptions{Ignore: []string{"AWS::EC2::Instance"}})
	require.NoError(t, err)
	_, err = Read(filepath.Join(t.TempDir(), "cdk.out"), nil)
	require.ErrorContains(t, err, "run cdk synth first")
}

// The examples' own templates run as they are.
func TestExamples(t *testing.T) {
	p, err := Read("../../template-tests/testdata/snapshots", nil)
	require.NoError(t, err)
	require.Len(t, p.Functions, 7)
	for _, f := range p.Functions {
		require.NotEmpty(t, f.Package, f.Name)
	}
	require.Len(t, p.Notes, 2, "of the two relays' mappings")
	require.Contains(t, p.Notes[0], "a batch that fails is delivered again until it succeeds: MaximumRetryAttempts, "+
		"BisectBatchOnFunctionError, DestinationConfig have no effect here")
}
