package templatetests

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// The function learns for how long its source delivers, and an operation without a retention of its
// own is kept for longer.
func TestEventsOfEachSource(t *testing.T) {
	for source, want := range map[infra.EventSource]struct {
		hours     int
		retention time.Duration
	}{
		"":                    {6, idemlambda.AsyncRetention},
		infra.DirectInvoke:    {6, idemlambda.AsyncRetention},
		infra.FromS3:          {6, idemlambda.S3Retention},
		infra.FromScheduler:   {30, idemlambda.AsyncRetention},
		infra.FromEventBridge: {30, idemlambda.EventBridgeRetention},
		infra.FromSNS:         {23*24 + 6, idemlambda.SNSRetention},
	} {
		t.Run(string(source), func(t *testing.T) {
			got, problems := synth(t, func(s awscdk.Stack) { worker(t, s, 0).OnEvents(&infra.EventsProps{Source: source}) })
			require.Empty(t, problems)
			require.Equal(t, strconv.Itoa(want.hours*3600),
				got.property("AWS::Lambda::Function", "Worker", "Environment", "Variables", schema.EnvEventRedelivery))
			require.Greater(t, want.retention, time.Duration(want.hours)*time.Hour)
		})
	}
}

// A failure queue is watched, and what Lambda cannot write to it.
func TestEventsThatFailAreWatched(t *testing.T) {
	got, _ := synth(t, func(s awscdk.Stack) {
		with, without := worker(t, s, 0), infra.NewFunction(s, "Other", &infra.FunctionProps{Code: given(t)})
		with.OnEvents(nil)
		infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{Functions: []awslambda.Function{with, without}})
	})
	require.Equal(t, []string{"MonitoringOtherDuration", "MonitoringOtherErrors", "MonitoringOtherThrottles",
		"MonitoringWorkerDuration", "MonitoringWorkerErrors", "MonitoringWorkerFailuresDepth", "MonitoringWorkerFailuresOld",
		"MonitoringWorkerThrottles", "MonitoringWorkerUndelivered"}, namesOf(got, "AWS::CloudWatch::Alarm"))
}

func TestEventsOfNoSource(t *testing.T) {
	_, problems := synth(t, func(s awscdk.Stack) { worker(t, s, 0).OnEvents(&infra.EventsProps{Source: "kafka"}) })
	says(t, problems, true, `Source is "kafka"`)
}

// What the checks know of the library is what it does.
func TestDefaultsAreTheLibrarys(t *testing.T) {
	require.Greater(t, idemlambda.SQSRetention, infra.DefaultMessageRetention+14*24*time.Hour,
		"a queue's time and its dead-letter queue's")
	require.Equal(t, outbox.DefaultGrace, infra.RelayGrace)
	require.Equal(t, 2*time.Second, idem.DefaultMargin, "the checks of visibility count with it")
}
