package cloud

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	samples "github.com/idem-go/idempotency/events"
)

// Schedule invokes a function every so often.
type Schedule struct {
	Function string
	Every    time.Duration
	Event    []byte
	of       *resource
}

func init() {
	register("AWS::Events::Rule", kind{service: "events", name: "Name", plan: planRule,
		arn: func(_ *resource, name string) string { return "rule/" + name }})
	register("AWS::Scheduler::Schedule", kind{service: "scheduler", name: "Name", plan: planSchedule,
		ignored: []string{"FlexibleTimeWindow", "GroupName"}})
}

// every reads a rate, such as rate(5 minutes).
func every(expression string) (time.Duration, bool) {
	inner, ok := strings.CutPrefix(expression, "rate(")
	if !ok {
		return 0, false
	}
	fields := strings.Fields(strings.TrimSuffix(inner, ")"))
	if len(fields) != 2 {
		return 0, false
	}
	n, err := strconv.Atoi(fields[0])
	units := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}
	unit := units[strings.TrimSuffix(fields[1], "s")]
	return time.Duration(n) * unit, err == nil && n > 0 && unit > 0
}

func (p *Plan) schedule(r *resource, expression, arn, input string) error {
	interval, ok := every(expression)
	switch {
	case !ok:
		return r.fail("the schedule %q does not run here, only a rate, such as rate(5 minutes)", expression)
	case !strings.Contains(arn, ":function:"):
		return r.fail("the target %q does not run here, only a function", arn)
	}
	event := []byte(input)
	if input == "" {
		var err error
		if event, err = samples.Get("eventbridge-scheduled"); err != nil {
			return r.fail("%w", err)
		}
	}
	p.Schedules = append(p.Schedules, Schedule{functionName(arn), interval, event, r})
	return nil
}

func planRule(p *Plan, r *resource) error {
	var is struct {
		ScheduleExpression, State string
		EventPattern              json.RawMessage
		Targets                   []struct{ Arn, Input string }
	}
	if err := p.decode(r, &is, "ScheduleExpression", "State", "EventPattern", "Targets"); err != nil {
		return err
	}
	if is.EventPattern != nil {
		return r.fail("rules with a pattern of events do not run here, only schedules")
	}
	if is.State == "DISABLED" {
		return nil
	}
	for _, to := range is.Targets {
		if err := p.schedule(r, is.ScheduleExpression, to.Arn, to.Input); err != nil {
			return err
		}
	}
	return nil
}

func planSchedule(p *Plan, r *resource) error {
	var is struct {
		ScheduleExpression, State string
		Target                    struct{ Arn, Input string }
	}
	if err := p.decode(r, &is, "ScheduleExpression", "State", "Target"); err != nil {
		return err
	}
	if is.State == "DISABLED" {
		return nil
	}
	return p.schedule(r, is.ScheduleExpression, is.Target.Arn, is.Target.Input)
}
