package templatetests

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

// story is what CloudWatch sees of both stacks for some days, five minutes by five minutes, from the first
// deployment on: a healthy service, but for what happens from a time on.
type story struct {
	name string
	days int
	// happens changes what is written in the n-th five minutes after the first ones at noon of the second day.
	happens func(n int, seen fiveMinutes)
	// raises has the alarms that are raised, and within how many five minutes. All others are not.
	raises map[string]int
	// over is after how many five minutes no alarm is left.
	over int
}

const (
	hour = 12 // five minutes
	day  = 24 * hour
	noon = day + 3*hour // the deployment is at nine in the morning
)

var stories = []story{
	{name: "a healthy week", days: 8},
	{name: "a destination is down for ten minutes", days: 2, over: 1, happens: func(n int, seen fiveMinutes) {
		relay(seen, "Relay", []float64{290, 590, 0}, []float64{0, 0, 400}, n)
	}},
	{name: "a destination is down for two hours", days: 2, over: 27,
		happens: func(n int, seen fiveMinutes) {
			if n < 24 {
				relay(seen, "Relay", []float64{float64(300 * (n + 1))}, []float64{0}, 0)
			}
			relay(seen, "Relay", []float64{7500, 0}, []float64{6000, 900}, n-24) // its backlog takes two sweeps
		},
		raises: map[string]int{"orders RelayOutboxOld": 3, "orders RelayOutboxMissed": 26}},
	{name: "nothing reads the stream for an hour", days: 2, over: 14,
		happens: func(n int, seen fiveMinutes) {
			if n < hour {
				delete(seen, lambdas("StatementsRelayFunction", "IteratorAge"))
				relay(seen, "StatementsRelay", []float64{410}, []float64{7}, 0)
			}
		},
		raises: map[string]int{"payments StatementsRelayOutboxMissed": 2}},
	{name: "the schedule of a sweeper is disabled", days: 2, over: hour,
		happens: func(n int, seen fiveMinutes) {
			if n < hour {
				remove(seen, "SweeperFunction")
			}
		},
		raises: map[string]int{"orders SweeperStopped": 5}},
	{name: "the schedule of a relay is disabled", days: 2, over: hour + 1,
		happens: func(n int, seen fiveMinutes) {
			if n < hour {
				delete(seen, ours("RelayFunction", schema.MetricOutboxOldest))
				delete(seen, ours("RelayFunction", schema.MetricOutboxMissed))
			}
		},
		raises: map[string]int{"orders RelayStopped": 6}},
	{name: "a table cannot be reached for half an hour", days: 2, over: 10,
		happens: func(n int, seen fiveMinutes) {
			if n >= 6 {
				return
			}
			for _, f := range []string{"RefundSweeperFunction", "StatementsRelayFunction"} {
				remove(seen, f)
				seen[lambdas(f, "Errors")] = []float64{1, 1}
			}
			seen["AWS/ApiGateway 5xx ApiId=APIHTTP"] = []float64{200}
			seen[ours("Payments", schema.MetricStoreUnavailable)] = []float64{200}
		},
		raises: map[string]int{"payments API5xx": 1, "payments PaymentsStoreUnavailable": 1,
			"payments RefundSweeperFunctionErrors": 1, "payments RefundSweeperStopped": 5,
			"payments StatementsRelayFunctionErrors": 1, "payments StatementsRelayStopped": 6}},
	{name: "dead letters are redriven after two hours", days: 2, over: 2 * hour,
		happens: func(n int, seen fiveMinutes) {
			if n < 2*hour {
				seen[queues("OrdersQueueDeadLetters", visible)] = []float64{40}
				seen[queues("OrdersQueueDeadLetters", oldest)] = []float64{float64(300 * n)}
			}
		},
		raises: map[string]int{"orders OrdersQueueDeadLettersDepth": 1}},
	// SQS leaves a message that was received three times out of the age, and one that is hidden out of the number.
	{name: "a dead letter is looked at again and again, and stays", days: 10, over: 10 * day,
		happens: func(n int, seen fiveMinutes) {
			seen[queues("OrdersQueueDeadLetters", visible)] = []float64{float64(min(n%6/2, 1))}
		},
		raises: map[string]int{"orders OrdersQueueDeadLettersDepth": 3, "orders OrdersQueueDeadLettersOld": 6*day + hour}},
	{name: "a consumer is off for half an hour", days: 2, over: 6,
		happens: func(n int, seen fiveMinutes) {
			if n < 6 {
				remove(seen, "Worker")
				seen[queues("OrdersQueue", oldest)] = []float64{float64(300 * (n + 1))}
			}
		},
		raises: map[string]int{"orders OrdersQueueAge": 3}},
	{name: "dead letters are moved after eight days", days: 11, over: 8*day + 29*hour,
		happens: func(n int, seen fiveMinutes) {
			if n < 8*day {
				seen[queues("OrdersQueueDeadLetters", visible)] = []float64{3}
			}
		},
		raises: map[string]int{"orders OrdersQueueDeadLettersDepth": 1, "orders OrdersQueueDeadLettersOld": 6*day + hour}},
	{name: "a client retries without end for half an hour", days: 2, over: 9,
		happens: func(n int, seen fiveMinutes) {
			if n < 6 {
				seen[ours("Payments", schema.MetricDuplicate)] = calls(3000, 2700)
			}
		},
		raises: map[string]int{"payments PaymentsDuplicates": 2}},
	{name: "a queue delivers once more what was not acknowledged", days: 2,
		happens: func(n int, seen fiveMinutes) {
			if n == 0 {
				seen[ours("Worker", schema.MetricDuplicate)] = calls(1000, 900)
			}
		}},
	{name: "a limit refuses a client for an hour", days: 2,
		happens: func(n int, seen fiveMinutes) {
			if n < hour {
				seen[ours("Payments", schema.MetricLimitExceeded)] = slices.Repeat([]float64{1}, 20_000)
				seen["AWS/DynamoDB ConditionalCheckFailedRequests TableName=Records"] = slices.Repeat([]float64{1}, 20_000)
			}
		}},
	{name: "more is watched than the index takes", days: 2, over: 4,
		happens: func(n int, seen fiveMinutes) {
			if n == 0 {
				seen["AWS/DynamoDB WriteThrottleEvents GlobalSecondaryIndexName="+schema.OpenIndex+" TableName=Records"] =
					[]float64{30}
			}
		},
		// Both tables have this name here.
		raises: map[string]int{"payments RecordsIndexWriteThrottles": 1, "orders RecordsIndexWriteThrottles": 1}},
}

const oldest = "ApproximateAgeOfOldestMessage"

// calls are so many, the first of them duplicates.
func calls(all, duplicates int) []float64 {
	return append(slices.Repeat([]float64{100}, duplicates), make([]float64, all-duplicates)...)
}

// relay writes what the n-th sweeps of a relay find.
func relay(seen fiveMinutes, name string, age, missed []float64, n int) {
	if n >= 0 && n < len(age) {
		seen[ours(name+"Function", schema.MetricOutboxOldest)] = age[n : n+1]
		seen[ours(name+"Function", schema.MetricOutboxMissed)] = missed[n : n+1]
	}
}

// remove takes away what a function's invocations write.
func remove(seen fiveMinutes, function string) {
	maps.DeleteFunc(seen, func(metric string, _ []float64) bool { return strings.HasSuffix(metric, "="+function) })
}

// healthy is what a healthy service writes in the n-th five minutes. No client calls it at night. Single calls find
// their table slow, and are answered with 503, once an hour nearly as many as are too many.
func healthy(n int) fiveMinutes {
	seen := fiveMinutes{}
	for _, f := range []string{"RefundSweeperFunction", "SweeperFunction"} {
		seen[lambdas(f, "Errors")] = []float64{0, 0, 0, 0, 0}
		seen[lambdas(f, "Duration")] = []float64{400, 49_900, 49_900, 49_900, 700} // a probe is slow
		seen[ours(f, schema.MetricOldestOpen)] = []float64{0, 0, 60, 120, 0}
	}
	// A sweep each five minutes from the second ones on, which is late now and again.
	late := n%97 == 50
	for _, f := range []string{"StatementsRelay", "Relay"} {
		if n > 0 && !late {
			relay(seen, f, []float64{0}, []float64{0}, 0)
			seen[lambdas(f+"Function", "Duration")] = []float64{58_000} // there is a backlog
		}
	}
	if now := (9 + n/hour) % 24; now < 6 || now > 22 {
		return seen
	}
	for _, f := range []string{"Payments", "Statements", "Worker"} {
		seen[lambdas(f, "Errors")] = []float64{0, 0, 0, 0, 0}
		seen[lambdas(f, "Throttles")] = []float64{0, 0, 0, 0, 0}
		seen[lambdas(f, "Duration")] = []float64{20, 3000, 900}
		seen[ours(f, schema.MetricKeyReused)] = []float64{1, 0, 2}
		// Redeliveries and single retries; each hour a few calls are mostly those of one client.
		seen[ours(f, schema.MetricDuplicate)] = calls(400, 20)
		if n%hour < 3 {
			seen[ours(f, schema.MetricDuplicate)] = calls(30, 25)
		}
		seen[ours(f, schema.MetricStoreUnavailable)] = slices.Repeat([]float64{1}, 2)
		if n%hour == 7 {
			seen[ours(f, schema.MetricStoreUnavailable)] = slices.Repeat([]float64{1}, 9)
		}
	}
	seen["AWS/ApiGateway 5xx ApiId=APIHTTP"] = seen[ours("Payments", schema.MetricStoreUnavailable)]
	for _, f := range []string{"StatementsRelayFunction", "RelayFunction"} {
		seen[lambdas(f, "IteratorAge")] = []float64{90, 800, 12_000}
	}
	for _, q := range []string{"StatementsQueue", "OrdersQueue"} {
		seen[queues(q, oldest)], seen[queues(q, visible)] = []float64{0, 40, 3}, []float64{0, 900, 2}
		seen[queues(q+"DeadLetters", visible)] = []float64{0}
	}
	seen["AWS/DynamoDB TransactionConflict TableName=Records"] = []float64{1, 3, 1}
	return seen
}

// storiesAreTold plays them all.
func storiesAreTold(rules map[string]rule) error {
	var errs findings
	for _, s := range stories {
		s.check(rules, &errs)
	}
	return errors.Join(errs...)
}

// Each story raises the alarms that it names, and no other.
func TestStories(t *testing.T) { require.NoError(t, storiesAreTold(withDefaults(t).rules())) }

// An alarm that is raised too early, too late or for another reason is found.
func TestStoriesFindAlarmsThatAreWrong(t *testing.T) {
	for says, c := range map[string]struct {
		alarm  string
		change func(*rule)
	}{
		"SweeperStopped is not raised where the schedule of a sweeper is disabled": {
			"orders SweeperStopped", func(r *rule) { r.missing = "notBreaching" }},
		"StatementsRelayStopped is raised where a healthy week": {
			"payments StatementsRelayStopped", func(r *rule) { r.reached = 1 }},
		"RelayOutboxMissed is raised where a destination is down for ten minutes": {
			"orders RelayOutboxMissed", func(r *rule) { r.reached = 1 }},
		"OrdersQueueDeadLettersOld is raised after": {"orders OrdersQueueDeadLettersOld", func(r *rule) { r.reached = 168 }},
		"OrdersQueueDeadLettersOld is still raised": {"orders OrdersQueueDeadLettersOld", func(r *rule) { r.reached = 120 }},
		"API5xx is raised where a healthy week":     {"payments API5xx", func(r *rule) { r.threshold = 9 }},
		"PaymentsDuration is raised where a healthy week": {
			"payments PaymentsDuration", func(r *rule) { r.threshold = 2500 }},
		"RecordsTransactionConflicts is raised where a healthy week": {
			"orders RecordsTransactionConflicts", func(r *rule) { r.threshold = 5 }},
		"PaymentsDuplicates is raised where a healthy week": {"payments PaymentsDuplicates", func(r *rule) { r.least = 0 }},
		"WorkerDuplicates is raised where a queue delivers once more": {
			"orders WorkerDuplicates", func(r *rule) { r.reached = 1 }},
		"PaymentsDuplicates is not raised where a client retries": {
			"payments PaymentsDuplicates", func(r *rule) { r.stat = "SampleCount"; r.threshold = 10_000 }},
		"RelayIteratorAge is raised where a healthy week": {"orders RelayIteratorAge", func(r *rule) { r.threshold = 300 }},
		"RelayOutboxOld is not raised where": {
			"orders RelayOutboxOld", func(r *rule) { r.metric = ours("SweeperFunction", schema.MetricOldestOpen) }},
	} {
		r := watchedAlarms[c.alarm]
		c.change(&r)
		require.ErrorContains(t, storiesAreTold(map[string]rule{c.alarm: r}), says)
	}
}

// check evaluates all alarms over the story. The first deployment raises the alarm that a relay's sweeps have
// stopped, until the first one: CloudWatch cannot know that there was none before.
func (s story) check(alarms map[string]rule, errs *findings) {
	seen := make([]fiveMinutes, s.days*day)
	for n := range seen {
		seen[n] = healthy(n)
		if s.happens != nil && n >= noon {
			s.happens(n-noon, seen[n])
		}
	}
	for alarm, r := range alarms {
		states := r.states(seen)
		errs.want(alarm+" in the first five minutes of "+s.name, strings.HasSuffix(alarm, "RelayStopped"), states[0])
		first := slices.Index(states[1:], true) + 1
		within, should := s.raises[alarm]
		switch {
		case !should && first > 0:
			errs.add("%s is raised where %s", alarm, s.name)
		case should && first == 0:
			errs.add("%s is not raised where %s", alarm, s.name)
		case should && (first < noon || first >= noon+within):
			errs.add("%s is raised after %d periods and not within %d where %s", alarm, first-noon+1, within, s.name)
		case should && noon+s.over < len(seen) && slices.Contains(states[noon+s.over:], true):
			errs.add("%s is still raised %d periods after the beginning where %s", alarm, s.over, s.name)
		}
	}
	for alarm := range s.raises {
		if _, ok := alarms[alarm]; !ok {
			errs.add("there is no alarm %s for %s", alarm, s.name)
		}
	}
}
