package infra

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// alarm is a kind of alarm, which has a section of the runbook. It is raised when the metric reaches
// the threshold within a period, or within several if its reading says so, or is below it.
type alarm struct {
	kind, metric string
	of           reading
	threshold    float64
	text         string // what has happened; a %v is the threshold
}

// reading is how an alarm reads its metric.
type reading struct {
	stat string
	unit time.Duration // of the metric if it is a time
	// missing data ends an alarm, unless this says otherwise.
	missing awscloudwatch.TreatMissingData
	// reached is in how many of the last periods the threshold must be reached. Zero means in the
	// last one.
	reached, periods float64
	period           time.Duration // zero means that of the monitoring
	below            bool          // the threshold is reached by what is less
	least            int           // values of the metric in a period; those of a period with fewer count as 0
}

var (
	count = reading{stat: sum}
	depth = reading{stat: maximum}
	age   = reading{stat: maximum, unit: time.Second}
	lag   = reading{stat: maximum, unit: time.Millisecond}
	// repeated is for what happens to a healthy service at times, but not in each period.
	repeated = reading{stat: sum, reached: 2, periods: 3}
	// share is a percentage of at least so many calls: most of a few may be one client's.
	share = reading{stat: average, reached: 2, periods: 3, least: 100}
	// waiting is the age of what a sweep finds. Each sweep that could look writes a number, also 0.
	// Without data no sweep could look, and the alarm keeps its state.
	waiting = reading{stat: maximum, unit: time.Second, missing: awscloudwatch.TreatMissingData_IGNORE}
	// silent is for that number: no sweep has written it. CloudWatch looks back for some periods more than two
	// before it takes one for missing, so that this is said after 10 to 30 minutes.
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
	silent = reading{stat: samples, missing: awscloudwatch.TreatMissingData_BREACHING, below: true, reached: 2, periods: 2}
	// left is for what should be looked at once it is there, and was not. AWS allows a week.
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
	left = reading{stat: maximum, period: time.Hour, reached: 6 * 24, periods: 7 * 24}
)

// graph is one of the dashboard.
type graph struct {
	title, stat string
	metrics     []string
}

// watched is what is to see of one source of metrics.
type watched struct {
	alarms []alarm
	graphs []graph
}

const (
	sum     = "Sum"
	average = "Average"
	maximum = "Maximum"
	samples = "SampleCount"
	p99     = "p99"

	visible, oldest = "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"
)

// watchedAPI and watchedREST are for the two kinds of APIs, whose metrics have other names.
var watchedAPI, watchedREST = answers("5xx"), answers("5XXError")

func answers(faults string) watched {
	return watched{[]alarm{
		// A handler's own faults, and single 503s, which the library answers while the store is slow,
		// are no reason to wake an operator.
		{"5xx", faults, count, 10,
			"%v requests in 5 minutes were answered with 5xx: look at the function's log, and at the table if problems say " +
				"idempotency_store_unavailable"},
	}, []graph{
		{"5xx", sum, []string{faults}},
		{"latency (p99)", p99, []string{"Latency"}},
	}}
}

// watchedInvocations is for a function whose invocations may take all of their time.
var watchedInvocations = watched{[]alarm{
	{"Errors", "Errors", count, 1, "invocations fail"},
	{"Throttles", "Throttles", count, 1,
		"invocations are throttled: raise the account's or the function's concurrency, or lower the sources'"},
}, []graph{
	{"errors, throttles", sum, []string{"Errors", "Throttles"}},
	{"longest invocation", maximum, []string{"Duration"}},
}}

// nearTimeout is the share of the time-out from which a duration raises the alarm: at
// the time-out an operation that is not repeatable becomes unknown.
const nearTimeout = 0.8

func watchedDuration(timeout time.Duration) watched {
	near := nearTimeout * float64(timeout/time.Millisecond)
	return watched{alarms: []alarm{
		{"Duration", "Duration", lag, near,
			"an invocation took 80% of the time-out: beyond it operations that are not repeatable become unknown"},
	}}
}

// watchedEngine is what a function writes about its operations.
var watchedEngine = watched{[]alarm{
	// Single calls find the store slow at times, and their clients come again.
	{"StoreUnavailable", schema.MetricStoreUnavailable, count, 10,
		"%v calls in 5 minutes could not reach the table and were refused: nothing ran, and clients may come again"},
	{"FailedOpen", schema.MetricFailedOpen, count, 1,
		"handlers ran while the table could not be reached, and nothing of it is recorded: " +
			"duplicates may have taken effect"},
	{"OutcomeDropped", schema.MetricOutcomeDropped, count, 1,
		"an outcome could not be recorded in time: the operation may have taken effect, and its record does not say so"},
	recordUnreadable,
	// A client with a fault reuses one key again and again; a caller that tries keys of others reuses many.
	{"KeyReused", schema.MetricKeyReused, count, 20,
		"%v calls in 5 minutes had a used key and another input: a client has a fault, or a caller tries keys of others"},
	duplicates,
}, []graph{
	{"answers", sum, []string{schema.MetricExecuted, schema.MetricReplayed, schema.MetricInFlight,
		schema.MetricAccepted, schema.MetricKeyReused, schema.MetricOutcomeUnknown}},
	{"duplicates (%)", average, []string{schema.MetricDuplicate}},
	{"attempts: begun, ended", sum, []string{schema.MetricClaimed, schema.MetricTookOver, schema.MetricCompleted,
		schema.MetricFailed, schema.MetricReleased, schema.MetricParked}},
	{"troubles", sum, []string{schema.MetricStoreUnavailable, schema.MetricFailedOpen, schema.MetricOutcomeQueued,
		schema.MetricOutcomeDropped, schema.MetricUnreadable, schema.MetricLeaseLost, schema.MetricWithdrawn}},
	{"times (p99)", p99, []string{schema.MetricClaimTime, schema.MetricHandlerTime, schema.MetricFinishTime}},
	{"in shadow, not protected", sum, []string{schema.MetricShadowExecuted, schema.MetricShadowDuplicate,
		schema.MetricShadowKeyReused, schema.MetricShadowRefused}},
	{"DynamoDB units, if it asks", sum, []string{schema.MetricWriteUnits, schema.MetricReadUnits}},
}}

// duplicates counts what a store answers with a record, and nothing that a limit or the store refuses. In
// atomic mode too, where a replay is a read and no failed condition.
var duplicates = alarm{"Duplicates", schema.MetricDuplicate, share, 50,
	"of at least 100 calls in 5 minutes %v % had a key that was in use, and again in the next 5: a client repeats " +
		"requests without end"}

var recordUnreadable = alarm{"RecordUnreadable", schema.MetricUnreadable, count, 1,
	"a record is damaged or of a newer version: its calls are refused, and nothing runs"}

var watchedQueue = watched{[]alarm{
	{queueAge, oldest, age, 15 * 60,
		"a message has been waiting for %v: the consumer is down, throttled, or too slow"},
}, []graph{
	{"age, depth", maximum, []string{oldest, visible}},
}}

// watchedConsumer is what a queue's consumer writes. A message whose operation has failed
// permanently is deleted from its queue.
var watchedConsumer = watched{alarms: []alarm{
	{"Failed", schema.MetricFailed, count, 1,
		"%v operations of messages failed permanently in 5 minutes: the messages are acknowledged, and only the " +
			"records and OnFailed have them"},
}}

const (
	unhandled    = "messages could not be handled: see why, resolve their records, and redrive them"
	oldUnhandled = "in six days the queue was hardly ever empty: what has been there for so long is deleted within " +
		"eight, dead letters within four; redrive or save it"
)

var (
	watchedDeadLetters = emptyQueue("DeadLetters", unhandled, oldUnhandled)
	watchedFailures    = emptyQueue("Failures",
		"a function has failed repeatedly on an event, or the relay on a part of the stream: see why. A relay's sweep "+
			"sends those messages, so that its entry can be deleted; another function must be invoked again",
		"in six days the failure queue was hardly ever empty: what has been there for so long is deleted within eight")
	watchedEscalations = emptyQueue("Escalations",
		"the sweep has escalated questions: find out what became of them, and resolve their records",
		"in six days the escalation queue was hardly ever empty: what has been there for so long is deleted within "+
			"eight, and its record stays open: resolve it, and delete the message")
)

// emptyQueue is for a queue that should be empty. any describes a message, old what happens to it.
//
// The age of the oldest message is no help: SQS leaves out a message that was received three times, and counts
// that of a dead letter from its move, though a standard queue deletes it by the time at which it was sent.
//   - https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
//   - https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
func emptyQueue(what, any, old string) watched {
	return watched{[]alarm{
		{what + "Depth", visible, depth, 1, any},
		{what + "Old", visible, left, 1, old},
	}, []graph{
		{what + ", depth and age", maximum, []string{visible, oldest}},
	}}
}

// watchedDestination is for a function with a failure queue.
// https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
var watchedDestination = watched{alarms: []alarm{
	{"Undelivered", "DestinationDeliveryFailures", count, 1,
		"Lambda could not write to the failure queue, and what the function could not handle is not kept: look at the " +
			"function's permission to send there, and at the queue's key"},
}}

var watchedStream = watched{[]alarm{
	{"IteratorAge", "IteratorAge", lag, 5 * 60_000, "the relay is %v behind the table's stream"},
}, []graph{
	{"behind the stream", maximum, []string{"IteratorAge"}},
}}

// watchedOutbox is what a relay writes about what it sends.
var watchedOutbox = watched{[]alarm{
	{outboxOld, schema.MetricOutboxOldest, waiting, 15 * 60,
		"a message has been waiting in the outbox for %v: its destination is down or refuses it, or the relay has " +
			"no route to it"},
	{"Stopped", schema.MetricOutboxOldest, silent, 1,
		"no sweep of the relay could look for about half an hour: messages that the stream has missed, or that " +
			"could not be sent at once, wait; look at the relay's log and its rule"},
	{"OutboxMissed", schema.MetricOutboxMissed, repeated, 1,
		"sweeps send messages that the table's stream should have sent within seconds: its mapping is disabled or " +
			"fails, or a destination was down and its messages are sent now"},
	{"OutboxDead", schema.MetricOutboxDead, count, 1,
		"messages of the outbox became dead letters: their records say that it took effect, and their receivers do " +
			"not know"},
	{"OutboxUnreadable", schema.MetricOutboxUnreadable, count, 1,
		"messages of the outbox are damaged or of a newer version: they are not sent"},
}, []graph{
	{"outbox", sum, []string{schema.MetricOutboxRelayed, schema.MetricOutboxFailed, schema.MetricOutboxDeferred,
		schema.MetricOutboxDead, schema.MetricOutboxUnreadable, schema.MetricOutboxLeft, schema.MetricOutboxMissed}},
	{"oldest message (s)", maximum, []string{schema.MetricOutboxOldest}},
}}

// watchedQuestions is what a sweeper writes about what it finds.
var watchedQuestions = watched{[]alarm{
	{"OldestOpen", schema.MetricOldestOpen, waiting, 15 * 60,
		"an operation has been an open question for %v: whether it took effect is unknown, and its customer waits"},
	{"Stopped", schema.MetricOldestOpen, silent, 1,
		"no sweep could count the open questions for about half an hour: operations whose process died stay in " +
			"progress, and open questions are not asked; look at the sweeper's log and its rule"},
	{"Escalated", schema.MetricEscalated, count, 1,
		"the sweep could not find out whether an operation took effect: an operator must"},
	{"NotStarted", schema.MetricNotStarted, count, 1,
		"accepted work expired before a worker started it: it was not executed, and its client must ask again"},
	recordUnreadable,
}, []graph{
	{"open questions", maximum, []string{schema.MetricOpen}},
	{"oldest open question (s)", maximum, []string{schema.MetricOldestOpen}},
	{"sweeps", sum, []string{schema.MetricSweepParked, schema.MetricProbed, schema.MetricResolved, schema.MetricEscalated,
		schema.MetricAbandoned, schema.MetricNotStarted, schema.MetricSweepFailed, schema.MetricSweepLeft,
		schema.MetricExpired}},
}}

const throttledReads, throttledWrites = "ReadThrottleEvents", "WriteThrottleEvents"

var watchedTable = watched{[]alarm{
	{"ReadThrottles", throttledReads, count, 1,
		"reads of records are throttled: calls fail closed; raise MaxReadUnits"},
	{"WriteThrottles", throttledWrites, count, 1,
		"writes of records are throttled: calls fail closed; raise MaxWriteUnits, and look for one key that " +
			"all callers use"},
	// Single ones are duplicates that arrive while their first call commits. They try again.
	{"TransactionConflicts", "TransactionConflict", repeated, 100,
		"%v writes in 5 minutes met a transaction on the same item, and again 5 minutes later: many calls write one key " +
			"at once, and those whose time is up are refused"},
}, []graph{
	{"throttles", sum, []string{throttledReads, throttledWrites}},
	{"conflicts", sum, []string{"TransactionConflict"}},
	{"deleted by TTL", sum, []string{"TimeToLiveDeletedItemCount"}},
}}

var watchedIndex = watched{[]alarm{
	{"ReadThrottles", throttledReads, count, 1,
		"reads of the index are throttled: open questions and waiting messages are found late; raise MaxReadUnits"},
	{"WriteThrottles", throttledWrites, count, 1,
		"writes of the index are throttled, and those of records with them: calls fail closed, and outcomes may " +
			"be lost; raise MaxWriteUnits, or watch fewer operations if a shard takes no more"},
}, []graph{
	{"throttles", sum, []string{throttledReads, throttledWrites}},
}}

// source has the metrics of something that is watched.
type source func(metric, stat string, period time.Duration) awscloudwatch.Metric

// ofAWS are the metrics that AWS writes about a construct.
func ofAWS(c interface {
	Metric(name *string, props *awscloudwatch.MetricOptions) awscloudwatch.Metric
}) source {
	return func(metric, stat string, period time.Duration) awscloudwatch.Metric {
		return c.Metric(&metric, statistic(stat, period))
	}
}

// ofLibrary are the library's metrics of a function: all operations of it together, since
// CloudWatch does not add up dimensions.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html#Dimension
func ofLibrary(f awslambda.IFunction) source {
	return custom(schema.MetricNamespace, map[string]*string{schema.DimensionService: f.FunctionName()})
}

// ofOperation are the library's metrics of one operation of a function.
func ofOperation(f awslambda.IFunction, operation string) source {
	return custom(schema.MetricNamespace,
		map[string]*string{schema.DimensionService: f.FunctionName(), schema.DimensionOperation: &operation})
}

// ofIndex are the metrics of the table's index. DynamoDB counts an index's throttles under the index
// alone: TableName without GlobalSecondaryIndexName has those of the table.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
func ofIndex(t *Table) source {
	return custom("AWS/DynamoDB", map[string]*string{
		"TableName": t.TableName(), "GlobalSecondaryIndexName": jsii.String(schema.OpenIndex),
	})
}

func custom(namespace string, dimensions map[string]*string) source {
	return func(metric, stat string, period time.Duration) awscloudwatch.Metric {
		return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
			Namespace: &namespace, MetricName: &metric, DimensionsMap: &dimensions,
			Statistic: &stat, Period: duration(period),
		})
	}
}

func statistic(s string, period time.Duration) *awscloudwatch.MetricOptions {
	return &awscloudwatch.MetricOptions{Statistic: &s, Period: duration(period)}
}
