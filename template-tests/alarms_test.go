package templatetests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

// fiveMinutes are the values that CloudWatch has of metrics in a period of an alarm. To
// CloudWatch a metric is its namespace, name and dimensions, and it adds up none of them.
// Lambda sends nothing of a function that is not invoked, or whose invocations are all
// throttled.
type fiveMinutes map[string][]float64

// lambda are a function's metrics as Lambda sends them, ours one as package emf writes it:
// under the service, and under service and operation.
func (m fiveMinutes) lambda(function, name string, values ...float64) fiveMinutes {
	m["AWS/Lambda "+name+" FunctionName="+function] = values
	return m
}

func (m fiveMinutes) ours(function, name string, values ...float64) fiveMinutes {
	id := schema.MetricNamespace + " " + name + " "
	service := schema.DimensionService + "=" + function
	m[id+service], m[id+schema.DimensionOperation+"=refund "+service] = values, values
	return m
}

// watched says what raises an alarm.
type watched struct {
	stack           func(stacks) template
	alarm, function string
	metric          string
	// limit is the value that raises it: of the sum, or of the largest.
	limit   float64
	largest bool
}

func inPayments(s stacks) template { return s.payments }
func inOrders(s stacks) template   { return s.orders }

var watchedMetrics = slices.Concat(
	engineIsWatched(inPayments, "Payments"), questionsAreWatched(inPayments, "RefundSweeper"),
	engineIsWatched(inPayments, "Statements"), outboxIsWatched(inPayments, "StatementsRelay"),
	engineIsWatched(inOrders, "Worker"), outboxIsWatched(inOrders, "Relay"), questionsAreWatched(inOrders, "Sweeper"),
	[]watched{
		{inPayments, "StatementsQueueFailed", "Statements", schema.MetricFailed, 1, false},
		{inOrders, "OrdersQueueFailed", "Worker", schema.MetricFailed, 1, false},
	},
)

func outboxIsWatched(stack func(stacks) template, relay string) []watched {
	f := relay + "Function"
	return []watched{
		{stack, relay + "OutboxOld", f, schema.MetricOutboxOldest, 900, true},
		{stack, relay + "OutboxDead", f, schema.MetricOutboxDead, 1, false},
		{stack, relay + "OutboxUnreadable", f, schema.MetricOutboxUnreadable, 1, false},
	}
}

func engineIsWatched(stack func(stacks) template, f string) []watched {
	return []watched{
		{stack, f + "StoreUnavailable", f, schema.MetricStoreUnavailable, 10, false},
		{stack, f + "FailedOpen", f, schema.MetricFailedOpen, 1, false},
		{stack, f + "OutcomeDropped", f, schema.MetricOutcomeDropped, 1, false},
		{stack, f + "RecordUnreadable", f, schema.MetricUnreadable, 1, false},
		{stack, f + "KeyReused", f, schema.MetricKeyReused, 20, false},
	}
}

func questionsAreWatched(stack func(stacks) template, sweeper string) []watched {
	f := sweeper + "Function"
	return []watched{
		{stack, sweeper + "OldestOpen", f, schema.MetricOldestOpen, 900, true},
		{stack, sweeper + "Escalated", f, schema.MetricEscalated, 1, false},
		{stack, sweeper + "NotStarted", f, schema.MetricNotStarted, 1, false},
		{stack, sweeper + "RecordUnreadable", f, schema.MetricUnreadable, 1, false},
	}
}

// play is what CloudWatch may see of a metric, and whether it is a reason to wake an operator.
type play struct {
	seen   fiveMinutes
	raise  bool
	raised bool // before
}

func (w watched) plays() map[string]play {
	of := func(values ...float64) fiveMinutes { return fiveMinutes{}.ours(w.function, w.metric, values...) }
	all := map[string]play{
		"nothing is written":         {seen: fiveMinutes{}},
		"nothing happened":           {seen: of(0, 0, 0)},
		"it is reached":              {seen: of(0, w.limit, 0), raise: true},
		"it is nearly reached":       {seen: of(0, w.limit-1, 0)},
		"it is over":                 {seen: of(0, w.limit-1, 0), raised: true},
		"another function writes it": {seen: fiveMinutes{}.ours("Other", w.metric, w.limit)},
		"another metric has it":      {seen: fiveMinutes{}.ours(w.function, schema.MetricExecuted, w.limit)},
		// Each call that goes wrong is counted. What waits is written by who looks.
		"nothing is written any more": {seen: fiveMinutes{}, raised: true, raise: w.largest},
	}
	if w.largest {
		all["two together reach it"] = play{seen: of(w.limit-1, w.limit-1)}
	} else {
		all["many calls together reach it"] = play{seen: of(slices.Repeat([]float64{1}, int(w.limit))...), raise: true}
	}
	return all
}

// alarmsAreRaised plays what CloudWatch sees: an alarm is raised for its reason and for no
// other.
func alarmsAreRaised(s stacks, errs *findings) {
	sweepersAreWatched(s, errs)
	throttlesAreWatched(s, errs)
	alarmsAreDescribed(s, errs)
	for _, w := range watchedMetrics {
		alarm := w.stack(s).property("AWS::CloudWatch::Alarm", "Monitoring"+w.alarm)
		if alarm == nil {
			errs.add("there is no alarm %s", w.alarm)
			continue
		}
		for what, p := range w.plays() {
			errs.raises(fmt.Sprintf("%s if %s", w.alarm, what), p.raise, alarm, p.seen, p.raised)
		}
	}
}

// alarmsAreDescribed: an alarm notifies one topic, in one line that ends with the runbook's
// section about its kind.
func alarmsAreDescribed(s stacks, errs *findings) {
	for _, tt := range []template{s.payments, s.orders} {
		for id, alarm := range tt.resources("AWS::CloudWatch::Alarm") {
			p := alarm["Properties"]
			actions, _ := at(p, "AlarmActions").([]any)
			errs.want("the topics of "+id, 1, len(actions))
			description, _ := at(p, "AlarmDescription").(string)
			what, anchor, ok := strings.Cut(description, ". Runbook: "+infra.Runbook+"#")
			switch {
			case !ok || what == "" || anchor == "":
				errs.add("%s names no section of the runbook: %q", id, description)
			case strings.Contains(description, "\n"):
				errs.add("%s has more than a line: %q", id, description)
			case !strings.HasSuffix(strings.ToLower(name(id)), anchor):
				errs.add("%s names a section about another kind: %s", id, anchor)
			}
		}
	}
}

// sweepersAreWatched: the alarm of each stack's sweeper is raised when no sweep succeeds,
// whatever the reason, and at no other time.
func sweepersAreWatched(s stacks, errs *findings) {
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs.want("the schedule of "+sweeper, "rate(1 minute)",
			tt.property("AWS::Events::Rule", sweeper+"Schedule", "ScheduleExpression"))
		alarm := tt.property("AWS::CloudWatch::Alarm", "Monitoring"+sweeper+"Stopped")
		if alarm == nil {
			errs.add("no alarm is raised if %s does not run", sweeper)
			continue
		}
		of := func(invocations, failed []float64) fiveMinutes {
			f := sweeper + "Function"
			return fiveMinutes{}.lambda(f, "Invocations", invocations...).lambda(f, "Errors", failed...)
		}
		always := []float64{1, 1, 1, 1, 1}
		for _, c := range []struct {
			what  string
			seen  fiveMinutes
			raise bool
		}{
			{"is not invoked", nil, true},
			{"fails every time", of(always, always), true},
			{"succeeds once", of(always, []float64{1, 1, 0, 1, 1}), false},
			{"succeeds", of(always, []float64{0, 0, 0, 0, 0}), false},
		} {
			errs.raises(fmt.Sprintf("the alarm if %s %s", sweeper, c.what), c.raise, alarm, c.seen, false)
		}
	}
}

// throttlesAreWatched: those of the index too, which DynamoDB does not count with the table's.
// Each claim that is not repeatable writes it, and each sweep reads it.
func throttlesAreWatched(s stacks, errs *findings) {
	for _, tt := range []template{s.payments, s.orders} {
		for _, of := range []string{"Read", "Write"} {
			for part, dimensions := range map[string]string{"": "", "Index": "GlobalSecondaryIndexName=" +
				schema.OpenIndex + " "} {
				seen := fiveMinutes{"AWS/DynamoDB " + of + "ThrottleEvents " + dimensions + "TableName=Records": {0, 1}}
				for _, alarm := range []string{"", "Index"} {
					errs.raises(fmt.Sprintf("Records%s%sThrottles if a call of %q is throttled", alarm, of, part), alarm == part,
						tt.property("AWS::CloudWatch::Alarm", "MonitoringRecords"+alarm+of+"Throttles"), seen, false)
				}
			}
		}
	}
}

// raises finds an alarm that is raised, or is not, otherwise than it should be.
func (f *findings) raises(what string, wanted bool, alarm any, seen fiveMinutes, before bool) {
	got, err := raises(alarm, seen, before)
	if err != nil {
		f.add("%s: %w", what, err)
		return
	}
	f.want(what, wanted, got)
}

// raises evaluates an alarm on a metric, or on the difference of two, over one period. It was
// raised before or not.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html#alarm-evaluation
func raises(alarm any, seen fiveMinutes, raised bool) (bool, error) {
	if at(alarm, "EvaluationPeriods") != 1.0 {
		return false, fmt.Errorf("this test evaluates one period, and it needs %v", at(alarm, "EvaluationPeriods"))
	}
	var value float64
	var has bool
	var err error
	if metrics, ok := at(alarm, "Metrics").([]any); ok {
		value, has, err = difference(metrics, seen)
	} else {
		value, has, err = statistic(alarm, at(alarm, "Statistic"), at(alarm, "Period"), seen)
	}
	if err != nil {
		return false, err
	}
	if !has {
		switch at(alarm, "TreatMissingData") {
		case "breaching":
			return true, nil
		case "ignore":
			return raised, nil
		default:
			return false, nil
		}
	}
	threshold, ok := at(alarm, "Threshold").(float64)
	if !ok {
		return false, errors.New("it has no threshold")
	}
	switch comparison := at(alarm, "ComparisonOperator"); comparison {
	case "LessThanThreshold":
		return value < threshold, nil
	case "LessThanOrEqualToThreshold":
		return value <= threshold, nil
	case "GreaterThanThreshold":
		return value > threshold, nil
	case "GreaterThanOrEqualToThreshold":
		return value >= threshold, nil
	default:
		return false, fmt.Errorf("this test cannot evaluate %v", comparison)
	}
}

// statistic of a metric in the period; false without data.
func statistic(metric, stat, period any, seen fiveMinutes) (float64, bool, error) {
	if period != 300.0 {
		return 0, false, fmt.Errorf("this test evaluates five minutes, and the period is %v", period)
	}
	var dimensions []string
	all, _ := at(metric, "Dimensions").([]any)
	for _, d := range all {
		dimensions = append(dimensions, fmt.Sprintf("%v=%s", at(d, "Name"), strings.Join(texts(at(d, "Value")), "")))
	}
	slices.Sort(dimensions)
	values := seen[fmt.Sprintf("%v %v %s", at(metric, "Namespace"), at(metric, "MetricName"),
		strings.Join(dimensions, " "))]
	if len(values) == 0 {
		return 0, false, nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	switch stat {
	case "Sum":
		return sum, true, nil
	case "Maximum":
		return slices.Max(values), true, nil
	case "Average":
		return sum / float64(len(values)), true, nil
	default:
		return 0, false, fmt.Errorf("this test cannot evaluate %v", stat)
	}
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
