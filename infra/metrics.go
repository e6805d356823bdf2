package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// metric is one of the library's metrics of a function: all operations of it together, since
// CloudWatch does not add up dimensions.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#Dimension
func metric(f awslambda.IFunction, name, stat string) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(schema.MetricNamespace), MetricName: &name, Statistic: &stat, Period: duration(period),
		DimensionsMap: &map[string]*string{schema.DimensionService: f.FunctionName()},
	})
}

// sums of the function's metrics.
func sums(f awslambda.IFunction, names ...string) []awscloudwatch.Metric {
	return metrics(f, "Sum", names...)
}

func metrics(f awslambda.IFunction, stat string, names ...string) []awscloudwatch.Metric {
	all := make([]awscloudwatch.Metric, len(names))
	for i, name := range names {
		all[i] = metric(f, name, stat)
	}
	return all
}

// engine watches the operations of a function.
func (m *Monitoring) engine(f awslambda.Function, p *MonitoringProps) {
	name := idOf(f)
	sum := func(of string) awscloudwatch.Metric { return metric(f, of, "Sum") }
	m.raise(name, "StoreUnavailable", sum(schema.MetricStoreUnavailable), float64(p.Unavailable), fmt.Sprintf(
		"%d calls in %v could not reach the table and were refused: nothing ran, and clients may come again", p.Unavailable, period))
	m.raise(name, "FailedOpen", sum(schema.MetricFailedOpen), 1,
		"handlers ran while the table could not be reached, and nothing of it is recorded: duplicates may have taken effect")
	m.raise(name, "OutcomeDropped", sum(schema.MetricOutcomeDropped), 1,
		"an outcome could not be recorded in time and was given up: the operation may have taken effect, and its record does not say so")
	m.unreadable(name, f)
	m.raise(name, "KeyReused", sum(schema.MetricKeyReused), float64(p.ReusedKeys), fmt.Sprintf(
		"%d calls in %v had a used key and another input: a client has a fault, or somebody tries keys", p.ReusedKeys, period))
	m.graph(name+": answers", sums(f, schema.MetricExecuted, schema.MetricReplayed, schema.MetricInFlight, schema.MetricAccepted,
		schema.MetricKeyReused, schema.MetricOutcomeUnknown)...)
	m.graph(name+": ends", sums(f, schema.MetricCompleted, schema.MetricFailed, schema.MetricReleased, schema.MetricParked, schema.MetricTookOver)...)
	m.graph(name+": troubles", sums(f, schema.MetricStoreUnavailable, schema.MetricFailedOpen, schema.MetricOutcomeQueued,
		schema.MetricOutcomeDropped, schema.MetricUnreadable, schema.MetricLeaseLost)...)
	m.graph(name+": times (p99)", metrics(f, "p99", schema.MetricClaimTime, schema.MetricHandlerTime, schema.MetricFinishTime)...)
	m.graph(name+": in shadow, not protected", sums(f, schema.MetricShadowExecuted, schema.MetricShadowDuplicate, schema.MetricShadowKeyReused)...)
	m.graph(name+": DynamoDB units, if it asks", sums(f, schema.MetricWriteUnits, schema.MetricReadUnits)...)
}

// failed watches what a queue no longer has.
func (m *Monitoring) failed(q *Queue, most int) {
	m.raise(idOf(q), "Failed", metric(q.consumer, schema.MetricFailed, "Sum"), float64(most), fmt.Sprintf(
		"%d operations of messages failed for good in %v: the messages are acknowledged, and only the records and OnFailed have them", most, period))
}

func (m *Monitoring) unreadable(name string, f awslambda.IFunction) {
	m.raise(name, "RecordUnreadable", metric(f, schema.MetricUnreadable, "Sum"), 1,
		"a record is damaged or of a newer version: its calls are refused, and nothing runs")
}

// questions watches what a sweep finds.
func (m *Monitoring) questions(s *Sweeper, age time.Duration) {
	name, f := idOf(s), s.Function
	oldest := metric(f, schema.MetricOldestOpen, "Maximum")
	m.raiseWaiting(name, "OldestOpen", oldest, age.Seconds(), fmt.Sprintf(
		"an operation has been an open question for %v: nobody knows whether it took effect, and its customer waits", age))
	m.raise(name, "GivenUp", metric(f, schema.MetricGivenUp, "Sum"), 1,
		"the sweep could not find out what became of an operation: a person must")
	m.raise(name, "Unclaimed", metric(f, schema.MetricUnclaimed, "Sum"), 1,
		"accepted work was ended because no worker came for it in time: it was not executed, and its client must ask for it again")
	m.unreadable(name, f)
	m.graph(name+": open questions", metric(f, schema.MetricOpen, "Maximum"))
	m.graph(name+": oldest open question (s)", oldest)
	m.graph(name+": sweeps", sums(f, schema.MetricSweepParked, schema.MetricProbed, schema.MetricResolved, schema.MetricGivenUp,
		schema.MetricAbandoned, schema.MetricUnclaimed, schema.MetricSweepFailed, schema.MetricSweepLeft)...)
}

// outbox watches what a relay sends.
func (m *Monitoring) outbox(r *Relay, age time.Duration) {
	name, f := idOf(r), r.Function
	if age <= r.sweep {
		warn(m, "outbox-age", "OutboxAge of %v is not above the time between two sweeps of %s, %v: each message that the stream has missed "+
			"once alarms; set it above that", age, name, r.sweep)
	}
	oldest := metric(f, schema.MetricOutboxOldest, "Maximum")
	m.raiseWaiting(name, "OutboxOld", oldest, age.Seconds(), fmt.Sprintf(
		"a message has been waiting in the outbox for %v: its destination is down or refuses it, or the relay has no route to it", age))
	m.raise(name, "OutboxDead", metric(f, schema.MetricOutboxDead, "Sum"), 1,
		"messages of the outbox became dead letters: their records say that it took effect, and their receivers do not know")
	m.raise(name, "OutboxUnreadable", metric(f, schema.MetricOutboxUnreadable, "Sum"), 1,
		"messages of the outbox are damaged or of a newer version: they are not sent")
	m.graph(name+": outbox", sums(f, schema.MetricOutboxRelayed, schema.MetricOutboxFailed, schema.MetricOutboxDeferred,
		schema.MetricOutboxDead, schema.MetricOutboxUnreadable, schema.MetricOutboxLeft)...)
	m.graph(name+": oldest message (s)", oldest)
}
