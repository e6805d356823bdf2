package cloud

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The times are those of the documentation of EventBridge, after Saturday, 28 November 2026, 10:00 UTC.
func TestTimes(t *testing.T) {
	from := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	for expression, want := range map[string]string{
		"rate(1 minute)":                       "11-28 10:01, 11-28 10:02",
		"rate(12 hours)":                       "11-28 22:00, 11-29 10:00",
		"cron(0 10 * * ? *)":                   "11-29 10:00, 11-30 10:00",
		"cron(0 18 ? * MON-FRI *)":             "11-30 18:00, 12-01 18:00",
		"cron(0 18 ? * 2-6 *)":                 "11-30 18:00, 12-01 18:00",
		"cron(0/15 * * * ? *)":                 "11-28 10:15, 11-28 10:30",
		"cron(0/10 * ? * 1,7 *)":               "11-28 10:10, 11-28 10:20",
		"cron(0 8 31 * ? *)":                   "12-31 08:00, 01-31 08:00",
		"cron(0 8 L * ? *)":                    "11-30 08:00, 12-31 08:00",
		"cron(0 9 3W * ? *)":                   "12-03 09:00, 01-04 09:00",
		"cron(0 9 ? * 3#2 *)":                  "12-08 09:00, 01-12 09:00",
		"cron(0 9 ? * 6L *)":                   "12-25 09:00, 01-29 09:00",
		"cron(0 9 ? * L *)":                    "12-05 09:00, 12-12 09:00",
		"cron(0 9 1 JAN,JUL ? 2027-2028)":      "01-01 09:00, 07-01 09:00",
		"cron(0 9 1 1 ? 2027)":                 "01-01 09:00, never",
		"cron(0 9 1 1 ? 2020)":                 "never, never",
		"cron(0 9 29 2 ? *) in Europe/Berlin":  "02-29 08:00, 02-29 08:00",
		"cron(0 12 * * ? *) in America/Denver": "11-28 19:00, 11-29 19:00",
	} {
		expression, zone, _ := strings.Cut(expression, " in ")
		s := Schedule{Expression: expression, Timezone: zone}
		require.NoError(t, s.read(), expression)
		var got []string
		for at := from; len(got) < 2; {
			if at = s.next(at); at.IsZero() {
				got = append(got, "never")
				at = from.AddDate(10, 0, 0)
				continue
			}
			got = append(got, at.UTC().Format("01-02 15:04"))
		}
		require.Equal(t, want, strings.Join(got, ", "), expression)
	}
	for expression, want := range map[string]string{
		"rate(0 minutes)": "does not run here", "rate(5)": "does not run here", "rate(5 seconds)": "does not run here",
		"cron(0 12 * * ?)": "does not run here", "cron(0 12 * * * *)": "does not run here",
		"cron(0 12 ? * ? *)": "does not run here", "cron(0 12 ? * 8 *)": "syntax error in day-of-week field",
		"at(2027-01-01T00:00:00)": "does not run here", "cron(0 12 * * ? *) in Here": "unknown time zone Here",
	} {
		expression, zone, _ := strings.Cut(expression, " in ")
		s := Schedule{Expression: expression, Timezone: zone}
		require.ErrorContains(t, s.read(), want, expression)
	}
}

// Rules and schedules invoke functions with their input; those that are disabled do not.
func TestSchedules(t *testing.T) {
	const more = `
  Weekly:
    Type: AWS::Scheduler::Schedule
    Properties:
      ScheduleExpression: cron(0 9 ? * MON *)
      ScheduleExpressionTimezone: Europe/Berlin
      FlexibleTimeWindow: {Mode: "OFF"}
      Target: {Arn: !GetAtt Charge.Arn, RoleArn: !GetAtt Role.Arn, Input: '{"sweep":true}'}
  Never:
    Type: AWS::Scheduler::Schedule
    Properties:
      {ScheduleExpression: rate(1 minute), State: DISABLED, Target: {Arn: a, RoleArn: b}}
  NeverToo:
    Type: AWS::Events::Rule
    Properties: {ScheduleExpression: rate(1 minute), State: DISABLED, Targets: [{Arn: !GetAtt Charge.Arn, Id: It}]}
`
	p, err := read(t, shop+more, nil)
	require.NoError(t, err)
	require.Len(t, p.Schedules, 2)
	require.JSONEq(t, `{"version":"0","id":"","detail-type":"Scheduled Event","source":"aws.events",
		"account":"000000000000","time":"2026-11-28T10:00:00Z","region":"us-east-1",
		"resources":["arn:aws:events:us-east-1:000000000000:rule/Shop-Sweep"],"detail":{}}`,
		regexp.MustCompile(`"id":"[^"]+"`).ReplaceAllString(
			string(p.Schedules[0].event(time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC))), `"id":""`))
	weekly := p.Schedules[1]
	require.Equal(t, []string{"Shop-Charge", "cron(0 9 ? * MON *)", "Europe/Berlin", `{"sweep":true}`},
		[]string{weekly.Function, weekly.Expression, weekly.Timezone, string(weekly.event(time.Now()))})
	for change, want := range map[[2]string]string{
		{"Id: It}", "Id: It, InputPath: $.detail}"}://
		"Shop/Sweep (AWS::Events::Rule): a target's InputPath and InputTransformer do not run here",
		{"Targets: [{Arn: !GetAtt Charge.Arn, Id: It}]", "Targets: [{Arn: !GetAtt Orders.Arn, Id: It}]"}://
		`Shop/Sweep (AWS::Events::Rule): the target "arn:aws:sqs:us-east-1:000000000000:Shop-Orders.fifo" does not run here`,
		{"ScheduleExpression: rate(5 minutes)", "EventPattern: {source: [a]}"}://
		"Shop/Sweep (AWS::Events::Rule): rules with a pattern of events do not run here",
		{"Targets: [{Arn: !GetAtt Charge.Arn", "Targets: [{Arn: arn:aws:lambda:us-east-1:1:function:none"}://
		"Shop/Sweep: there is no function none",
	} {
		require.Contains(t, shop, change[0])
		_, err := read(t, strings.Replace(shop, change[0], change[1], 1), nil)
		require.ErrorContains(t, err, want)
	}
}

// Rules that differ in nothing but their names run each for itself, and so do the targets of a rule.
func TestEqualSchedules(t *testing.T) {
	const rules = `
Resources:
  Print:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60}
  A:
    Type: AWS::Events::Rule
    Properties:
      ScheduleExpression: rate(1 minute)
      Targets: [{Arn: !GetAtt Print.Arn, Id: "1"}, {Arn: !GetAtt Print.Arn, Id: "2"}]
  B:
    Type: AWS::Events::Rule
    Properties: {ScheduleExpression: rate(1 minute), Targets: [{Arn: !GetAtt Print.Arn, Id: "1"}]}
`
	r, out := started(t, rules, Options{Adjust: func(p *Plan) {
		for i := range p.Schedules {
			p.Schedules[i].Every = 100 * time.Millisecond
		}
	}})
	require.Len(t, r.schedules, 3)
	got := func(rule string) {
		t.Helper()
		prints(t, out, "arn:aws:events:us-east-1:000000000000:rule/"+rule+`"`)
	}
	got("Shop-A")
	got("Shop-B")
	renamed := strings.Replace(rules, "{ScheduleExpression", "{Name: renamed, ScheduleExpression", 1)
	require.NoError(t, rewrite(t, r, renamed))
	require.Len(t, r.schedules, 3)
	got("renamed")
}
