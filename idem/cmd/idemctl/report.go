package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/notice"
)

// reportCmd adds up the log of operations in shadow. It needs no table.
type reportCmd struct {
	Files []string `arg:"" optional:"" name:"file" help:"Log files; none or - reads the standard input."`

	WritePrice float64 `default:"0.625" placeholder:"DOLLARS" help:"Dollars for a million write request units (${default} in us-east-1)."`
	Top        int     `default:"10" help:"Show at most so many reused keys, refusals and tenants."`
	ShowError  bool    `help:"Show the texts of errors of the service's own functions."`
}

// Write request units of a call in live mode, with a result of 1 KB, as measured for
// infra/cost: of a first execution of a repeatable operation and of another one, and of the
// answers that take none.
const (
	unitsFirst, unitsFirstWatched = 3, 5
	unitsReplay, unitsFailure     = 2, 1
	unitsInFlight, unitsUnknown   = 1, 1
	unitsReused                   = 2
)

// report is what the log says.
type report struct {
	From       time.Time      `json:"from,omitzero"`
	To         time.Time      `json:"to,omitzero"`
	Operations []*observedOp  `json:"operations"`
	Refused    []counted      `json:"refused"`
	Reused     []counted      `json:"reused"`
	Senders    []counted      `json:"refused_tenants"`
	Tenants    []counted      `json:"tenants_with_duplicates"`
	Total      observedOp     `json:"total"`
	More       map[string]int `json:"not_shown,omitempty"`
}

// observedOp counts the calls of an operation by what would have been answered.
type observedOp struct {
	Operation string `json:"operation,omitempty"`
	Calls     int    `json:"calls"`
	Executed  int    `json:"executed"`
	Replayed  int    `json:"replayed"`
	InFlight  int    `json:"in_flight"`
	Unknown   int    `json:"outcome_unknown"`
	Reused    int    `json:"key_reused"`
	Refused   int    `json:"refused"`
	// Unobserved: the store was not to be reached. Opened: an attempt that would have become an
	// open question.
	Unobserved int `json:"unobserved"`
	Opened     int `json:"open_questions"`
	// Ages of the duplicates: of those replayed, in flight and of unknown outcome.
	Ages ages `json:"duplicate_ages"`

	// Of these calls in live mode, by the declaration.
	Units                 int     `json:"units_if_repeatable"`
	UnitsNotRepeatable    int     `json:"units_if_not_repeatable"`
	PerMillion            float64 `json:"dollars_per_million_calls_if_repeatable"`
	PerMillionNotRepeated float64 `json:"dollars_per_million_calls_if_not_repeatable"`
}

// counted is one of several things of a kind.
type counted struct {
	What      string `json:"what"`
	Operation string `json:"operation,omitempty"`
	Count     int    `json:"count"`
}

// logLine is what the observer of idem.LogTo logs of a call in shadow.
type logLine struct {
	Time      json.RawMessage `json:"time"`
	Timestamp json.RawMessage `json:"timestamp"` // as lambdacontext.NewLogger calls it
	Kind      notice.Kind     `json:"kind"`
	Record    string          `json:"record"`
	Operation string          `json:"operation"`
	Tenant    string          `json:"tenant"`
	State     idem.State      `json:"state"`
	Error     string          `json:"error"`
	Elapsed   json.RawMessage `json:"elapsed"`
	Message   json.RawMessage `json:"message"`
}

// Run runs the command.
func (c *reportCmd) Run(ctx context.Context, s *session) error {
	switch {
	case !(c.WritePrice >= 0) || math.IsInf(c.WritePrice, 0):
		return misuse("--write-price is %v: it is a price in dollars, such as 0.625", c.WritePrice)
	case c.Top < 1:
		return misuse("--top is %d: it is 1 at least", c.Top)
	case len(c.Files) == 0 && s.asks:
		return misuse("there is no log: name its files, or pipe it in")
	case len(c.Files) == 0:
		c.Files = []string{"-"}
	}
	t := tally{showError: c.ShowError, operations: map[string]*observedOp{}, refused: map[counted]int{}, reused: map[counted]int{}, tenants: map[counted]int{}, senders: map[counted]int{}}
	for _, name := range c.Files {
		if err := t.file(ctx, s, name); err != nil {
			return err
		}
	}
	if t.from.IsZero() && len(t.operations) == 0 {
		return fmt.Errorf("none of %s is of a call in shadow: the log must have the JSON lines of slog's handler, at info level, of an operation with Shadow set",
			plural(t.lines, "line"))
	}
	r := t.report(c)
	if s.json() {
		return s.writeJSON(r)
	}
	s.report(r, c)
	return nil
}

// undeclared is the operation of requests whose route has none.
const undeclared = string(idemhttp.CodeUndeclared)

// code is a refusal by the contract of package idemhttp, with its route.
var code = regexp.MustCompile(`^[a-z_]+( at [A-Z]+ \S*)?$`)

// tally adds up lines.
type tally struct {
	showError                         bool
	from, to                          time.Time
	lines                             int
	operations                        map[string]*observedOp
	refused, reused, tenants, senders map[counted]int
	executions                        []moment
	duplicates                        []repeated
}

// file reads a log.
func (t *tally) file(ctx context.Context, s *session, name string) error {
	in := s.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was read
		in = f
	}
	b := bufio.NewReaderSize(interruptible{ctx, in}, 64<<10)
	for {
		raw, err := b.ReadBytes('\n')
		if len(bytes.TrimSpace(raw)) > 0 {
			t.lines++
			t.line(raw)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// line counts a line, if it is of a call in shadow. What stands before its JSON, such as a
// time and a stream's name, does not count. In an export the line is a member of another one.
func (t *tally) line(raw []byte) {
	i := bytes.IndexByte(raw, '{')
	if i < 0 {
		return
	}
	var l logLine
	if json.NewDecoder(bytes.NewReader(raw[i:])).Decode(&l) != nil {
		return
	}
	if l.Kind == "" && len(l.Message) > 0 {
		inner := l.Message
		var said string
		if json.Unmarshal(inner, &said) == nil {
			inner = []byte(said)
		}
		if l = (logLine{}); json.Unmarshal(inner, &l) != nil {
			return
		}
	}
	t.count(&l)
}

// at is when the line was written; zero if it has no time.
func (l *logLine) at() (at time.Time) {
	for _, raw := range []json.RawMessage{l.Time, l.Timestamp} {
		if json.Unmarshal(raw, &at) == nil && !at.IsZero() {
			return at.UTC()
		}
	}
	return time.Time{}
}

func (t *tally) count(l *logLine) {
	switch l.Kind {
	case notice.ShadowExecuted, notice.ShadowDuplicate, notice.ShadowReused, notice.ShadowRefused, notice.ShadowUnobserved:
	default:
		return
	}
	if at := l.at(); !at.IsZero() {
		if t.from.IsZero() || at.Before(t.from) {
			t.from = at
		}
		if at.After(t.to) {
			t.to = at
		}
	}
	op := t.operations[l.Operation]
	if op == nil {
		op = &observedOp{Operation: l.Operation}
		t.operations[l.Operation] = op
	}
	op.Calls++
	tenant, _ := namesOf(l.Record)
	switch l.Kind {
	case notice.ShadowExecuted:
		op.Executed++
		t.execution(l)
		op.Units += unitsFirst
		op.UnitsNotRepeatable += unitsFirstWatched
		if l.State == idem.Unknown {
			op.Opened++
		}
		return
	case notice.ShadowUnobserved:
		op.Unobserved++
		op.Units += unitsFirst
		op.UnitsNotRepeatable += unitsFirstWatched
		return
	case notice.ShadowRefused:
		op.Refused++
		what := l.Error
		if !t.showError && !code.MatchString(what) {
			what = "an error of its own (--show-error)"
		}
		t.refused[counted{What: what, Operation: l.Operation}]++
		if l.Tenant != "" {
			t.senders[counted{What: l.Tenant}]++
		}
		return
	}
	units := unitsReused
	switch {
	case l.Kind == notice.ShadowReused:
		op.Reused++
		t.reused[counted{What: l.Record, Operation: l.Operation}]++
	case l.State == idem.InProgress:
		op.InFlight++
		units = unitsInFlight
	case l.State == idem.Unknown:
		op.Unknown++
		units = unitsUnknown
	case l.State == idem.Failed:
		op.Replayed++
		units = unitsFailure
	default:
		op.Replayed++
		units = unitsReplay
	}
	op.Units += units
	op.UnitsNotRepeatable += units
	if l.Kind == notice.ShadowDuplicate {
		t.tenants[counted{What: tenant}]++
		t.duplicate(l, op)
	}
}

func (t *tally) report(c *reportCmd) report {
	r := report{From: t.from, To: t.to, More: map[string]int{}}
	t.age()
	r.Operations = slices.SortedFunc(maps.Values(t.operations), func(a, b *observedOp) int { return cmp.Compare(a.Operation, b.Operation) })
	for _, op := range r.Operations {
		op.price(c.WritePrice)
		sum := &r.Total
		for _, add := range [][2]*int{
			{&sum.Calls, &op.Calls}, {&sum.Executed, &op.Executed}, {&sum.Replayed, &op.Replayed}, {&sum.InFlight, &op.InFlight},
			{&sum.Unknown, &op.Unknown}, {&sum.Reused, &op.Reused}, {&sum.Refused, &op.Refused}, {&sum.Unobserved, &op.Unobserved},
			{&sum.Opened, &op.Opened}, {&sum.Units, &op.Units}, {&sum.UnitsNotRepeatable, &op.UnitsNotRepeatable},
		} {
			*add[0] += *add[1]
		}
		sum.Ages.add(op.Ages)
	}
	r.Total.price(c.WritePrice)
	r.Refused = r.top("refused", t.refused, c.Top)
	r.Reused = r.top("reused", t.reused, c.Top)
	r.Senders = r.top("refused_tenants", t.senders, c.Top)
	r.Tenants = r.top("tenants_with_duplicates", t.tenants, c.Top)
	return r
}

func (op *observedOp) price(write float64) {
	per := func(units int) float64 { return math.Round(float64(units)/float64(op.Calls)*write*1e4) / 1e4 }
	op.PerMillion, op.PerMillionNotRepeated = per(op.Units), per(op.UnitsNotRepeatable)
}

// top are the most frequent ones.
func (r *report) top(name string, of map[counted]int, n int) []counted {
	all := make([]counted, 0, len(of))
	for c, count := range of {
		c.Count = count
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.What, b.What))
	})
	if len(all) > n {
		r.More[name], all = len(all)-n, all[:n]
	}
	return all
}

// report writes it for people.
func (s *session) report(r report, c *reportCmd) {
	t := &r.Total
	when := ""
	if !r.From.IsZero() {
		when = " from " + at(r.From) + " to " + at(r.To)
	}
	say(s.out, "%s in shadow%s. In live mode:", plural(t.Calls, "call"), when)
	fmt.Fprintln(s.out)
	w := newTable(s.out)
	w.AppendHeader(table.Row{"operation", "calls", "run", "replay", "inflight", "unknown", "reused", "refused", "unseen"})
	for _, op := range r.Operations {
		name := op.Operation
		if name == undeclared {
			name = "(undeclared)"
		}
		w.AppendRow(table.Row{text.Trim(line(name), 16), op.Calls, op.Executed, op.Replayed, op.InFlight, op.Unknown, op.Reused, op.Refused, op.Unobserved})
	}
	w.Render()
	fmt.Fprintln(s.out)
	say(s.out, "%s would have been prevented: %s, %d beside another attempt in flight, %d after one of unknown outcome.",
		plural(t.Replayed+t.InFlight+t.Unknown, "execution"), plural(t.Replayed, "replay"), t.InFlight, t.Unknown)
	if t.Opened > 0 {
		say(s.out, "%s would have become open, for somebody to resolve: attempts that may have taken effect, of operations that are not repeatable.", plural(t.Opened, "question"))
	}
	if t.Unobserved > 0 {
		say(s.out, "Not seen: %s, since the store was not to be reached in time, or the body was left to the handler unread. Their units count as those of a first one.", plural(t.Unobserved, "call"))
	}
	s.ages(r.Operations)
	s.counted("Would have been refused", r.Refused, r.More["refused"], func(c counted) string { return line(c.Operation) + ": " + line(c.What) })
	s.counted("Refusals by tenant, where it is known", r.Senders, r.More["refused_tenants"], func(c counted) string { return tenantOr(c.What) })
	s.counted("Keys that came with another input (records of shadow)", r.Reused, r.More["reused"], func(c counted) string { return line(c.What) })
	s.counted("Duplicates by tenant", r.Tenants, r.More["tenants_with_duplicates"], func(c counted) string { return tenantOr(c.What) })
	fmt.Fprintln(s.out)
	say(s.out, "In live mode these calls take %d write units if all operations are repeatable, %d if none is. A million such calls cost $%.2f to $%.2f, at $%g for a million units, with results of 1 KB.",
		t.Units, t.UnitsNotRepeatable, t.PerMillion, t.PerMillionNotRepeated, c.WritePrice)
}

// counted writes a list, if there is one.
func (s *session) counted(head string, all []counted, more int, what func(counted) string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(s.out, "\n%s:\n", head)
	for _, c := range all {
		fmt.Fprintf(s.out, "%6d  %s\n", c.Count, what(c))
	}
	if more > 0 {
		fmt.Fprintf(s.out, "        and %d more: raise --top\n", more)
	}
}
