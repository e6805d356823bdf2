package templatetests

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/schema"
)

// fiveMinutes are the values that CloudWatch has of metrics in five minutes. To CloudWatch a metric is
// its namespace, name and dimensions, and it adds up none of them. Lambda sends nothing of a function that is
// not invoked, or whose invocations are all throttled.
type fiveMinutes map[string][]float64

const inPayments, inOrders = "payments ", "orders "

// watchedAlarms are all alarms, with what raises each.
var watchedAlarms = merged(
	watchedIn(inPayments,
		engineIsWatched("Payments"), engineIsWatched("Statements"), durationIsWatched("Payments", 16_000),
		durationIsWatched("Statements", 48_000), queueIsWatched("StatementsQueue", "Statements"),
		relayIsWatched("StatementsRelay"), sweeperIsWatched("RefundSweeper"), tableIsWatched(),
		map[string]rule{"API5xx": sum("AWS/ApiGateway 5xx ApiId=APIHTTP", 10)}),
	watchedIn(inOrders,
		engineIsWatched("Worker"), durationIsWatched("Worker", 24_000), queueIsWatched("OrdersQueue", "Worker"),
		relayIsWatched("Relay"), sweeperIsWatched("Sweeper"), tableIsWatched()),
)

func merged(all ...map[string]rule) map[string]rule {
	rules := map[string]rule{}
	for _, some := range all {
		maps.Copy(rules, some)
	}
	return rules
}

func watchedIn(stack string, all ...map[string]rule) map[string]rule {
	rules := map[string]rule{}
	for alarm, r := range merged(all...) {
		rules[stack+alarm] = r
	}
	return rules
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

func engineIsWatched(f string) map[string]rule {
	return merged(invocationsAreWatched(f), map[string]rule{
		f + "StoreUnavailable": sum(ours(f, schema.MetricStoreUnavailable), 10),
		f + "FailedOpen":       sum(ours(f, schema.MetricFailedOpen), 1),
		f + "OutcomeDropped":   sum(ours(f, schema.MetricOutcomeDropped), 1),
		f + "RecordUnreadable": sum(ours(f, schema.MetricUnreadable), 1),
		f + "KeyReused":        sum(ours(f, schema.MetricKeyReused), 20),
		f + "Duplicates":       share(ours(f, schema.MetricDuplicate), 50, 100),
	})
}

func invocationsAreWatched(f string) map[string]rule {
	return map[string]rule{f + "Errors": sum(lambdas(f, "Errors"), 1), f + "Throttles": sum(lambdas(f, "Throttles"), 1)}
}

func durationIsWatched(f string, milliseconds float64) map[string]rule {
	return map[string]rule{f + "Duration": largest(lambdas(f, "Duration"), milliseconds)}
}

func queueIsWatched(queue, consumer string) map[string]rule {
	return merged(leftToOperators(queue+"DeadLetters", queue+"DeadLetters"), map[string]rule{
		queue + "Age":    largest(queues(queue, "ApproximateAgeOfOldestMessage"), 900),
		queue + "Failed": sum(ours(consumer, schema.MetricFailed), 1),
	})
}

// leftToOperators is reported at once, and again in time if it stays in its queue.
func leftToOperators(alarm, queue string) map[string]rule {
	depth := largest(queues(queue, visible), 1)
	old := depth.times(144, 168)
	old.length = hour
	return map[string]rule{alarm + "Depth": depth, alarm + "Old": old}
}

func relayIsWatched(relay string) map[string]rule {
	f := relay + "Function"
	return merged(invocationsAreWatched(f), leftToOperators(relay+"Failures", relay+"Failures"), map[string]rule{
		relay + "IteratorAge":      largest(lambdas(f, "IteratorAge"), 300_000),
		relay + "Undelivered":      sum(lambdas(f, "DestinationDeliveryFailures"), 1),
		relay + "OutboxOld":        largest(ours(f, schema.MetricOutboxOldest), 900).kept(),
		relay + "Stopped":          silence(ours(f, schema.MetricOutboxOldest)),
		relay + "OutboxMissed":     sum(ours(f, schema.MetricOutboxMissed), 1).times(2, 3),
		relay + "OutboxDead":       sum(ours(f, schema.MetricOutboxDead), 1),
		relay + "OutboxUnreadable": sum(ours(f, schema.MetricOutboxUnreadable), 1),
	})
}

func sweeperIsWatched(sweeper string) map[string]rule {
	f := sweeper + "Function"
	escalations := sweeper + "Escalations"
	return merged(invocationsAreWatched(f), leftToOperators(escalations, escalations), map[string]rule{
		sweeper + "OldestOpen":       largest(ours(f, schema.MetricOldestOpen), 900).kept(),
		sweeper + "Stopped":          silence(ours(f, schema.MetricOldestOpen)),
		sweeper + "Escalated":        sum(ours(f, schema.MetricEscalated), 1),
		sweeper + "NotStarted":       sum(ours(f, schema.MetricNotStarted), 1),
		sweeper + "RecordUnreadable": sum(ours(f, schema.MetricUnreadable), 1),
	})
}

// tableIsWatched: its index too, whose throttles DynamoDB does not count with the table's.
// Each claim that is not repeatable writes it, and each sweep reads it.
func tableIsWatched() map[string]rule {
	const table, index = " TableName=Records", " GlobalSecondaryIndexName=" + schema.OpenIndex + " TableName=Records"
	all := map[string]rule{"RecordsTransactionConflicts": sum("AWS/DynamoDB TransactionConflict"+table, 100).times(2, 3)}
	for _, of := range []string{"Read", "Write"} {
		all["Records"+of+"Throttles"] = sum("AWS/DynamoDB "+of+"ThrottleEvents"+table, 1)
		all["RecordsIndex"+of+"Throttles"] = sum("AWS/DynamoDB "+of+"ThrottleEvents"+index, 1)
	}
	return all
}

// sum raises an alarm if the values of five minutes add up to the limit. Where nothing is written nothing happened.
func sum(metric string, limit float64) rule {
	return rule{metric: metric, stat: "Sum", threshold: limit, comparison: "GreaterThanOrEqualToThreshold",
		missing: "notBreaching", length: 1, reached: 1, periods: 1}
}

// largest raises an alarm if one of the values in five minutes reaches the limit.
func largest(metric string, limit float64) rule {
	r := sum(metric, limit)
	r.stat = "Maximum"
	return r
}

// share raises an alarm if the average of five minutes reaches the limit twice, and there are at least so many values.
func share(metric string, limit float64, least int) rule {
	r := sum(metric, limit)
	r.stat, r.least = "Average", least
	return r.times(2, 3)
}

// silence raises an alarm if nothing is written for ten minutes.
func silence(metric string) rule {
	return rule{metric: metric, stat: "SampleCount", threshold: 1, comparison: "LessThanThreshold", missing: "breaching",
		length: 1, reached: 2, periods: 2}
}

// times is the rule for what must be reached in so many of so many periods.
func (r rule) times(reached, periods int) rule {
	r.reached, r.periods = reached, periods
	return r
}

// kept is the rule of an alarm that stays as it is where nothing is written.
func (r rule) kept() rule {
	r.missing = "ignore"
	return r
}

// rules of all alarms, by stack and name.
func (s stacks) rules() map[string]rule {
	all := map[string]rule{}
	for prefix, tt := range map[string]template{inPayments: s.payments, inOrders: s.orders} {
		for id, alarm := range tt.resources("AWS::CloudWatch::Alarm") {
			all[prefix+strings.TrimPrefix(name(id), "Monitoring")] = ruleOf(at(alarm, "Properties"))
		}
	}
	return all
}

// alarmsAreRaised compares what raises the alarms. The stories show that this is right.
func alarmsAreRaised(s stacks, errs *findings) {
	found := s.rules()
	for alarm, wanted := range watchedAlarms {
		if r := found[alarm]; r != wanted {
			errs.add("%s is raised by %+v instead of %+v", alarm, r, wanted)
		}
		delete(found, alarm)
	}
	for alarm := range found {
		errs.add("what raises %s is not among what is watched", alarm)
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
	least                             int // a period with fewer values counts as 0
}

func ruleOf(alarm any) rule {
	of, least := alarm, 0
	stat, period := at(of, "Statistic"), at(of, "Period")
	if queries, math := at(alarm, "Metrics").([]any); math { // of one metric: its share, and how many calls there are
		read := map[any]any{}
		for _, q := range queries {
			read[at(q, "Id")] = at(q, "MetricStat")
			_, _ = fmt.Sscanf(fmt.Sprint(at(q, "Expression")), "IF(calls >= %d, share, 0)", &least)
		}
		of, stat, period = at(read["share"], "Metric"), at(read["share"], "Stat"), at(read["share"], "Period")
		if !reflect.DeepEqual(read["calls"], map[string]any{"Metric": of, "Period": period, "Stat": "SampleCount"}) {
			least = -1 // it is read in another way
		}
	}
	var dimensions []string
	all, _ := at(of, "Dimensions").([]any)
	for _, d := range all {
		dimensions = append(dimensions, fmt.Sprintf("%v=%s", at(d, "Name"), strings.Join(texts(at(d, "Value")), "")))
	}
	slices.Sort(dimensions)
	seconds, _ := period.(float64)
	number := func(member string) float64 { v, _ := at(alarm, member).(float64); return v }
	r := rule{
		metric: fmt.Sprintf("%v %v %s", at(of, "Namespace"), at(of, "MetricName"), strings.Join(dimensions, " ")),
		stat:   fmt.Sprint(stat), threshold: number("Threshold"), comparison: fmt.Sprint(at(alarm, "ComparisonOperator")),
		missing: fmt.Sprint(at(alarm, "TreatMissingData")), length: int(seconds) / 300, least: least,
		periods: int(number("EvaluationPeriods")), reached: int(number("DatapointsToAlarm")),
	}
	if r.reached == 0 {
		r.reached = r.periods
	}
	return r
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
		if r.stat == "Average" {
			value /= float64(len(values))
		}
	}
	if len(values) < r.least {
		value = 0
	}
	return value < r.threshold && r.comparison == "LessThanThreshold" ||
		value >= r.threshold && r.comparison == "GreaterThanOrEqualToThreshold"
}
