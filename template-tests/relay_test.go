package templatetests

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

func relay(t *testing.T, change func(awscdk.Stack, *infra.RelayProps)) (template, []infra.Problem) {
	t.Helper()
	return synth(t, func(s awscdk.Stack) {
		p := &infra.RelayProps{
			Function: infra.FunctionProps{Code: given(t)},
			Queues:   map[string]awssqs.IQueue{"orders": awssqs.NewQueue(s, jsii.String("Orders"), nil)},
		}
		if change != nil {
			change(s, p)
		}
		infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), p)
	})
}

func TestRelay(t *testing.T) {
	got, problems := relay(t, func(s awscdk.Stack, p *infra.RelayProps) {
		p.Topics = map[string]awssns.ITopic{"news": awssns.NewTopic(s, jsii.String("News"), nil)}
		p.Buses = map[string]awsevents.IEventBus{"bus": awsevents.NewEventBus(s, jsii.String("Bus"), nil)}
		p.Source = "com.example.payments"
	})
	require.Empty(t, problems)
	_, mapping := got.only(t, "AWS::Lambda::EventSourceMapping")
	require.Equal(t, []string{"Records.StreamArn"}, texts(mapping["EventSourceArn"]))
	require.Equal(t, []any{"ReportBatchItemFailures"}, mapping["FunctionResponseTypes"])
	require.Equal(t, true, mapping["BisectBatchOnFunctionError"])
	require.Equal(t, 10.0, mapping["MaximumRetryAttempts"])
	require.Equal(t, 100.0, mapping["BatchSize"])
	require.Equal(t, "TRIM_HORIZON", mapping["StartingPosition"])
	require.Equal(t, map[string]any{"Filters": []any{map[string]any{"Pattern": schema.OutboxFilter}}}, mapping["FilterCriteria"])
	require.Equal(t, []string{"RelayFailures.Arn"}, texts(mapping["DestinationConfig"].(map[string]any)["OnFailure"].(map[string]any)["Destination"]))

	p := got.named(t, "AWS::Lambda::Function", "RelayFunction")
	require.Equal(t, 60.0, p["Timeout"])
	environment := got.environment(t, "RelayFunction")
	require.Equal(t, []string{"Records"}, texts(environment[schema.EnvTable]))
	require.Equal(t, "com.example.payments", environment[schema.EnvOutboxSource])
	routes := strings.Join(texts(environment[schema.EnvOutboxRoutes]), "")
	require.Equal(t, `{"bus":"Bus.Arn","news":"News","orders":"Orders"}`, routes)

	_, rule := got.only(t, "AWS::Events::Rule")
	require.Equal(t, "rate(5 minutes)", rule["ScheduleExpression"])
	_, permission := got.only(t, "AWS::Lambda::Permission")
	require.Equal(t, "events.amazonaws.com", permission["Principal"])
	require.Equal(t, []string{"RelaySweep.Arn"}, texts(permission["SourceArn"]))

	stream := []string{"Records.StreamArn"}
	require.Equal(t, map[string][]string{
		"logs:CreateLogStream": {"RelayFunctionLogs.Arn"}, "logs:PutLogEvents": {"RelayFunctionLogs.Arn"},
		"sqs:SendMessage": {"Orders.Arn", "RelayFailures.Arn"}, "sns:Publish": {"News"}, "events:PutEvents": {"Bus.Arn"},
		"dynamodb:BatchGetItem": {"Records.Arn"}, "dynamodb:UpdateItem": {"Records.Arn"},
		"dynamodb:Query":          {"Records.Arn/index/open"},
		"dynamodb:DescribeStream": stream, "dynamodb:GetRecords": stream, "dynamodb:GetShardIterator": stream, "dynamodb:ListStreams": stream,
	}, got.allowed(t))
}

func TestRelaySettings(t *testing.T) {
	got, problems := relay(t, func(s awscdk.Stack, p *infra.RelayProps) {
		p.Function.Timeout, p.MaxTries = 2*time.Minute, 5
		p.EncryptionKey = awskms.NewKey(s, jsii.String("Key"), nil)
	})
	require.Empty(t, problems)
	require.Equal(t, "2m0s", got.environment(t, "RelayFunction")[schema.EnvOutboxGrace])
	require.Equal(t, "5", got.environment(t, "RelayFunction")[schema.EnvOutboxMaxTries])
	require.Equal(t, []string{"Key.Arn"}, texts(got.named(t, "AWS::SQS::Queue", "RelayFailures")["KmsMasterKeyId"]))
	require.Equal(t, []string{"Key.Arn"}, got.allowed(t)["kms:GenerateDataKey"])
}

func TestRelayChecks(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(awscdk.Stack, *infra.RelayProps)
		says   []string
	}{
		"no destination": {func(_ awscdk.Stack, p *infra.RelayProps) { p.Queues = nil }, []string{"no destination", "one queue, topic or bus"}},
		"a destination's URL": {func(_ awscdk.Stack, p *infra.RelayProps) {
			p.Queues = map[string]awssqs.IQueue{"https://queue": p.Queues["orders"]}
		}, []string{`"https://queue" is not a valid name`}},
		"a name twice": {func(s awscdk.Stack, p *infra.RelayProps) {
			p.Topics = map[string]awssns.ITopic{"orders": awssns.NewTopic(s, jsii.String("News"), nil)}
		}, []string{`"orders" is there twice`}},
		"no source": {func(s awscdk.Stack, p *infra.RelayProps) {
			p.Buses = map[string]awsevents.IEventBus{"bus": awsevents.NewEventBus(s, jsii.String("Bus"), nil)}
		}, []string{"Source is empty"}},
		"a long time-out": {func(_ awscdk.Stack, p *infra.RelayProps) { p.Function.Timeout = 3 * time.Minute }, []string{"Timeout is 3m0s", "at most 2m0s"}},
		"minus tries":     {func(_ awscdk.Stack, p *infra.RelayProps) { p.MaxTries = -1 }, []string{"MaxTries is -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := relay(t, tc.change)
			says(t, problems, true, tc.says...)
		})
	}
}
