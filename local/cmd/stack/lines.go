package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// line is one request of the tour: what was expected and what came.
type line struct {
	request, expected, got string
	calls                  int64 // DynamoDB calls; negative if others were on the wire too
	took                   time.Duration
}

func (l line) ok() bool { return l.expected == l.got }

// pageWidth is the table's greatest width, in columns.
const pageWidth = 100

// printLines prints the results. If a line differs, the expected value is below it in full.
func printLines(out io.Writer, lines []line) error {
	var b strings.Builder
	b.WriteByte('\n')
	const row = "%-2s  %-39s  %-37s  %5s  %9s\n"
	fmt.Fprintf(&b, row, "", "request", "what came", "calls", "time")
	b.WriteString(strings.Repeat("─", pageWidth) + "\n")
	for _, l := range lines {
		mark := "ok"
		if !l.ok() {
			mark = "NO"
		}
		calls := fmt.Sprint(l.calls)
		if l.calls < 0 {
			calls = "-"
		}
		fmt.Fprintf(&b, row, mark, shorten(l.request, 39), shorten(l.got, 37), calls, l.took.Round(100*time.Microsecond))
		if !l.ok() {
			below(&b, "expected", l.expected)
			below(&b, "got", l.got)
		}
	}
	b.WriteString("calls: what the request cost in calls to DynamoDB\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// below writes a text under a line of the table.
func below(b *strings.Builder, name, s string) {
	const indent = 15
	label := fmt.Sprintf("    %-*s", indent-4, name+":")
	for part := range strings.SplitSeq(text.WrapSoft(strings.Join(strings.Fields(s), " "), pageWidth-indent), "\n") {
		b.WriteString(strings.TrimRight(label+part, " ") + "\n")
		label = strings.Repeat(" ", indent)
	}
}

// shorten cuts a text for one line of a table.
func shorten(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}
