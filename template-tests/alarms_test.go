package templatetests

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/schema"
)

// fiveMinutes are the values that CloudWatch has of metrics in five minutes. To CloudWatch a metric is
// its namespace, name and dimensions, and it adds up none of them. Lambda sends nothing of a function that is
// not invoked, or whose invocations are all throttled.
type fiveMinutes map[string][]float64

// watched says what raises an alarm.
type watched struct {
	in     string // a stack
	alarm  string
	metric string
	// limit is the value that raises it: of the sum, or of the largest.
	limit   float64
	largest bool
	// It must be reached in so many of so many periods of as many five minutes. Zero means one.
	reached, periods, length int
	// silent: it is raised when nothing is written, and at no other time.
	silent bool
	// keeps: without data it stays as it is.
	keeps bool
}

const inPayments, inOrders = "payments ", "orders "

var watchedMetrics = slices.Concat(
	watchedIn(inPayments,
		engineIsWatched("Payments"), engineIsWatched("Statements"), durationIsWatched("Payments", 16_000),
		durationIsWatched("Statements", 48_000), queueIsWatched("StatementsQueue", "Statements"),
		relayIsWatched("StatementsRelay"), sweeperIsWatched("RefundSweeper"), tableIsWatched(), []watched{
			{alarm: "API5xx", metric: "AWS/ApiGateway 5xx ApiId=APIHTTP", limit: 10},
		}),
	watchedIn(inOrders,
		engineIsWatched("Worker"), durationIsWatched("Worker", 24_000), queueIsWatched("OrdersQueue", "Worker"),
		relayIsWatched("Relay"), sweeperIsWatched("Sweeper"), tableIsWatched()),
)

func watchedIn(stack string, all ...[]watched) []watched {
	found := slices.Concat(all...)
	for i := range found {
		found[i].in = stack
	}
	return found
}

// ours is a metric as package emf writes it, under the service.
func ours(function, name string) string {
	return schema.MetricNamespace + " " + name + " " + schema.DimensionService + "=" + function
}

func lambdas(function, name string) string { return "AWS/Lambda " + name + " FunctionName=" + function }
func queues(queue, name string) string {
	return "AWS/SQS " + name + " QueueName=" + queue + ".QueueName"
}

const visible = "ApproximateNumberOfMessagesVisible"

func engineIsWatched(f string) []watched {
	return append(invocationsAreWatched(f),
		watched{alarm: f + "StoreUnavailable", metric: ours(f, schema.MetricStoreUnavailable), limit: 10},
		watched{alarm: f + "FailedOpen", metric: ours(f, schema.MetricFailedOpen), limit: 1},
		watched{alarm: f + "OutcomeDropped", metric: ours(f, schema.MetricOutcomeDropped), limit: 1},
		watched{alarm: f + "RecordUnreadable", metric: ours(f, schema.MetricUnreadable), limit: 1},
		watched{alarm: f + "KeyReused", metric: ours(f, schema.MetricKeyReused), limit: 20})
}

func invocationsAreWatched(f string) []watched {
	return []watched{
		{alarm: f + "Errors", metric: lambdas(f, "Errors"), limit: 1},
		{alarm: f + "Throttles", metric: lambdas(f, "Throttles"), limit: 1},
	}
}

func durationIsWatched(f string, milliseconds float64) []watched {
	return []watched{{alarm: f + "Duration", metric: lambdas(f, "Duration"), limit: milliseconds, largest: true}}
}

func queueIsWatched(queue, consumer string) []watched {
	return append(peopleAreTold(queue+"DeadLetters", queue+"DeadLetters"),
		watched{alarm: queue + "Age", metric: queues(queue, "ApproximateAgeOfOldestMessage"), limit: 900, largest: true},
		watched{alarm: queue + "Failed", metric: ours(consumer, schema.MetricFailed), limit: 1})
}

// peopleAreTold at once of what is in a queue, and again in time if it stays there.
func peopleAreTold(alarm, queue string) []watched {
	in := queues(queue, visible)
	return []watched{
		{alarm: alarm + "Depth", metric: in, limit: 1, largest: true},
		{alarm: alarm + "Old", metric: in, limit: 1, largest: true, reached: 144, periods: 168, length: 12},
	}
}

func relayIsWatched(relay string) []watched {
	f := relay + "Function"
	return slices.Concat(invocationsAreWatched(f), peopleAreTold(relay+"Failures", relay+"Failures"), []watched{
		{alarm: relay + "IteratorAge", metric: lambdas(f, "IteratorAge"), limit: 300_000, largest: true},
		{alarm: relay + "Undelivered", metric: lambdas(f, "DestinationDeliveryFailures"), limit: 1},
		{alarm: relay + "OutboxOld", metric: ours(f, schema.MetricOutboxOldest), limit: 900, largest: true, keeps: true},
		{alarm: relay + "Stopped", metric: ours(f, schema.MetricOutboxOldest), silent: true, reached: 2, periods: 2},
		{alarm: relay + "OutboxMissed", metric: ours(f, schema.MetricOutboxMissed), limit: 1, reached: 2, periods: 3},
		{alarm: relay + "OutboxDead", metric: ours(f, schema.MetricOutboxDead), limit: 1},
		{alarm: relay + "OutboxUnreadable", metric: ours(f, schema.MetricOutboxUnreadable), limit: 1},
	})
}

func sweeperIsWatched(sweeper string) []watched {
	f := sweeper + "Function"
	return slices.Concat(invocationsAreWatched(f), peopleAreTold(sweeper+"Escalations", sweeper+"Escalations"), []watched{
		{alarm: sweeper + "OldestOpen", metric: ours(f, schema.MetricOldestOpen), limit: 900, largest: true, keeps: true},
		{alarm: sweeper + "Stopped", metric: ours(f, schema.MetricOldestOpen), silent: true, reached: 2, periods: 2},
		{alarm: sweeper + "Escalated", metric: ours(f, schema.MetricEscalated), limit: 1},
		{alarm: sweeper + "NotStarted", metric: ours(f, schema.MetricNotStarted), limit: 1},
		{alarm: sweeper + "RecordUnreadable", metric: ours(f, schema.MetricUnreadable), limit: 1},
	})
}

// tableIsWatched: its index too, whose throttles DynamoDB does not count with the table's.
// Each claim that is not repeatable writes it, and each sweep reads it.
func tableIsWatched() (all []watched) {
	const index = " GlobalSecondaryIndexName=" + schema.OpenIndex + " TableName=Records"
	for _, of := range []string{"Read", "Write"} {
		metric := "AWS/DynamoDB " + of + "ThrottleEvents"
		all = append(all, watched{alarm: "Records" + of + "Throttles", metric: metric + " TableName=Records", limit: 1},
			watched{alarm: "RecordsIndex" + of + "Throttles", metric: metric + index, limit: 1})
	}
	return append(all,
		watched{alarm: "RecordsFailedConditions", limit: 10_000,
			metric: "AWS/DynamoDB ConditionalCheckFailedRequests TableName=Records"},
		watched{alarm: "RecordsTransactionConflicts", limit: 100, reached: 2, periods: 3,
			metric: "AWS/DynamoDB TransactionConflict TableName=Records"})
}

// play is what CloudWatch sees of a metric, one period of the alarm after the other, and whether the alarm is
// raised in the end.
type play struct {
	seen   []fiveMinutes
	raised bool
}

func (w watched) plays() map[string]play {
	reached, periods := max(w.reached, 1), max(w.periods, 1)
	of := func(values ...float64) fiveMinutes { return fiveMinutes{w.metric: values} }
	times := func(n int, one fiveMinutes) []fiveMinutes { return slices.Repeat([]fiveMinutes{one}, n) }
	nothing := times(periods+looksBack, fiveMinutes{})
	others := fiveMinutes{ours("Other", strings.Fields(w.metric)[1]): {w.limit}}
	for _, other := range watchedMetrics {
		if !other.silent {
			others[other.metric] = []float64{other.limit}
		}
	}
	delete(others, w.metric)
	if w.silent {
		return map[string]play{
			"nothing is written":         {nothing, true},
			"all others are":             {times(periods, others), true},
			"it is written once":         {append(nothing, of(4000)), false},
			"it is late now and again":   {slices.Repeat([]fiveMinutes{of(0, 0), {}}, 5), false},
			"it is written no more":      {append(times(periods, of(0)), nothing...), true},
			"it is written as it should": {times(periods, of(0, 0, 0, 0, 0)), false},
		}
	}
	bad, good := times(reached, of(0, w.limit, 0)), times(periods, of(0, 0, 0))
	all := map[string]play{
		"nothing is written":          {nothing, false},
		"nothing happened":            {good, false},
		"it is reached":               {slices.Concat(good, bad), true},
		"it is nearly reached":        {times(periods, of(0, w.limit-1, 0)), false},
		"it is reached with pauses":   {slices.Concat(bad[1:], good[reached:], bad[:1]), true},
		"it is reached less often":    {slices.Concat(good, bad[1:]), false},
		"it is over":                  {slices.Concat(bad, good), false},
		"all others have it":          {times(periods, others), false},
		"nothing is written any more": {slices.Concat(bad, nothing), w.keeps},
	}
	if w.largest {
		all["two together reach it"] = play{times(periods, of(w.limit-1, w.limit-1)), false}
	} else {
		all["many calls together reach it"] = play{times(periods, of(slices.Repeat([]float64{1}, int(w.limit))...)), true}
	}
	return all
}

// alarmsAreRaised plays what CloudWatch sees: an alarm is raised for its reason and for no other.
func alarmsAreRaised(s stacks, errs *findings) {
	left := map[string]rule{}
	for prefix, tt := range map[string]template{"payments ": s.payments, "orders ": s.orders} {
		for id, alarm := range tt.resources("AWS::CloudWatch::Alarm") {
			r, err := ruleOf(at(alarm, "Properties"))
			if err != nil {
				errs.add("%s: %w", id, err)
			}
			left[prefix+strings.TrimPrefix(name(id), "Monitoring")] = r
		}
	}
	for _, story := range stories {
		story.check(left, errs)
	}
	for _, w := range watchedMetrics {
		r, ok := left[w.in+w.alarm]
		for what, p := range w.plays() {
			var seen []fiveMinutes
			for _, one := range p.seen { // as long as a period
				seen = append(append(seen, one), make([]fiveMinutes, max(w.length, 1)-1)...)
			}
			errs.want(w.alarm+" if "+what, p.raised, ok && r.states(seen)[len(seen)-1])
		}
		delete(left, w.in+w.alarm)
	}
	for alarm := range left {
		errs.add("what raises %s is not played", alarm)
	}
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs.want("the schedule of "+sweeper, "rate(1 minute)",
			tt.property("AWS::Events::Rule", sweeper+"Schedule", "ScheduleExpression"))
	}
}

// rule is how CloudWatch evaluates an alarm.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
type rule struct {
	metric, stat, comparison, missing string
	threshold                         float64
	length, reached, periods          int // a period has so many five minutes
}

func ruleOf(alarm any) (rule, error) {
	var dimensions []string
	all, _ := at(alarm, "Dimensions").([]any)
	for _, d := range all {
		dimensions = append(dimensions, fmt.Sprintf("%v=%s", at(d, "Name"), strings.Join(texts(at(d, "Value")), "")))
	}
	slices.Sort(dimensions)
	number := func(member string) float64 { v, _ := at(alarm, member).(float64); return v }
	r := rule{
		metric:    fmt.Sprintf("%v %v %s", at(alarm, "Namespace"), at(alarm, "MetricName"), strings.Join(dimensions, " ")),
		stat:      fmt.Sprint(at(alarm, "Statistic")),
		threshold: number("Threshold"), comparison: fmt.Sprint(at(alarm, "ComparisonOperator")),
		missing: fmt.Sprint(at(alarm, "TreatMissingData")),
		length:  int(number("Period")) / 300,
		periods: int(number("EvaluationPeriods")), reached: int(number("DatapointsToAlarm")),
	}
	if r.reached == 0 {
		r.reached = r.periods
	}
	switch {
	case !slices.Contains([]string{"Sum", "Maximum", "SampleCount"}, r.stat),
		!slices.Contains([]string{"LessThanThreshold", "GreaterThanOrEqualToThreshold"}, r.comparison),
		!slices.Contains([]string{"breaching", "notBreaching", "ignore"}, r.missing),
		r.missing == "ignore" && r.periods != 1, r.length < 1, r.periods < 1, at(alarm, "Threshold") == nil:
		return r, fmt.Errorf("this test cannot evaluate %s", text(alarm))
	}
	return r, nil
}

// looksBack is for how many periods more than those of the alarm CloudWatch uses what was written, before it
// takes a period for missing. AWS names two for an alarm of three periods, and no number for others.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
const looksBack = 3

// states are whether the alarm is raised after each five minutes.
func (r rule) states(seen []fiveMinutes) []bool {
	states := make([]bool, len(seen))
	var periods [][]float64
	raised := false
	for i := range seen {
		if r.length > 0 && (i+1)%r.length == 0 {
			var values []float64
			for _, one := range seen[i+1-r.length : i+1] {
				values = append(values, one[r.metric]...)
			}
			periods = append(periods, values)
			reached, real := 0, 0
			for n := len(periods) - 1; n >= max(0, len(periods)-r.periods-looksBack) && real < r.periods; n-- {
				if len(periods[n]) == 0 {
					continue
				}
				if real++; r.reaches(periods[n]) {
					reached++
				}
			}
			if r.missing == "breaching" {
				reached += r.periods - real
			}
			if real > 0 || r.missing != "ignore" {
				raised = reached >= r.reached
			}
		}
		states[i] = raised
	}
	return states
}

func (r rule) reaches(values []float64) bool {
	value := 0.0
	switch r.stat {
	case "Maximum":
		value = slices.Max(values)
	case "SampleCount":
		value = float64(len(values))
	default:
		for _, v := range values {
			value += v
		}
	}
	return value < r.threshold && r.comparison == "LessThanThreshold" ||
		value >= r.threshold && r.comparison == "GreaterThanOrEqualToThreshold"
}
