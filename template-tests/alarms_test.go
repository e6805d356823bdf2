package templatetests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/schema"
)

// fiveMinutes are the values that CloudWatch has of metrics in a period of an alarm. To
// CloudWatch a metric is its namespace, name and dimensions, and it adds up none of them.
// Lambda sends nothing of a function that is not invoked, or whose invocations are all
// throttled.
type fiveMinutes map[string][]float64

// watched says what raises an alarm.
type watched struct {
	stack  func(stacks) template
	alarm  string
	metric string
	// limit is the value that raises it: of the sum, or of the largest.
	limit   float64
	largest bool
	// repeated: it must be reached in two of three periods.
	repeated bool
}

func inPayments(s stacks) template { return s.payments }
func inOrders(s stacks) template   { return s.orders }

var watchedMetrics = slices.Concat(
	engineIsWatched(inPayments, "Payments"), questionsAreWatched(inPayments, "RefundSweeper"),
	engineIsWatched(inPayments, "Statements"), outboxIsWatched(inPayments, "StatementsRelay"),
	engineIsWatched(inOrders, "Worker"), outboxIsWatched(inOrders, "Relay"), questionsAreWatched(inOrders, "Sweeper"),
	throttlesAreWatched(inPayments), throttlesAreWatched(inOrders),
	[]watched{
		{inPayments, "API5xx", "AWS/ApiGateway 5xx ApiId=APIHTTP", 10, false, false},
		{inPayments, "StatementsQueueFailed", ours("Statements", schema.MetricFailed), 1, false, false},
		{inOrders, "OrdersQueueFailed", ours("Worker", schema.MetricFailed), 1, false, false},
	},
)

// ours is a metric as package emf writes it, under the service.
func ours(function, name string) string {
	return schema.MetricNamespace + " " + name + " " + schema.DimensionService + "=" + function
}

func outboxIsWatched(stack func(stacks) template, relay string) []watched {
	f := relay + "Function"
	return []watched{
		{stack, relay + "OutboxOld", ours(f, schema.MetricOutboxOldest), 900, true, false},
		{stack, relay + "OutboxMissed", ours(f, schema.MetricOutboxMissed), 1, false, true},
		{stack, relay + "OutboxDead", ours(f, schema.MetricOutboxDead), 1, false, false},
		{stack, relay + "OutboxUnreadable", ours(f, schema.MetricOutboxUnreadable), 1, false, false},
	}
}

func engineIsWatched(stack func(stacks) template, f string) []watched {
	return []watched{
		{stack, f + "StoreUnavailable", ours(f, schema.MetricStoreUnavailable), 10, false, false},
		{stack, f + "FailedOpen", ours(f, schema.MetricFailedOpen), 1, false, false},
		{stack, f + "OutcomeDropped", ours(f, schema.MetricOutcomeDropped), 1, false, false},
		{stack, f + "RecordUnreadable", ours(f, schema.MetricUnreadable), 1, false, false},
		{stack, f + "KeyReused", ours(f, schema.MetricKeyReused), 20, false, false},
	}
}

func questionsAreWatched(stack func(stacks) template, sweeper string) []watched {
	f := sweeper + "Function"
	return []watched{
		{stack, sweeper + "OldestOpen", ours(f, schema.MetricOldestOpen), 900, true, false},
		{stack, sweeper + "Escalated", ours(f, schema.MetricEscalated), 1, false, false},
		{stack, sweeper + "NotStarted", ours(f, schema.MetricNotStarted), 1, false, false},
		{stack, sweeper + "RecordUnreadable", ours(f, schema.MetricUnreadable), 1, false, false},
	}
}

// throttlesAreWatched: those of the index too, which DynamoDB does not count with the table's.
// Each claim that is not repeatable writes it, and each sweep reads it.
func throttlesAreWatched(stack func(stacks) template) (all []watched) {
	for _, of := range []string{"Read", "Write"} {
		metric := "AWS/DynamoDB " + of + "ThrottleEvents "
		all = append(all, watched{stack, "Records" + of + "Throttles", metric + "TableName=Records", 1, false, false},
			watched{stack, "RecordsIndex" + of + "Throttles",
				metric + "GlobalSecondaryIndexName=" + schema.OpenIndex + " TableName=Records", 1, false, false})
	}
	return all
}

// play is what CloudWatch may see of a metric, and whether it is a reason to wake an operator.
type play struct {
	seen   fiveMinutes
	raise  bool
	raised bool // before
	// earlier are the periods before it; nil means that nothing was written.
	earlier []fiveMinutes
}

func (w watched) plays() map[string]play {
	of := func(values ...float64) fiveMinutes { return fiveMinutes{w.metric: values} }
	others := fiveMinutes{ours("Other", strings.Fields(w.metric)[1]): {w.limit}}
	for _, other := range watchedMetrics {
		others[other.metric] = []float64{w.limit}
	}
	delete(others, w.metric)
	all := map[string]play{
		"nothing is written":   {seen: fiveMinutes{}},
		"nothing happened":     {seen: of(0, 0, 0)},
		"it is reached":        {seen: of(0, w.limit, 0), raise: true},
		"it is nearly reached": {seen: of(0, w.limit-1, 0)},
		"it is over":           {seen: of(0, w.limit-1, 0), raised: true},
		"all others have it":   {seen: others},
		// Each call that goes wrong is counted. What waits is written by who looks.
		"nothing is written any more": {seen: fiveMinutes{}, raised: true, raise: w.largest},
	}
	if w.largest {
		all["two together reach it"] = play{seen: of(w.limit-1, w.limit-1)}
	} else {
		all["many calls together reach it"] = play{seen: of(slices.Repeat([]float64{1}, int(w.limit))...), raise: true}
	}
	if w.repeated {
		for what, p := range all {
			p.earlier = []fiveMinutes{of(w.limit), of(0)}
			all[what] = p
		}
		all["it is reached once"] = play{seen: of(w.limit), earlier: []fiveMinutes{of(0), of(0)}}
		all["it was reached long ago"] = play{seen: of(w.limit), earlier: []fiveMinutes{of(w.limit), of(0), of(0)}}
		all["it is reached again"] = play{seen: of(0), earlier: []fiveMinutes{of(w.limit), of(w.limit)}, raise: true}
	}
	return all
}

// alarmsAreRaised plays what CloudWatch sees: an alarm is raised for its reason and for no
// other.
func alarmsAreRaised(s stacks, errs *findings) {
	for _, w := range watchedMetrics {
		alarm := w.stack(s).property("AWS::CloudWatch::Alarm", "Monitoring"+w.alarm)
		for what, p := range w.plays() {
			errs.raises(w.alarm+" if "+what, p, alarm)
		}
	}
	always := []float64{1, 1, 1, 1, 1}
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs.want("the schedule of "+sweeper, "rate(1 minute)",
			tt.property("AWS::Events::Rule", sweeper+"Schedule", "ScheduleExpression"))
		lambda := func(invocations, failed []float64) fiveMinutes {
			of := " FunctionName=" + sweeper + "Function"
			return fiveMinutes{"AWS/Lambda Invocations" + of: invocations, "AWS/Lambda Errors" + of: failed}
		}
		// Raised when no sweep succeeds, whatever the reason, and at no other time.
		for what, p := range map[string]play{
			"it is not invoked":   {raise: true},
			"it fails every time": {seen: lambda(always, always), raise: true},
			"it succeeds once":    {seen: lambda(always, []float64{1, 1, 0, 1, 1})},
			"it succeeds":         {seen: lambda(always, []float64{0, 0, 0, 0, 0})},
		} {
			errs.raises(sweeper+"Stopped if "+what, p, tt.property("AWS::CloudWatch::Alarm", "Monitoring"+sweeper+"Stopped"))
		}
	}
}

// raises finds an alarm that is not there, or that is raised, or is not, otherwise than it should be.
func (f *findings) raises(what string, p play, alarm any) {
	got, err := raises(alarm, p)
	if err != nil {
		f.add("%s: %w", what, err)
		return
	}
	f.want(what, p.raise, got)
}

// raises evaluates an alarm over its last periods.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html#alarm-evaluation
func raises(alarm any, p play) (bool, error) {
	periods, ok := at(alarm, "EvaluationPeriods").(float64)
	if !ok {
		return false, fmt.Errorf("this test cannot evaluate %s", text(alarm))
	}
	needed, ok := at(alarm, "DatapointsToAlarm").(float64)
	if !ok {
		needed = periods
	}
	seen := append(slices.Clone(p.earlier), p.seen)
	for _, one := range seen[max(0, len(seen)-int(periods)):] {
		reached, err := reaches(alarm, one, p.raised)
		if err != nil {
			return false, err
		}
		if reached {
			needed--
		}
	}
	return needed <= 0, nil
}

// reaches evaluates an alarm on a metric, or on the difference of two, over one period.
func reaches(alarm any, seen fiveMinutes, raised bool) (bool, error) {
	var value float64
	var has bool
	var err error
	if metrics, ok := at(alarm, "Metrics").([]any); ok {
		value, has, err = difference(metrics, seen)
	} else {
		value, has, err = statistic(alarm, at(alarm, "Statistic"), at(alarm, "Period"), seen)
	}
	threshold, ok := at(alarm, "Threshold").(float64)
	switch comparison := at(alarm, "ComparisonOperator"); {
	case err != nil:
		return false, err
	case !ok:
		return false, fmt.Errorf("this test cannot evaluate %s", text(alarm))
	case !has:
		missing := at(alarm, "TreatMissingData")
		return missing == "breaching" || missing == "ignore" && raised, nil
	case comparison == "LessThanThreshold":
		return value < threshold, nil
	case comparison == "GreaterThanOrEqualToThreshold":
		return value >= threshold, nil
	default:
		return false, fmt.Errorf("this test cannot evaluate %v", comparison)
	}
}

// statistic of a metric in the period; false without data.
func statistic(metric, stat, period any, seen fiveMinutes) (value float64, has bool, err error) {
	var dimensions []string
	all, _ := at(metric, "Dimensions").([]any)
	for _, d := range all {
		dimensions = append(dimensions, fmt.Sprintf("%v=%s", at(d, "Name"), strings.Join(texts(at(d, "Value")), "")))
	}
	slices.Sort(dimensions)
	values := seen[fmt.Sprintf("%v %v %s", at(metric, "Namespace"), at(metric, "MetricName"),
		strings.Join(dimensions, " "))]
	switch {
	case period != 300.0 || stat != "Sum" && stat != "Maximum":
		return 0, false, fmt.Errorf("this test cannot evaluate %v over %v s", stat, period)
	case len(values) == 0:
		return 0, false, nil
	case stat == "Maximum":
		return slices.Max(values), true, nil
	}
	for _, v := range values {
		value += v
	}
	return value, true, nil
}

// difference is the number of invocations that have succeeded.
func difference(metrics []any, seen fiveMinutes) (value float64, has bool, err error) {
	has = true
	for _, m := range metrics {
		sign := map[any]float64{"invocations": 1, "errors": -1}[at(m, "Id")]
		expression := at(m, "Expression")
		if sign == 0 && expression != "invocations - errors" {
			return 0, false, fmt.Errorf("this test cannot evaluate %s", text(m))
		}
		if expression != nil {
			continue
		}
		stat := at(m, "MetricStat")
		v, some, err := statistic(at(stat, "Metric"), at(stat, "Stat"), at(stat, "Period"), seen)
		if err != nil {
			return 0, false, err
		}
		value, has = value+sign*v, has && some
	}
	return value, has, nil
}
