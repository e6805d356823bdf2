package templatetests

import (
	"errors"
	"fmt"
	"strings"
)

// fiveMinutes are the sums of a sweeper's metrics in a period of its alarm, by name. Lambda
// sends none of a function that is not invoked, or whose invocations are all throttled.
type fiveMinutes map[string]float64

// sweepersAreWatched plays what CloudWatch sees of each stack's sweeper: its alarm is raised
// when no sweep succeeds, whatever the reason, and at no other time.
func sweepersAreWatched(s stacks) error {
	var errs []error
	for sweeper, tt := range map[string]template{"RefundSweeper": s.payments, "Sweeper": s.orders} {
		errs = append(errs, want("the schedule of "+sweeper, "rate(1 minute)", tt.property("AWS::Events::Rule", sweeper+"Schedule", "ScheduleExpression")))
		alarm := tt.property("AWS::CloudWatch::Alarm", "Monitoring"+sweeper+"Stopped")
		if alarm == nil {
			errs = append(errs, fmt.Errorf("nobody is told if %s does not run", sweeper))
			continue
		}
		errs = append(errs, want("the alarm of "+sweeper+" tells", true, len(texts(at(alarm, "AlarmActions"))) > 0))
		for _, c := range []struct {
			what  string
			seen  fiveMinutes
			raise bool
		}{
			{"is not invoked", nil, true},
			{"fails every time", fiveMinutes{"Invocations": 5, "Errors": 5}, true},
			{"succeeds once", fiveMinutes{"Invocations": 5, "Errors": 4}, false},
			{"succeeds", fiveMinutes{"Invocations": 5, "Errors": 0}, false},
		} {
			raised, err := raises(alarm, sweeper+"Function", c.seen)
			if err != nil {
				return fmt.Errorf("the alarm of %s: %w", sweeper, err)
			}
			errs = append(errs, want(fmt.Sprintf("the alarm if %s %s", sweeper, c.what), c.raise, raised))
		}
	}
	return errors.Join(errs...)
}

// raises evaluates an alarm on a difference of the function's metrics.
func raises(alarm any, function string, seen fiveMinutes) (bool, error) {
	var expression string
	metrics := map[string]string{} // by id
	for _, m := range at(alarm, "Metrics").([]any) {
		id, _ := at(m, "Id").(string)
		if e, ok := at(m, "Expression").(string); ok {
			expression = e
			continue
		}
		if of := texts(at(m, "MetricStat", "Metric", "Dimensions", 0, "Value")); len(of) != 1 || of[0] != function {
			return false, fmt.Errorf("%s is of %v", id, of)
		}
		if at(m, "MetricStat", "Stat") != "Sum" || at(m, "MetricStat", "Metric", "Namespace") != "AWS/Lambda" || at(m, "MetricStat", "Period") != 300.0 {
			return false, fmt.Errorf("%s is not a sum over five minutes of what Lambda counts", id)
		}
		metrics[id], _ = at(m, "MetricStat", "Metric", "MetricName").(string)
	}
	plus, minus, ok := strings.Cut(expression, " - ")
	if !ok || metrics[plus] == "" || metrics[minus] == "" {
		return false, fmt.Errorf("this test cannot evaluate %q", expression)
	}
	all, has := seen[metrics[plus]]
	failed, hasFailed := seen[metrics[minus]]
	if !has || !hasFailed {
		return at(alarm, "TreatMissingData") == "breaching", nil
	}
	threshold, _ := at(alarm, "Threshold").(float64)
	switch comparison := at(alarm, "ComparisonOperator"); comparison {
	case "LessThanThreshold":
		return all-failed < threshold, nil
	case "LessThanOrEqualToThreshold":
		return all-failed <= threshold, nil
	default:
		return false, fmt.Errorf("this test cannot evaluate %v", comparison)
	}
}
