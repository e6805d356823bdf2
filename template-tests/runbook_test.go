package templatetests

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

// The sections of the runbook that are about no alarm.
const (
	settling = "Settling"
	pausing  = "Pause an operation in an incident"
)

// sections of the runbook by heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../infra/RUNBOOK.md")
	require.NoError(t, err)
	all := map[string]string{}
	_, rest, ok := strings.Cut(string(text), "\n## ")
	require.True(t, ok)
	for section := range strings.SplitSeq(rest, "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		require.NotContains(t, all, heading)
		all[heading] = body
	}
	return all
}

var query = regexp.MustCompile(`kind = "(\w+)"`)

// The runbook has a section about each kind of alarm, and none about anything else. The
// alarms link to them, and a section's query of the log looks for what its alarm counts.
func TestTheRunbookHasASectionForEachAlarm(t *testing.T) {
	all := sections(t)
	require.Contains(t, all[settling], "idemctl")
	left := maps.Clone(all)
	require.Contains(t, all[pausing], "idemctl pause")
	delete(left, settling)
	delete(left, pausing)
	ledger, _ := synth(t, func(s awscdk.Stack) { watchedLedger(t, s) })
	for _, tt := range []template{withDefaults(t).payments, withDefaults(t).orders, ledger} {
		for id, alarm := range tt.resources("AWS::CloudWatch::Alarm") {
			description, _ := at(alarm, "Properties", "AlarmDescription").(string)
			what, anchor, ok := strings.Cut(description, ". Runbook: "+infra.Runbook+"#")
			require.True(t, ok && what != "" && !strings.Contains(what, "\n"), "%s: %q", id, description)
			require.Len(t, at(alarm, "Properties", "AlarmActions"), 1, id)
			heading := name(id)[max(0, len(name(id))-len(anchor)):]
			require.Equal(t, anchor, strings.ToLower(heading), id)
			require.Contains(t, all, heading, "%s links to #%s, which is no section", id, anchor)
			require.Contains(t, all[heading], "**Meaning**", heading)
			if at(alarm, "Properties", "Namespace") == schema.MetricNamespace {
				for _, m := range query.FindAllStringSubmatch(all[heading], -1) {
					require.Equal(t, at(alarm, "Properties", "MetricName"), m[1], heading)
				}
			}
			delete(left, heading)
		}
	}
	require.Empty(t, slices.Collect(maps.Keys(left)), "no alarm links there")
}
