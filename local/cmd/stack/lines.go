package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
)

// line is one request of the tour: what was expected and what came.
type line struct {
	request, expected, got string
	calls                  int64 // DynamoDB calls; negative if others were on the wire too
	took                   time.Duration
}

func (l line) ok() bool { return l.expected == l.got }

const (
	// pageWidth is how wide the table is at most, in columns.
	pageWidth = 100
	// Widths of the columns for texts.
	requestWidth, gotWidth = 39, 37
)

// printLines prints what came. What was expected is said only where it differs, below
// the line and in full.
func printLines(out io.Writer, lines []line) error {
	var b strings.Builder
	row := func(mark, request, got, calls, took string) {
		fmt.Fprintf(&b, "%-2s  %s  %s  %5s  %9s\n", mark, column(request, requestWidth), column(got, gotWidth), calls, took)
	}
	b.WriteByte('\n')
	row("", "request", "what came", "calls", "time")
	b.WriteString(strings.Repeat("─", 2+2+requestWidth+2+gotWidth+2+5+2+9) + "\n")
	for _, l := range lines {
		mark := "ok"
		if !l.ok() {
			mark = "NO"
		}
		calls := fmt.Sprint(l.calls)
		if l.calls < 0 {
			calls = "-"
		}
		row(mark, l.request, l.got, calls, l.took.Round(100*time.Microsecond).String())
		if !l.ok() {
			below(&b, "expected", l.expected)
			below(&b, "got", l.got)
		}
	}
	b.WriteString("calls: what the request cost in calls to DynamoDB\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// column is a text in a column of this width, cut if it is longer.
func column(s string, width int) string {
	s = shorten(s, width)
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
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
