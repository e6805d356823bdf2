package infra

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// Defaults of alarms.
const (
	// DefaultQueueAge is how long a message may wait.
	DefaultQueueAge = 15 * time.Minute
	// DefaultIteratorAge is how far a relay may be behind its stream.
	DefaultIteratorAge = 5 * time.Minute
	// DefaultFailedConditions is the number in 5 minutes. A replay is one failed condition,
	// so the alarm is about retries without end and not about single ones.
	DefaultFailedConditions = 10_000
	// DefaultOpenAge is how long an operation may be an open question.
	DefaultOpenAge = 15 * time.Minute
	// DefaultOutboxAge is how long a message may wait in the outbox.
	DefaultOutboxAge = 15 * time.Minute
	// DefaultReusedKeys is the number in 5 minutes. A client with a fault reuses one key again
	// and again; somebody who tries keys of others reuses many.
	DefaultReusedKeys = 20
	// DefaultUnavailable is the number in 5 minutes. Single calls find the store slow at times,
	// and their clients come again.
	DefaultUnavailable = 10
	// DefaultFailedMessages is the number in 5 minutes. A message whose operation has failed for
	// good is gone from its queue.
	DefaultFailedMessages = 1

	// DefaultRunbook is the runbook of this module.
	DefaultRunbook = "https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md"

	// nearTimeout is the share of the time-out from which a duration raises the alarm: at
	// the time-out an operation that is not repeatable becomes unknown.
	nearTimeout = 0.8
	period      = 5 * time.Minute
)

// MonitoringProps say what is watched. All fields are optional.
type MonitoringProps struct {
	// Name of the dashboard. Empty lets CloudFormation choose one.
	Name string
	// Topic gets the alarms. If it has a policy of its own, the policy must let
	// cloudwatch.amazonaws.com publish. Nil means that nobody gets them, and a warning.
	Topic awssns.ITopic

	Table     *Table
	Functions []awslambda.Function
	Queues    []*Queue
	APIs      []*API
	Relays    []*Relay
	Sweepers  []*Sweeper

	// QueueAge is how old a queue's oldest message may get. Zero means
	// [DefaultQueueAge]. It should be longer than the queues' visibility time-outs.
	QueueAge time.Duration
	// IteratorAge is how far a relay may be behind. Zero means [DefaultIteratorAge].
	IteratorAge time.Duration
	// FailedConditions is how many conditions of the table may fail in 5 minutes. Zero
	// means [DefaultFailedConditions].
	FailedConditions int

	// OpenAge is how old an open question may get. Zero means [DefaultOpenAge].
	OpenAge time.Duration
	// OutboxAge is how old a waiting message of the outbox may get: longer than the relays'
	// Sweep. Zero means [DefaultOutboxAge].
	OutboxAge time.Duration
	// ReusedKeys is how many calls of a function may come with a used key and another input in
	// 5 minutes. Zero means [DefaultReusedKeys].
	ReusedKeys int
	// Unavailable is how many calls of a function may find the store unavailable in 5 minutes.
	// Zero means [DefaultUnavailable].
	Unavailable int
	// FailedMessages is how many operations of a queue's consumer may fail for good in 5
	// minutes. Zero means [DefaultFailedMessages].
	FailedMessages int

	// Runbook is the URL of a page with a section for each kind of alarm, such as your copy of
	// RUNBOOK.md. The description of an alarm ends with it and the section's anchor. Empty
	// means [DefaultRunbook].
	Runbook string

	// Metrics are more metrics for the dashboard, such as your functions' own. Each has a
	// graph with its label or name.
	Metrics []awscloudwatch.Metric
}

// Monitoring is a dashboard, and alarms on AWS's own metrics and on those of package schema,
// which functions write with package emf under their names; a function that does not write
// them raises only AWS's. Missing data raises one alarm, that of a sweeper that does not run. It
// ends the others, except those on what a sweeper or a relay finds waiting: they stay as they are
// until it is looked at again. The name of an alarm is a construct's id and a kind, such as SweeperStopped:
// the kind is the heading of its section of the runbook.
type Monitoring struct {
	constructs.Construct
	Dashboard awscloudwatch.Dashboard
	// Alarms by name; add more with AddAlarm.
	Alarms map[string]awscloudwatch.Alarm

	topic   awssns.ITopic
	runbook string
	graphs  []awscloudwatch.IWidget
}

// NewMonitoring returns the monitoring of these constructs.
func NewMonitoring(scope constructs.Construct, id string, props *MonitoringProps) *Monitoring {
	p := MonitoringProps{}
	if props != nil {
		p = *props
	}
	m := &Monitoring{Alarms: map[string]awscloudwatch.Alarm{}, topic: p.Topic}
	constructs.NewConstruct_Override(m, scope, &id)
	for _, problem := range p.setDefaults() {
		refuse(m, "%s", problem)
	}
	m.runbook = p.Runbook
	if m.topic == nil {
		warn(m, "nobody-alarmed", "the alarms tell nobody: set Topic")
	}
	for _, a := range p.APIs {
		m.api(a)
	}
	for _, f := range p.Functions {
		m.function(f)
		m.engine(f, &p)
	}
	for _, q := range p.Queues {
		m.queue(q, p.QueueAge)
		m.failed(q, p.FailedMessages)
	}
	for _, r := range p.Relays {
		m.relay(r, p.IteratorAge)
		m.outbox(r, p.OutboxAge)
	}
	for _, s := range p.Sweepers {
		m.sweeper(s)
		m.questions(s, p.OpenAge)
	}
	if p.Table != nil {
		m.table(p.Table, p.FailedConditions)
	}
	for _, metric := range p.Metrics {
		title := metric.Label()
		if title == nil || *title == "" {
			title = metric.MetricName()
		}
		m.graph(*title, metric)
	}
	m.Dashboard = awscloudwatch.NewDashboard(m, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{DashboardName: optional(p.Name)})
	for len(m.graphs) > 0 {
		n := min(3, len(m.graphs))
		m.Dashboard.AddWidgets(m.graphs[:n]...)
		m.graphs = m.graphs[n:]
	}
	return m
}

func (p *MonitoringProps) setDefaults() (problems []string) {
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, d := range []struct {
		name string
		v    *time.Duration
		zero time.Duration
	}{{"QueueAge", &p.QueueAge, DefaultQueueAge}, {"IteratorAge", &p.IteratorAge, DefaultIteratorAge},
		{"OpenAge", &p.OpenAge, DefaultOpenAge}, {"OutboxAge", &p.OutboxAge, DefaultOutboxAge}} {
		if *d.v == 0 {
			*d.v = d.zero
		}
		if *d.v < time.Second {
			invalid("%s is %v: use a second or more, or zero for %v", d.name, *d.v, d.zero)
			*d.v = d.zero
		}
	}
	for _, n := range []struct {
		name string
		v    *int
		zero int
	}{{"FailedConditions", &p.FailedConditions, DefaultFailedConditions}, {"ReusedKeys", &p.ReusedKeys, DefaultReusedKeys},
		{"Unavailable", &p.Unavailable, DefaultUnavailable}, {"FailedMessages", &p.FailedMessages, DefaultFailedMessages}} {
		if *n.v == 0 {
			*n.v = n.zero
		}
		if *n.v < 0 {
			invalid("%s is %d: use a positive number, or zero for %d", n.name, *n.v, n.zero)
			*n.v = n.zero
		}
	}
	if p.Runbook == "" {
		p.Runbook = DefaultRunbook
	}
	if u, err := url.Parse(p.Runbook); err != nil || u.Scheme != "https" || u.Host == "" || strings.Contains(p.Runbook, "#") {
		invalid("Runbook is %q: use an https URL without a fragment, or nothing for %s", p.Runbook, DefaultRunbook)
		p.Runbook = DefaultRunbook
	}
	return problems
}

func (m *Monitoring) api(a *API) {
	name := idOf(a)
	errors, latency := a.HTTP.MetricServerError(statistic("Sum")), a.HTTP.MetricLatency(statistic("p99"))
	m.raise(name, "5xx", errors, 1, "the API answers with 5xx: look at the function's log, and at the table if problems say idempotency_store_unavailable")
	m.graph(name+": 5xx", errors)
	m.graph(name+": latency (p99)", latency)
}

func (m *Monitoring) function(f awslambda.Function) {
	name := idOf(f)
	near := nearTimeout * float64(timeoutOf(f)/time.Millisecond)
	m.invocations(f)
	m.raise(name, "Duration", longest(f), near, fmt.Sprintf("an invocation took %d%% of the time-out: beyond it operations that are not repeatable become unknown", int(nearTimeout*100)))
}

// invocations watches a function whose invocations may take all of their time.
func (m *Monitoring) invocations(f awslambda.Function) {
	name := idOf(f)
	errors, throttles := f.MetricErrors(statistic("Sum")), f.MetricThrottles(statistic("Sum"))
	m.raise(name, "Errors", errors, 1, "invocations fail")
	m.raise(name, "Throttles", throttles, 1, "invocations are throttled: raise the account's or the function's concurrency, or lower the sources'")
	m.graph(name+": errors, throttles", errors, throttles)
	m.graph(name+": longest invocation", longest(f))
}

func longest(f awslambda.Function) awscloudwatch.Metric {
	return f.MetricDuration(statistic("Maximum"))
}

func (m *Monitoring) queue(q *Queue, age time.Duration) {
	name := idOf(q)
	if age <= q.visibility {
		warn(m, "queue-age", "QueueAge of %v is not above the visibility time-out of %s, %v: each message that is redelivered once alarms; set it above that",
			age, name, q.visibility)
	}
	if q.waits > 0 && age >= q.waits {
		warn(m, "given-up-early", "QueueAge of %v is no less than the time for which work may wait for %s, %v: it would be given up before anybody is told; set it below that",
			age, name, q.waits)
	}
	oldest := q.MetricApproximateAgeOfOldestMessage(statistic("Maximum"))
	m.raise(name, "Age", oldest, age.Seconds(), fmt.Sprintf("a message has been waiting for %v: the consumer is down, throttled, or too slow", age))
	m.graph(name+": age, depth", oldest, q.MetricApproximateNumberOfMessagesVisible(statistic("Maximum")))
	if q.DeadLetters != nil {
		m.deadLetters(name, "DeadLetters", q.DeadLetters)
	}
}

func (m *Monitoring) deadLetters(name, what string, q awssqs.IQueue) {
	m.leftToPeople(name, what, q, "messages were given up: see why, resolve their records, and redrive them",
		"messages that were given up are lost within two days: redrive or save them")
}

// leftToPeople watches a queue that should be empty.
func (m *Monitoring) leftToPeople(name, what string, q awssqs.IQueue, any, old string) {
	depth, age := q.MetricApproximateNumberOfMessagesVisible(statistic("Maximum")), q.MetricApproximateAgeOfOldestMessage(statistic("Maximum"))
	m.raise(name, what+"Depth", depth, 1, any)
	const last = maxMessageRetention - 2*day
	m.raise(name, what+"Age", age, last.Seconds(), old)
	m.graph(name+what+": depth, age", depth, age)
}

func (m *Monitoring) relay(r *Relay, age time.Duration) {
	name := idOf(r)
	iterator := r.MetricIteratorAge()
	m.raise(name, "IteratorAge", iterator, float64(age.Milliseconds()), fmt.Sprintf("the relay is %v behind the table's stream", age))
	m.graph(name+": behind the stream", iterator)
	m.deadLetters(name, "Failures", r.Failures)
	m.function(r.Function)
}

func (m *Monitoring) sweeper(s *Sweeper) {
	name := idOf(s)
	m.alarm(name+"Stopped", &awscloudwatch.AlarmProps{
		Metric: s.MetricSuccesses(), Threshold: jsii.Number(1), ComparisonOperator: awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD,
		TreatMissingData: awscloudwatch.TreatMissingData_BREACHING,
		AlarmDescription: jsii.String(m.described("Stopped", fmt.Sprintf(
			"no sweep has succeeded in %v: operations whose process died stay in progress, and open questions are not asked; look at the sweeper's log and its rule", period))),
	})
	m.invocations(s.Function)
	m.leftToPeople(name, "People", s.People, "the sweep has left questions to people: find out what became of them, and resolve their records",
		"questions that were left to people leave the queue within two days: their records stay open, so resolve them or list them in the index")
}

func (m *Monitoring) table(t *Table, most int) {
	name := idOf(t)
	metric := func(of string) awscloudwatch.Metric { return t.Metric(jsii.String(of), statistic("Sum")) }
	// DynamoDB counts an index's throttles under the index alone: TableName without
	// GlobalSecondaryIndexName has those of the table.
	// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
	index := func(of string) awscloudwatch.Metric {
		return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
			Namespace: jsii.String("AWS/DynamoDB"), MetricName: &of, Statistic: jsii.String("Sum"), Period: duration(period),
			DimensionsMap: &map[string]*string{"TableName": t.TableName(), "GlobalSecondaryIndexName": jsii.String(schema.OpenIndex)},
		})
	}
	reads, writes, failed := metric("ReadThrottleEvents"), metric("WriteThrottleEvents"), metric("ConditionalCheckFailedRequests")
	indexReads, indexWrites := index("ReadThrottleEvents"), index("WriteThrottleEvents")
	m.raise(name, "ReadThrottles", reads, 1, "reads of records are throttled: calls fail closed; raise MaxReadUnits")
	m.raise(name, "WriteThrottles", writes, 1, "writes of records are throttled: calls fail closed; raise MaxWriteUnits, and look for one key that everybody uses")
	m.raise(name+"Index", "ReadThrottles", indexReads, 1, "reads of the index are throttled: open questions and waiting messages are found late; raise MaxReadUnits")
	m.raise(name+"Index", "WriteThrottles", indexWrites, 1, "writes of the index are throttled, and soon those of records: calls then fail closed; raise MaxWriteUnits")
	m.raise(name, "FailedConditions", failed, float64(most), fmt.Sprintf("%d writes in %v conflicted with a record: somebody repeats requests without end", most, period))
	m.graph(name+": throttles", reads, writes)
	m.graph(name+": throttles of the index", indexReads, indexWrites)
	m.graph(name+": failed conditions", failed)
}

// AddAlarm adds an alarm to those of the monitoring. It is raised when the metric reaches the
// threshold within one of its periods, and ends without data. The description says what to do.
func (m *Monitoring) AddAlarm(name string, metric awscloudwatch.IMetric, threshold float64, description string) {
	m.reached(name, metric, threshold, description, awscloudwatch.TreatMissingData_NOT_BREACHING)
}

// raise adds an alarm of a kind that the runbook has a section about, on a metric that is
// written when something happens, or by SQS while messages wait.
func (m *Monitoring) raise(name, kind string, metric awscloudwatch.IMetric, threshold float64, description string) {
	m.AddAlarm(name+kind, metric, threshold, m.described(kind, description))
}

// raiseWaiting adds one on what a sweep finds waiting. Each sweep that could look writes a number,
// also 0: without data nobody has looked, and the alarm stays as it is. A relay's sweeps may also
// be rarer than the period.
func (m *Monitoring) raiseWaiting(name, kind string, metric awscloudwatch.IMetric, threshold float64, description string) {
	m.reached(name+kind, metric, threshold, m.described(kind, description), awscloudwatch.TreatMissingData_IGNORE)
}

func (m *Monitoring) reached(name string, metric awscloudwatch.IMetric, threshold float64, description string, missing awscloudwatch.TreatMissingData) {
	m.alarm(name, &awscloudwatch.AlarmProps{
		Metric: metric, Threshold: &threshold, AlarmDescription: &description, TreatMissingData: missing,
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
	})
}

// described is a description that ends with the section of the runbook. GitHub's anchors are
// lower-case.
func (m *Monitoring) described(kind, description string) string {
	return description + ". Runbook: " + m.runbook + "#" + strings.ToLower(kind)
}

func (m *Monitoring) alarm(name string, p *awscloudwatch.AlarmProps) {
	p.EvaluationPeriods = jsii.Number(1)
	a := awscloudwatch.NewAlarm(m, &name, p)
	if m.topic != nil {
		a.Node().DefaultChild().(awscloudwatch.CfnAlarm).SetAlarmActions(&[]*string{m.topic.TopicArn()})
	}
	m.Alarms[name] = a
}

func (m *Monitoring) graph(title string, metrics ...awscloudwatch.Metric) {
	left := make([]awscloudwatch.IMetric, len(metrics))
	for i, metric := range metrics {
		left[i] = metric
	}
	m.graphs = append(m.graphs, awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: &title, Left: &left, Width: jsii.Number(8), Height: jsii.Number(6),
	}))
}

func statistic(s string) *awscloudwatch.MetricOptions {
	return &awscloudwatch.MetricOptions{Statistic: &s, Period: duration(period)}
}

// idOf is the construct's id; below a relay or a sweeper it is theirs and the function's.
func idOf(c constructs.IConstruct) string {
	id := *c.Node().Id()
	if scope := c.Node().Scope(); scope != nil {
		if _, ok := c.(*Function); ok && id == "Function" {
			return *scope.Node().Id() + id
		}
	}
	return id
}
