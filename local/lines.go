package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// line is one request of the tour: what was expected and what came.
type line struct {
	request, expected, got string
	calls                  int64 // DynamoDB calls; negative if others were on the wire too
	took                   time.Duration
}

func (l line) ok() bool { return l.expected == l.got }

func printLines(out io.Writer, lines []line) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\n\trequest\texpected\tgot\tDynamoDB calls\ttime")
	fmt.Fprintln(w, "\t"+strings.Repeat("-\t", 5))
	for _, l := range lines {
		mark := "ok"
		if !l.ok() {
			mark = "NO"
		}
		calls := fmt.Sprint(l.calls)
		if l.calls < 0 {
			calls = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%v\n", mark, l.request, l.expected, l.got, calls, l.took.Round(100*time.Microsecond))
	}
	return w.Flush()
}
