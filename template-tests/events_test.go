package templatetests

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

func TestEvents(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) {
		require.NotNil(t, worker(t, s, 0).OnEvents(&infra.EventsProps{Repeat: infra.NotRepeatable}))
	})
	require.Empty(t, problems)
	resource, p := got.only(t, "AWS::Lambda::EventInvokeConfig")
	require.Equal(t, 21600.0, p["MaximumEventAgeInSeconds"])
	require.Equal(t, 2.0, p["MaximumRetryAttempts"])
	require.Equal(t, []string{"WorkerFailures.Arn"}, texts(p["DestinationConfig"].(map[string]any)["OnFailure"].(map[string]any)["Destination"]))
	require.NotEmpty(t, resource["DependsOn"], "Lambda refuses a destination that the role may not send to")
	require.Equal(t, []string{"WorkerFailures.Arn"}, got.allowed(t)["sqs:SendMessage"])
	require.Equal(t, 14.0*86400, got.named(t, "AWS::SQS::Queue", "WorkerFailures")["MessageRetentionPeriod"])
}

func TestEventsWithAFailureQueueOfYourOwn(t *testing.T) {
	got, problems := synth(t, func(s awscdk.Stack) {
		own := awssqs.NewQueue(s, jsii.String("Own"), nil)
		require.Equal(t, own, worker(t, s, 0).OnEvents(&infra.EventsProps{Repeat: infra.NotRepeatable, Failures: own}))
	})
	require.Empty(t, problems)
	_, p := got.only(t, "AWS::Lambda::EventInvokeConfig")
	require.Equal(t, []string{"Own.Arn"}, texts(at(p, "DestinationConfig", "OnFailure", "Destination")))
}

// Without a retention of its own an operation's is long enough for each source, and the
// function is told for how long its source delivers.
func TestEventsOfEachSource(t *testing.T) {
	for source, hours := range map[infra.EventSource]int{
		"": 6, infra.DirectInvoke: 6, infra.FromS3: 6, infra.FromScheduler: 30, infra.FromEventBridge: 30, infra.FromSNS: 23*24 + 6,
	} {
		t.Run(string(source), func(t *testing.T) {
			got, problems := synth(t, func(s awscdk.Stack) {
				worker(t, s, 0).OnEvents(&infra.EventsProps{Repeat: infra.NotRepeatable, Source: source})
			})
			require.Empty(t, problems)
			require.Equal(t, strconv.Itoa(hours*3600), got.environment(t, "Worker")[schema.EnvEventRedelivery])
		})
	}
}

func TestEventsChecks(t *testing.T) {
	const isError, isWarning = true, false
	for name, tc := range map[string]struct {
		props infra.EventsProps
		error bool
		says  []string
	}{
		"no declaration": {infra.EventsProps{}, isError, []string{`Repeat is ""`, "infra.NotRepeatable"}},
		"retention below Lambda's": {infra.EventsProps{Repeat: infra.NotRepeatable, Retention: 6 * time.Hour}, isError,
			[]string{"Retention of 6h0m0s", "6h0m0s (Lambda's time", "above 6h0m0s"}},
		"retention below EventBridge's": {infra.EventsProps{Repeat: infra.NotRepeatable, Source: infra.FromEventBridge, Retention: 30 * time.Hour}, isError,
			[]string{"Retention of 30h0m0s", "30h0m0s", "EventBridge's time"}},
		"repeatable and late": {infra.EventsProps{Repeat: infra.Repeatable, Source: infra.FromEventBridge, Retention: time.Hour}, isWarning, []string{"30h0m0s", "idem:retention"}},
		"retention below SNS's": {infra.EventsProps{Repeat: infra.NotRepeatable, Source: infra.FromSNS, Retention: 23 * 24 * time.Hour}, isError,
			[]string{"558h0m0s", "SNS's time"}},
		"retention below the Scheduler's": {infra.EventsProps{Repeat: infra.NotRepeatable, Source: infra.FromScheduler, Retention: 24 * time.Hour}, isError,
			[]string{"30h0m0s", "EventBridge Scheduler's time"}},
		"a source that is none": {infra.EventsProps{Repeat: infra.Repeatable, Source: "kafka"}, isError, []string{`Source is "kafka"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := synth(t, func(s awscdk.Stack) { worker(t, s, 0).OnEvents(&tc.props) })
			says(t, problems, tc.error, tc.says...)
		})
	}
}

// What the checks know of the library is what it does.
func TestDefaultsAreTheLibrarys(t *testing.T) {
	require.Equal(t, idemlambda.AsyncRetention, infra.DefaultAsyncRetention)
	require.Equal(t, idemlambda.EventBridgeRetention, infra.DefaultEventBridgeRetention)
	require.Equal(t, idemlambda.SNSRetention, infra.DefaultSNSRetention)
	require.Equal(t, idemlambda.S3Retention, infra.DefaultS3Retention)
	require.Equal(t, idemlambda.SQSRetention, infra.DefaultQueueRetention)
	require.Equal(t, outbox.DefaultGrace, infra.DefaultGrace)
	require.Equal(t, 2*time.Second, idem.DefaultMargin, "the checks of visibility count with it")
}
