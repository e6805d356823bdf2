package templatetests

import (
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

func sweeper(t *testing.T, change func(awscdk.Stack, *infra.SweeperProps)) (template, []infra.Problem) {
	t.Helper()
	return synth(t, func(s awscdk.Stack) {
		p := &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}}
		if change != nil {
			change(s, p)
		}
		infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), p)
	})
}

func TestSweeper(t *testing.T) {
	got, problems := sweeper(t, nil)
	require.Empty(t, problems)
	_, rule := got.only(t, "AWS::Events::Rule")
	require.Equal(t, "rate(1 minute)", rule["ScheduleExpression"])
	require.Equal(t, []string{"SweeperFunction.Arn"}, texts(at(rule, "Targets", 0, "Arn")))
	_, permission := got.only(t, "AWS::Lambda::Permission")
	require.Equal(t, "events.amazonaws.com", permission["Principal"])
	require.Equal(t, []string{"SweeperSchedule.Arn"}, texts(permission["SourceArn"]))
	_, invoke := got.only(t, "AWS::Lambda::EventInvokeConfig")
	require.Equal(t, 0.0, invoke["MaximumRetryAttempts"], "the next sweep is the retry")
	require.Equal(t, 60.0, invoke["MaximumEventAgeInSeconds"])

	p := got.named(t, "AWS::Lambda::Function", "SweeperFunction")
	require.Equal(t, 50.0, p["Timeout"])
	require.NotContains(t, p, "ReservedConcurrentExecutions", "two sweeps at once do no harm")
	environment := got.environment(t, "SweeperFunction")
	require.Equal(t, []string{"Records"}, texts(environment[schema.EnvTable]))
	require.Equal(t, []string{"SweeperEscalations"}, texts(environment[schema.EnvSweepEscalations]))
	_, queue := got.only(t, "AWS::SQS::Queue")
	require.Equal(t, 14.0*86400, queue["MessageRetentionPeriod"])

	require.Equal(t, map[string][]string{
		"logs:CreateLogStream": {"SweeperFunctionLogs.Arn"}, "logs:PutLogEvents": {"SweeperFunctionLogs.Arn"},
		"sqs:SendMessage":       {"SweeperEscalations.Arn"},
		"dynamodb:BatchGetItem": {"Records.Arn"}, "dynamodb:GetItem": {"Records.Arn"},
		"dynamodb:PutItem": {"Records.Arn"}, "dynamodb:UpdateItem": {"Records.Arn"},
		"dynamodb:Query": {"Records.Arn/index/open"},
	}, got.allowed(t))
}

func TestSweeperWithAQueueOfYours(t *testing.T) {
	got, problems := sweeper(t, func(s awscdk.Stack, p *infra.SweeperProps) {
		p.EscalationQueue = awssqs.NewQueue(s, jsii.String("Support"), &awssqs.QueueProps{EncryptionMasterKey: awskms.NewKey(s, jsii.String("Key"), nil)})
	})
	require.Empty(t, problems)
	got.only(t, "AWS::SQS::Queue")
	require.Equal(t, []string{"Support"}, texts(got.environment(t, "SweeperFunction")[schema.EnvSweepEscalations]))
	require.Equal(t, []string{"Support.Arn"}, got.allowed(t)["sqs:SendMessage"])
	require.Equal(t, []string{"Key.Arn"}, got.allowed(t)["kms:GenerateDataKey"])
}

func TestSweeperWithAKeyOfYours(t *testing.T) {
	got, problems := sweeper(t, func(s awscdk.Stack, p *infra.SweeperProps) {
		p.EncryptionKey = awskms.NewKey(s, jsii.String("Key"), nil)
	})
	require.Empty(t, problems)
	require.Equal(t, []string{"Key.Arn"}, texts(got.named(t, "AWS::SQS::Queue", "SweeperEscalations")["KmsMasterKeyId"]))
	require.Equal(t, []string{"Key.Arn"}, got.allowed(t)["kms:GenerateDataKey"])

	_, problems = sweeper(t, func(s awscdk.Stack, p *infra.SweeperProps) {
		p.EncryptionKey = awskms.NewKey(s, jsii.String("Key"), nil)
		p.EscalationQueue = awssqs.NewQueue(s, jsii.String("Support"), nil)
	})
	says(t, problems, true, "EncryptionKey", "leave it out where there is")
}

// What has expired stays in a table without TTL until the sweep removes it. Without
// transactions each change is followed by its audit entry.
func TestSweeperOfAStronglyConsistentGlobalTable(t *testing.T) {
	got, _ := synthIn(t, ireland, func(s awscdk.Stack) {
		table := infra.NewTable(s, "Records", &infra.TableProps{
			ReplicaRegions: []string{"eu-central-1", "eu-west-2"}, Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
		})
		infra.NewSweeper(s, "Sweeper", table, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
	})
	require.Equal(t, "true", got.environment(t, "SweeperFunction")[schema.EnvWithoutTransactions])
	require.Equal(t, []string{"Records.Arn"}, got.allowed(t)["dynamodb:Scan"])
	require.Equal(t, []string{"Records.Arn"}, got.allowed(t)["dynamodb:DeleteItem"])
}
