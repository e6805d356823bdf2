package view

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Plain writes out the characters that cannot be seen, that a terminal would obey, or that turn
// round what stands next to them, such as a right-to-left override.
func Plain(text string) string {
	var out strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || r == '\u00a0' || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, "\\u%04x", r)
	}
	return out.String()
}

// Name is [Plain] of a name on one line. It writes out the backslash, letters without a form, and all white
// space but a single space between other characters: else two names would look alike on a page.
func Name(text string) string {
	var out strings.Builder
	before := ' '
	for i, r := range text {
		single := r == ' ' && before != ' ' && i+1 < len(text)
		if single || !unicode.IsSpace(r) && !strings.ContainsRune("\\\u034f\u115f\u1160\u2800\u3164\uffa0", r) {
			out.WriteString(Plain(string(r)))
		} else {
			fmt.Fprintf(&out, "\\u%04x", r)
		}
		before = r
	}
	return out.String()
}

// Calls names the calls of a pause.
func Calls(operation, tenant string) string {
	if tenant == "" {
		return "all calls of " + Name(operation)
	}
	return "the calls of " + Name(operation) + " of tenant " + Name(tenant)
}

// At is a time, as it is copied into tickets.
func At(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Span is a length of time in its two largest units.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	d = d.Abs()
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// Ago is how far a time is from now.
func Ago(t, now time.Time) string {
	switch off := t.Sub(now); {
	case off.Abs() < time.Second:
		return "now"
	case off > 0:
		return "in " + Span(off)
	default:
		return Span(off) + " ago"
	}
}
