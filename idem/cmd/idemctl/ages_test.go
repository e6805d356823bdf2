package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The age of a duplicate is counted from where the execution began that it repeats, in whatever
// order the lines are read.
func TestReportHasTheAgesOfDuplicates(t *testing.T) {
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	said := func(kind, record string, after, elapsed time.Duration) string {
		return fmt.Sprintf(`{"time":%q,"kind":%q,"record":"acme#refund#%s#shadow","operation":"refund","elapsed":%d,"state":"completed"}`,
			begin.Add(after).Format(time.RFC3339Nano), kind, record, elapsed)
	}
	run := func(record string, after, elapsed time.Duration) string {
		return said("shadow_executed", record, after+elapsed, elapsed)
	}
	again := func(record string, after time.Duration) string { return said("shadow_duplicate", record, after, 0) }
	hour, day := time.Hour, 24*time.Hour
	for name, tc := range map[string]struct {
		lines []string
		want  ages
	}{
		"none":                   {[]string{run("a", 0, 0), run("b", hour, 0)}, ages{}},
		"beside it":              {[]string{run("a", 0, hour), again("a", 10*time.Second)}, ages{Minute: 1, Longest: 10}},
		"of each range":          {[]string{run("a", 0, time.Second), again("a", time.Minute), again("a", hour), again("a", day), again("a", time.Minute-1e6)}, ages{Minute: 1, Hour: 1, Day: 1, Later: 1, Longest: 86400}},
		"of the later execution": {[]string{run("a", 0, 0), run("a", day, 0), again("a", day+hour)}, ages{Day: 1, Longest: 3600}},
		"of another record":      {[]string{run("b", 0, 0), again("a", hour)}, ages{Unknown: 1}},
		"of a later record":      {[]string{run("a", day, 0), again("a", hour)}, ages{Unknown: 1}},
		"by another clock":       {[]string{run("a", time.Second, 0), again("a", 0)}, ages{Minute: 1}},
		"without a time":         {[]string{run("a", 0, 0), strings.Replace(again("a", hour), "time", "when", 1)}, ages{Unknown: 1}},
		"without a duration":     {[]string{strings.Replace(run("a", 0, 0), "elapsed", "took", 1), again("a", hour)}, ages{Unknown: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				var r report
				require.NoError(t, json.Unmarshal([]byte(reported(t, strings.Join(tc.lines, "\n"))), &r))
				require.Equal(t, tc.want, r.Operations[0].Ages)
				require.Equal(t, tc.want, r.Total.Ages)
				slices.Reverse(tc.lines)
			}
			var out, errs bytes.Buffer
			term := &terminal{in: strings.NewReader(strings.Join(tc.lines, "\n")), out: &out, err: &errs}
			code := runTo(t.Context(), []string{"report"}, term, world{clock: time.Now})
			require.Equal(t, exitDone, code, errs.String())
			require.Equal(t, tc.want != (ages{}), strings.Contains(out.String(), "Duplicates by how long after"))
		})
	}
}
