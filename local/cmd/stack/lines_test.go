package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// requireFits: a table that wraps in the terminal cannot be read.
func requireFits(t *testing.T, printed string) {
	for line := range strings.Lines(printed) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), pageWidth, line)
	}
}

func TestTableOfTheTour(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printLines(&out, []line{
		{"first request", "201 executed", "201 executed", 2, 84200 * time.Microsecond},
		{"50 at once", "1 executed", "1 executed", -1, 12 * time.Second},
		{"retry", "409 outcome_unknown", "201 executed", 3, time.Millisecond},
	}))
	require.Equal(t, `
    request                                  what came                              calls       time
────────────────────────────────────────────────────────────────────────────────────────────────────
ok  first request                            201 executed                               2     84.2ms
ok  50 at once                               1 executed                                 -        12s
NO  retry                                    201 executed                               3        1ms
    expected:  409 outcome_unknown
    got:       201 executed
calls: what the request cost in calls to DynamoDB
`, out.String())
}

// TestNothingIsTooWideForTheTable: not an error of several lines, nor a text without
// spaces. A difference is said in full.
func TestNothingIsTooWideForTheTable(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("a refusal that goes on ×\n", 20))
	solid := strings.Repeat("×", 300)
	var out strings.Builder
	require.NoError(t, printLines(&out, []line{
		{long, "201 executed", long, 99999, 100 * time.Second}, {solid, solid, solid + "x", 1, time.Hour},
	}))
	requireFits(t, out.String())
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	for _, text := range []string{long, solid + "x"} {
		require.Contains(t, squeeze(out.String()), "got:"+squeeze(text))
	}
}
