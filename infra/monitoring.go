package infra

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

const (
	// Runbook has a section for each kind of alarm. The description of an alarm ends with it and
	// the section's anchor.
	Runbook = "https://github.com/idem-go/idempotency/blob/main/infra/RUNBOOK.md"

	// The kinds of alarms whose thresholds are compared with settings of constructs.
	queueAge  = "Age"
	outboxOld = "OutboxOld"

	period = 5 * time.Minute
)

// MonitoringProps say what is watched. All fields are optional.
type MonitoringProps struct {
	// Topic gets the alarms. If it has a policy of its own, the policy must let
	// cloudwatch.amazonaws.com publish. Nil means that no one is notified, and a warning.
	Topic awssns.ITopic

	Table     *Table
	Functions []awslambda.Function
	// Metrics are the functions whose code writes the library's metrics, with package emf, under the
	// function's name. The alarms and graphs of these metrics are made for them alone: without data an alarm
	// stays green. A warning names what is left out for others of Functions and for consumers of Queues. A
	// relay, a sweeper and a ledger always write theirs.
	Metrics []awslambda.Function
	Queues  []*Queue
	// APIs are each an [*API], or an HTTP or REST API made or imported by CDK (IHttpApi, IRestApi). CloudWatch has
	// the metrics of REST APIs by their names: give each REST API of an account and region its own.
	APIs     []constructs.IConstruct
	Relays   []*Relay
	Sweepers []*Sweeper
	Ledgers  []*Ledger

	// Thresholds are by kind of alarm, such as {"KeyReused": 500}: a number in 5 minutes, or a time, in
	// milliseconds for IteratorAge and in seconds for Age, OldestOpen and OutboxOld, or for Duplicates a percentage of
	// the calls. A kind without one here has its usual threshold. Duration follows from each function's time-out, and
	// has none. Neither have Stopped and LedgerStopped.
	Thresholds map[string]float64
}

// Monitoring is a dashboard, and alarms on AWS's own metrics and on those of package schema,
// which functions write with package emf under their names.
//
// Missing data raises the alarms on what has stopped: the sweeps of a sweeper or a relay, and the comparisons of a
// ledger. It ends the others, except those on the age of what they find: these keep their state until the next sweep
// that can look. The name of an alarm is a construct's id and a kind, such as SweeperStopped. The
// kind is the heading of its section of the runbook.
type Monitoring struct {
	constructs.Construct
	// Dashboard has a graph for each metric. Graphs of your own are added with its AddWidgets.
	Dashboard awscloudwatch.Dashboard
	// Alarms by name; add more with AddAlarm.
	Alarms map[string]awscloudwatch.Alarm

	topic      awssns.ITopic
	writers    []awslambda.Function
	thresholds map[string]float64
	graphs     []awscloudwatch.IWidget
}

// NewMonitoring returns the monitoring of these constructs.
func NewMonitoring(scope constructs.Construct, id string, props *MonitoringProps) *Monitoring {
	p := valueOf(props)
	m := &Monitoring{Alarms: map[string]awscloudwatch.Alarm{}, topic: p.Topic, writers: p.Metrics}
	constructs.NewConstruct_Override(m, scope, &id)
	m.setThresholds(p.Thresholds)
	if m.topic == nil {
		warn(m, "no-topic", "the alarms notify no topic: set Topic")
	}
	for _, a := range p.APIs {
		m.api(a)
	}
	for _, f := range p.Functions {
		m.function(f)
		m.written(idOf(f), f, ofLibrary(f), watchedEngine)
	}
	for _, f := range p.Metrics {
		if !slices.Contains(p.Functions, f) {
			m.written(idOf(f), f, ofLibrary(f), watchedEngine)
		}
	}
	for _, q := range p.Queues {
		m.queue(q)
	}
	for _, r := range p.Relays {
		m.relay(r)
	}
	for _, s := range p.Sweepers {
		m.sweeper(s)
	}
	for _, l := range p.Ledgers {
		m.watch(idOf(l.Function), ofAWS(l.Function), watchedInvocations)
		m.watch(idOf(l), ofLibrary(l.Function), watchedLedger)
	}
	if t := p.Table; t != nil {
		m.watch(idOf(t), ofAWS(t), watchedTable)
		m.watch(idOf(t)+"Index", ofIndex(t), watchedIndex)
	}
	m.Dashboard = awscloudwatch.NewDashboard(m, jsii.String("Dashboard"), nil)
	for row := range slices.Chunk(m.graphs, 3) {
		m.Dashboard.AddWidgets(row...)
	}
	return m
}

// setThresholds has the threshold of each kind of alarm that has one.
func (m *Monitoring) setThresholds(own map[string]float64) {
	m.thresholds = map[string]float64{}
	for _, w := range []watched{watchedAPI, watchedInvocations, watchedEngine, watchedQueue, watchedConsumer,
		watchedDeadLetters, watchedFailures, watchedDestination, watchedEscalations, watchedStream,
		watchedOutbox, watchedQuestions, watchedLedger, watchedTable, watchedIndex} {
		for _, a := range w.alarms {
			if !a.of.below {
				m.thresholds[a.kind] = a.threshold
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(own)) {
		usual, known := m.thresholds[kind]
		switch {
		case !known:
			refuse(m, "Thresholds has %q, which is no kind of alarm with a threshold of its own: use one of %s",
				kind, strings.Join(slices.Sorted(maps.Keys(m.thresholds)), ", "))
		case !(own[kind] >= 1): // also what is no number
			refuse(m, "the threshold of %s is %v: use 1 or more, or leave it out for %v", kind, own[kind], usual)
		default:
			m.thresholds[kind] = own[kind]
		}
	}
}

func (m *Monitoring) api(a constructs.IConstruct) {
	switch api := a.(type) {
	case *API:
		m.watch(idOf(a), ofAWS(api.HTTP), watchedAPI)
	case awsapigatewayv2.IHttpApi:
		m.watch(idOf(a), ofAWS(api), watchedAPI)
	case interface{ RestApiName() *string }:
		name := api.RestApiName()
		// Of an API that is imported without name, CDK takes the construct's id for it.
		if *name == idOf(a) && !*awscdk.Resource_IsOwnedResource(a) {
			refuse(m, "the imported REST API %s has no name, by which its metrics are found: import it with RestApiName, which "+
				"is its name in what aws apigateway get-rest-apis shows, and under another id", *a.Node().Path())
			return
		}
		m.watch(idOf(a), custom("AWS/ApiGateway", map[string]*string{"ApiName": name}), watchedREST)
	default:
		refuse(m, "APIs has %s, which is neither an *infra.API nor an HTTP or REST API of CDK's: leave it out, and use "+
			"AddAlarm", *a.Node().Path())
	}
}

// WatchOperation adds the alarm Duplicates of an operation, of a function in [MonitoringProps.Metrics]: that of the
// function is about all of its operations together. The operation has the name that the dimension of its metrics has,
// in which what is not printable ASCII is percent-encoded: usually that of its idem.Operation. An alarm on a name that
// no operation has stays green. The alarm's name is the function's id, the operation and the kind; Thresholds are for
// all alarms of the kind.
func (m *Monitoring) WatchOperation(f awslambda.Function, operation string) {
	if operation == "" || strings.ContainsFunc(operation, func(r rune) bool { return r < ' ' || r > '~' }) {
		refuse(m, "WatchOperation has the operation %q: use its name as the dimension of its metrics has it, with what is "+
			"not printable ASCII percent-encoded", operation)
		return
	}
	alone := duplicates
	alone.text = "operation " + operation + ": " + alone.text
	m.written(idOf(f)+operation, f, ofOperation(f, operation), watched{alarms: []alarm{alone}})
}

// written watches the library's metrics of a function, if it writes them.
func (m *Monitoring) written(name string, by awslambda.Function, of source, w watched) {
	if slices.Contains(m.writers, by) {
		m.watch(name, of, w)
		return
	}
	var kinds []string
	for _, a := range w.alarms {
		kinds = append(kinds, name+a.kind)
	}
	warn(m, "no-metrics", "there are no alarms %s: they need metrics of %s; if its code writes them with package emf, "+
		"name it in Metrics", strings.Join(kinds, ", "), idOf(by))
}

func (m *Monitoring) function(f awslambda.Function) {
	m.watch(idOf(f), ofAWS(f), watchedInvocations)
	m.watch(idOf(f), ofAWS(f), watchedDuration(timeoutOf(f)))
	if own, ok := f.(*Function); ok && own.failures != nil {
		m.watch(idOf(f), ofAWS(own.failures), watchedFailures)
		m.watch(idOf(f), ofAWS(f), watchedDestination)
	}
}

func (m *Monitoring) queue(q *Queue) {
	name, age := q.id, time.Duration(m.thresholds[queueAge]*float64(time.Second))
	if age <= q.visibility {
		warn(m, "queue-age", "the threshold of Age, %v, is not above the visibility time-out of %s, %v: each message "+
			"that is redelivered once alarms; set it above that in Thresholds", age, name, q.visibility)
	}
	if q.waits > 0 && age >= q.waits {
		warn(m, "expires-early", "the threshold of Age, %v, is no less than the time for which work may wait for %s, %v: "+
			"it would expire before the alarm; set it below that in Thresholds", age, name, q.waits)
	}
	m.watch(name, ofAWS(q), watchedQueue)
	m.watch(name, ofAWS(q.DeadLetters), watchedDeadLetters)
	m.written(name, q.consumer, ofLibrary(q.consumer), watchedConsumer)
}

func (m *Monitoring) relay(r *Relay) {
	name, age := idOf(r), time.Duration(m.thresholds[outboxOld]*float64(time.Second))
	if age <= relaySweep {
		warn(m, "outbox-age", "the threshold of OutboxOld, %v, is not above the time between two sweeps of %s, %v: each "+
			"message that the stream has missed once alarms; set it above that in Thresholds", age, name, relaySweep)
	}
	m.watch(name, ofAWS(r.Function), watchedStream)
	m.watch(name, ofAWS(r.Failures), watchedFailures)
	m.watch(name, ofAWS(r.Function), watchedDestination)
	// A sweep with a backlog works until shortly before the time-out.
	m.watch(idOf(r.Function), ofAWS(r.Function), watchedInvocations)
	m.watch(name, ofLibrary(r.Function), watchedOutbox)
}

func (m *Monitoring) sweeper(s *Sweeper) {
	m.watch(idOf(s.Function), ofAWS(s.Function), watchedInvocations)
	m.watch(idOf(s), ofAWS(s.EscalationQueue), watchedEscalations)
	m.watch(idOf(s), ofLibrary(s.Function), watchedQuestions)
}

// watch adds the alarms and the graphs of one source.
func (m *Monitoring) watch(name string, of source, w watched) {
	for _, a := range w.alarms {
		m.raise(name, of, a)
	}
	for _, g := range w.graphs {
		left := make([]awscloudwatch.IMetric, len(g.metrics))
		for i, metric := range g.metrics {
			left[i] = of(metric, g.stat, period)
		}
		m.graphs = append(m.graphs, awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
			Title: jsii.String(name + ": " + g.title), Left: &left, Width: jsii.Number(8), Height: jsii.Number(6),
		}))
	}
}

func (m *Monitoring) raise(name string, of source, a alarm) {
	threshold, ok := m.thresholds[a.kind]
	if !ok {
		threshold = a.threshold
	}
	shown := strconv.FormatFloat(threshold, 'f', -1, 64)
	if a.of.unit > 0 {
		shown = time.Duration(threshold * float64(a.of.unit)).String()
	}
	metric := awscloudwatch.IMetric(of(a.metric, a.of.stat, cmp.Or(a.of.period, period)))
	if a.of.least > 0 {
		metric = awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
			Expression:   jsii.String(fmt.Sprintf("IF(calls >= %d, share, 0)", a.of.least)),
			UsingMetrics: &map[string]awscloudwatch.IMetric{"share": metric, "calls": of(a.metric, samples, period)},
			Period:       duration(period), Label: &a.metric,
		})
	}
	in := &awscloudwatch.AlarmProps{
		Metric: metric, Threshold: &threshold, TreatMissingData: a.of.missing,
		AlarmDescription: described(a.kind, strings.ReplaceAll(a.text, "%v", shown)),
	}
	if a.of.below {
		in.ComparisonOperator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
	}
	if a.of.periods > 0 {
		in.EvaluationPeriods, in.DatapointsToAlarm = &a.of.periods, &a.of.reached
	}
	m.alarm(name+a.kind, in)
}

// AddAlarm adds an alarm to those of the monitoring. It is raised when the metric reaches the
// threshold within one of its periods, and ends without data. The description says what to do.
func (m *Monitoring) AddAlarm(name string, metric awscloudwatch.IMetric, threshold float64, description string) {
	m.alarm(name, &awscloudwatch.AlarmProps{Metric: metric, Threshold: &threshold, AlarmDescription: &description})
}

// described is a description that ends with the section of the runbook. GitHub's anchors are
// lower-case.
func described(kind, text string) *string {
	return jsii.String(text + ". Runbook: " + Runbook + "#" + strings.ToLower(kind))
}

// alarm adds an alarm: if the props do not say otherwise, one that is raised when the metric reaches the threshold,
// and ends without data.
func (m *Monitoring) alarm(name string, p *awscloudwatch.AlarmProps) {
	p.EvaluationPeriods = cmp.Or(p.EvaluationPeriods, jsii.Number(1))
	p.ComparisonOperator = cmp.Or(p.ComparisonOperator,
		awscloudwatch.ComparisonOperator_GREATER_THAN_OR_EQUAL_TO_THRESHOLD)
	p.TreatMissingData = cmp.Or(p.TreatMissingData, awscloudwatch.TreatMissingData_NOT_BREACHING)
	a := awscloudwatch.NewAlarm(m, &name, p)
	if m.topic != nil {
		a.Node().DefaultChild().(awscloudwatch.CfnAlarm).SetAlarmActions(&[]*string{m.topic.TopicArn()})
	}
	m.Alarms[name] = a
}

// idOf is the construct's id; below a relay or a sweeper it is theirs and the function's.
func idOf(c constructs.IConstruct) string {
	id := *c.Node().Id()
	if _, ok := c.(*Function); ok && id == "Function" {
		return *c.Node().Scope().Node().Id() + id
	}
	return id
}
