package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
)

// width is the columns that the output keeps to; only ids and what has no space may be
// longer, since they are copied.
const width = 80

// print writes the value as JSON, or what text writes.
func (s *session) print(v any, text func()) error {
	if s.json() {
		return s.writeJSON(v)
	}
	text()
	return nil
}

// writeJSON writes one value as indented JSON.
func (s *session) writeJSON(v any) error {
	enc := s.encoder()
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// encoder writes values as JSON, a line each.
func (s *session) encoder() *json.Encoder {
	enc := json.NewEncoder(escaped{s.out})
	enc.SetEscapeHTML(false)
	return enc
}

// escaped writes JSON with what a terminal would obey as \u and four digits: others wrote it, and
// package json leaves the controls above U+007F and those of directions as they are.
type escaped struct{ io.Writer }

// Write takes a whole value, as a json.Encoder writes it.
func (w escaped) Write(p []byte) (int, error) {
	safe := make([]byte, 0, len(p))
	for _, r := range string(p) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
	}
	if _, err := w.Writer.Write(safe); err != nil {
		return 0, err
	}
	return len(p), nil
}

// newTable draws no lines, so that columns are easy to cut.
func newTable(out io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatUpper
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	t.SuppressTrailingSpaces()
	return t
}

// paint colours a text, if the output takes colours.
func (s *session) paint(c text.Color, what string) string {
	if !s.colour {
		return what
	}
	return c.EscapeSeq() + what + text.Reset.EscapeSeq()
}

// state is a state in its colour: red needs an operator, yellow may, green does not.
func (s *session) state(st idem.State) string {
	switch st {
	case idem.Unknown:
		return s.paint(text.FgRed, string(st))
	case idem.Completed:
		return s.paint(text.FgGreen, string(st))
	}
	return s.paint(text.FgYellow, cmp.Or(string(st), "absent"))
}

// field writes a name and what it is.
func (s *session) field(name, format string, args ...any) {
	s.hang(fmt.Sprintf("%-14s", name), fmt.Sprintf(format, args...))
}

func (s *session) item(what string) { s.hang("  - ", what) }

// hang writes a text behind its head, with the lines after the first indented.
func (s *session) hang(head, text string) {
	for _, line := range wrap(text, width-len(head)) {
		fmt.Fprintln(s.out, strings.TrimRight(head+line, " "))
		head = strings.Repeat(" ", len(head))
	}
}

func say(w io.Writer, format string, args ...any) {
	for _, line := range wrap(fmt.Sprintf(format, args...), width) {
		fmt.Fprintln(w, line)
	}
}

// wrap breaks a text between words into lines of at most so many columns.
func wrap(what string, columns int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(what) {
		if line != "" && text.StringWidthWithoutEscSequences(line+" "+word) > columns {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// when is a time and how far off it is.
func when(t, now time.Time) string { return view.At(t) + " (" + view.Ago(t, now) + ")" }

// line is view.Plain for what must stay on one line.
func line(what string) string { return strings.Join(strings.Fields(view.Plain(what)), " ") }

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if stem, ok := strings.CutSuffix(one, "y"); ok {
		one = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// tenantOr is a tenant's name.
func tenantOr(tenant string) string { return view.Name(cmp.Or(tenant, "(none)")) }

// progress says on a terminal how far a long read is. Elsewhere it says nothing.
type progress struct {
	s           *session
	began, last time.Time
	shown       bool
}

// Reads shorter than patience say nothing.
const (
	patience = time.Second
	pace     = 200 * time.Millisecond
)

func (s *session) progress() *progress { return &progress{s: s, began: time.Now()} }

func (p *progress) say(format string, args ...any) {
	now := time.Now()
	if !p.s.watched || now.Sub(p.began) < patience || now.Sub(p.last) < pace {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprintf(p.s.err, "\r\x1b[K"+format, args...)
}

// done takes the line away.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.s.err, "\r\x1b[K")
	}
}
