package cloud

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/hashicorp/cronexpr"
)

// Schedule invokes a function at times.
type Schedule struct {
	Function             string
	Every                time.Duration // of a rate; 0 for a cron expression
	Expression, Timezone string
	Input                string // of the function; empty: an event with the time
	ARN                  string // of the rule or the schedule
	Target               string // its id among those of a rule
	cron                 func(after time.Time) time.Time
	of                   *resource
}

// next is the first time after another one; zero if there is none.
func (s Schedule) next(after time.Time) time.Time {
	if s.cron != nil {
		return s.cron(after)
	}
	return after.Add(s.Every)
}

func init() {
	kinds["AWS::Events::Rule"] = kind{service: "events", name: "Name", plan: planned(planRule),
		arn: func(_ *resource, name string) string { return "rule/" + name }}
	kinds["AWS::Scheduler::Schedule"] = kind{service: "scheduler", name: "Name", plan: planned(planSchedule),
		ignored: []string{"FlexibleTimeWindow", "GroupName"}}
}

// weekday is a number of one, from 1 for Sunday, in the fifth field of a cron expression.
var weekday = regexp.MustCompile(`(^|[,-])([1-7])`)

// read reads the expression: a rate, such as rate(5 minutes), or cron, such as cron(0 9 ? * 2#1 *).
func (s *Schedule) read() error {
	kind, inner, _ := strings.Cut(strings.TrimSuffix(s.Expression, ")"), "(")
	fields := strings.Fields(inner)
	switch {
	case kind == "rate" && len(fields) == 2:
		units := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}
		n, _ := strconv.Atoi(fields[0])
		if s.Every = time.Duration(n) * units[strings.TrimSuffix(fields[1], "s")]; s.Every > 0 {
			return nil
		}
	case kind == "cron" && len(fields) == 6 && (fields[2] == "?") != (fields[4] == "?"):
		fields[4] = weekday.ReplaceAllStringFunc(fields[4], func(day string) string { // the parser counts from 0
			return day[:len(day)-1] + string(day[len(day)-1]-1)
		})
		if fields[4] == "L" {
			fields[4] = "6"
		}
		times, err := cronexpr.Parse(strings.Join(fields, " "))
		if err != nil {
			return fmt.Errorf("the schedule %q: %w", s.Expression, err)
		}
		zone, err := time.LoadLocation(s.Timezone) // empty: UTC
		s.cron = func(after time.Time) time.Time { return times.Next(after.In(zone)) }
		return err
	}
	return fmt.Errorf("the schedule %q does not run here, only a rate, such as rate(5 minutes), and a cron "+
		"expression with six fields, one of them a ?, such as cron(0 9 ? * MON-FRI *)", s.Expression)
}

// schedule adds one that invokes the function with an ARN.
func (p *Plan) schedule(r *resource, s Schedule, arn string) error {
	own, err := r.attribute("Arn")
	if err == nil {
		err = s.read()
	}
	s.Function, s.ARN, s.of = functionName(arn), text(own), r
	switch {
	case err != nil:
		return r.fail("%w", err)
	case !strings.Contains(arn, ":function:"):
		return r.fail("the target %q does not run here, only a function", arn)
	}
	p.Schedules = append(p.Schedules, s)
	return nil
}

// event is what the function gets at a time.
func (s Schedule) event(at time.Time) []byte {
	if s.Input != "" {
		return []byte(s.Input)
	}
	event, _ := json.Marshal(events.EventBridgeEvent{Version: "0", ID: rand.Text(), DetailType: "Scheduled Event",
		Source: "aws." + s.of.kind.service, AccountID: account, Time: at.UTC().Truncate(time.Second), Region: region,
		Resources: []string{s.ARN}, Detail: json.RawMessage("{}")}) // texts cannot fail
	return event
}

func planRule(p *Plan, r *resource, is struct {
	ScheduleExpression, State string
	EventPattern              json.RawMessage
	Targets                   []struct {
		Id, Arn, Input, InputPath string
		InputTransformer          any
	}
}) error {
	if is.EventPattern != nil {
		return r.fail("rules with a pattern of events do not run here, only schedules")
	}
	if is.State == "DISABLED" {
		return nil
	}
	for _, to := range is.Targets {
		if to.InputPath != "" || to.InputTransformer != nil {
			return r.fail("a target's InputPath and InputTransformer do not run here, only Input")
		}
		s := Schedule{Expression: is.ScheduleExpression, Input: to.Input, Target: to.Id}
		if err := p.schedule(r, s, to.Arn); err != nil {
			return err
		}
	}
	return nil
}

func planSchedule(p *Plan, r *resource, is struct {
	ScheduleExpression, ScheduleExpressionTimezone, State string
	Target                                                struct{ Arn, Input string }
}) error {
	if is.State == "DISABLED" {
		return nil
	}
	s := Schedule{Expression: is.ScheduleExpression, Timezone: is.ScheduleExpressionTimezone, Input: is.Target.Input}
	return p.schedule(r, s, is.Target.Arn)
}

// startSchedules invokes functions at their times.
func (r *Running) startSchedules(ctx context.Context, p *Plan) {
	_ = renew(r.schedules, p.Schedules, func(s Schedule) (func(), error) {
		ctx, cancel := context.WithCancel(ctx)
		f, done := r.functions[s.Function], make(chan struct{})
		go func() {
			defer close(done)
			for {
				at := s.next(time.Now())
				if at.IsZero() || smithytime.SleepWithContext(ctx, time.Until(at)) != nil {
					return
				}
				if _, err := f.Call(ctx, s.event(at)); err != nil && ctx.Err() == nil {
					r.report("%s: %v", s.of, err)
				}
			}
		}()
		return func() { cancel(); <-done }, nil
	}) // nothing in it fails
}
