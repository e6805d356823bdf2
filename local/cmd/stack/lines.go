package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// line is one request of the tour: what was expected and what came.
type line struct {
	request, expected, got string
	calls                  int64 // DynamoDB calls
	took                   time.Duration
}

// pageWidth is the table's width, in columns.
const pageWidth = 100

// errDiffers says that a line of the tour differs from the expected one.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// printLines prints the results. If a line differs, the expected value is below it in full, and the error is errDiffers.
func printLines(out io.Writer, lines []line) (err error) {
	var b strings.Builder
	const row = "%-2s  %-39s  %-37s  %5v  %9v\n"
	fmt.Fprintf(&b, "\n"+row, "", "request", "what came", "calls", "time")
	b.WriteString(strings.Repeat("─", pageWidth) + "\n")
	for _, l := range lines {
		result := "ok"
		if l.got != l.expected {
			result, err = "NO", errDiffers
		}
		fmt.Fprintf(&b, row, result, shorten(l.request, 39), shorten(l.got, 37), l.calls, l.took.Round(100*time.Microsecond))
		if l.got != l.expected {
			fmt.Fprintf(&b, "    expected:  %s\n    got:       %s\n", l.expected, l.got)
		}
	}
	b.WriteString("calls: what the request cost in calls to DynamoDB\n")
	_, failed := io.WriteString(out, b.String())
	return cmp.Or(failed, err)
}

// shorten cuts a text for one line of a table.
func shorten(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}
