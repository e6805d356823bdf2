package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
)

type ledgerCmd struct {
	File string `arg:"" help:"The provider's export: CSV with a header, or JSON lines; - is the standard input."`

	Operation string `required:"" placeholder:"NAME" help:"The operation whose records are compared, of all tenants."`
	Day       string `placeholder:"2026-03-01" help:"The day that is compared; else yesterday."`
	TimeZone  string `default:"UTC" placeholder:"NAME" help:"Where the provider's days begin, such as Europe/Berlin; also of times without a zone."`
	Step      string `placeholder:"NAME" help:"The step that sends the request, with its token; else the operation's token is compared."`

	TokenColumn string   `placeholder:"COLUMN" help:"Column with the token that was sent."`
	RefColumn   string   `placeholder:"COLUMN" help:"Column with what the provider calls the effect."`
	TimeColumn  string   `required:"" placeholder:"COLUMN" help:"Column with the time of the request: 2026-03-01T12:00:00Z, 2026-03-01 12:00:00, or seconds since 1970."`
	ValueColumn []string `placeholder:"COLUMN" help:"Columns that are compared, joined with a space, such as amount,currency."`
	ResultValue []string `placeholder:"POINTER" help:"Where the result has the same, as JSON pointers, such as /amount,/currency; over HTTP in the response's body."`
	StateColumn string   `placeholder:"COLUMN" help:"Column with the state."`
	State       []string `placeholder:"STATE" help:"With --state-column: rows in another state have had no effect, and are left out."`

	Limit int     `default:"50" help:"Show at most so many findings; with -o json all are written."`
	Yes   bool    `help:"Do not ask before the whole table is read."`
	Rate  float64 `default:"500" placeholder:"UNITS" help:"At most so many read units a second, which the functions lack."`

	date time.Time
	zone *time.Location
}

// errDiffers says that the two sides differ: nothing has failed.
var errDiffers = errors.New("there are differences")

func (c *ledgerCmd) check() (err error) {
	if c.zone, err = time.LoadLocation(c.TimeZone); err != nil {
		return misuse("--time-zone is %q: use a name such as Europe/Berlin", c.TimeZone)
	}
	if c.Day != "" {
		if c.date, err = time.Parse(time.DateOnly, c.Day); err != nil {
			return misuse("--day is %q: use a day such as 2026-03-01", c.Day)
		}
	}
	for _, pointer := range c.ResultValue {
		if err := idem.CheckPointer(pointer); err != nil {
			return misuse("--result-value: %v", err)
		}
	}
	switch {
	case c.TokenColumn == "" && c.RefColumn == "":
		return misuse("name the column by which rows belong to records: --token-column, --ref-column or both")
	case len(c.ValueColumn) != len(c.ResultValue):
		return misuse("--value-column has %d and --result-value %d: each column is compared with a pointer, so give as many",
			len(c.ValueColumn), len(c.ResultValue))
	case len(c.State) > 0 && c.StateColumn == "":
		return misuse("--state is of a column: name it with --state-column")
	case c.File == "-" && !c.Yes:
		return misuse("the standard input is the export, and cannot answer a question too: use --yes, or a file")
	}
	return errors.Join(checkLimit(c.Limit), (&allFlags{All: true, Rate: c.Rate}).check())
}

// Run compares a day. Its findings are JSON lines, or a table of the first ones.
func (c *ledgerCmd) Run(ctx context.Context, s *session) error {
	if c.Day == "" {
		y, m, d := s.now().In(c.zone).Date()
		c.date = time.Date(y, m, d-1, 0, 0, 0, 0, time.UTC)
	}
	from, to := ledger.Day(c.date.Year(), c.date.Month(), c.date.Day(), c.zone)
	file, err := openExport(c.File, s.in, c.columns())
	if err != nil {
		return err
	}
	defer file.close()
	if _, err := s.agree(ctx, allFlags{All: true, Yes: c.Yes, Rate: c.Rate}); err != nil {
		return err
	}
	known := 0
	l, err := ledger.New(s.table.scanner, ledger.Options{
		Operation: c.Operation, Rate: c.Rate, Now: s.now, Expect: c.expect, Distinct: true,
		Entries: func(context.Context, time.Time, time.Time) iter.Seq2[ledger.Entry, error] {
			return c.entries(file, from, to)
		},
		Token: func(rec *protocol.Record) string { // of each record of the operation, of any day
			known++
			return protocol.Token(rec.ID, c.Step)
		},
	})
	if err != nil {
		return err
	}
	found, more := newTable(s.out), 0
	found.AppendHeader(table.Row{"finding", "reference", "here", "there", "record"})
	write := ledger.Lines(escaped{s.out})
	report, err := l.Compare(ctx, from, to, func(f ledger.Finding) error {
		switch {
		case f.Kind == ledger.Complete && (known == 0 || !s.json()):
		case s.json():
			return write(f)
		case found.Length() == c.Limit:
			more++
		default:
			found.AppendRow(c.row(f))
		}
		return nil
	})
	if err == nil && known == 0 {
		err = fmt.Errorf("nothing was compared, since the table has no record of operation %q: look at the name of the "+
			"operation and the table, or the records have expired", c.Operation)
	}
	if err != nil {
		return err
	}
	if !s.json() {
		if found.Length() > 0 {
			found.Render()
		}
		c.summary(s, report, more)
	}
	if report.Differences() > 0 {
		return errDiffers
	}
	return nil
}

// row is a finding in a line. Only the id at its end, which is copied, may be wide.
func (c *ledgerCmd) row(f ledger.Finding) table.Row {
	side := func(e *ledger.Entry, state string) string {
		if e == nil {
			return "-"
		}
		return cmp.Or(line(strings.TrimSpace(state+" "+e.Value)), "-")
	}
	ref := ""
	for _, e := range []*ledger.Entry{f.There, f.Here} {
		if e != nil && ref == "" {
			ref = line(cmp.Or(e.Ref, e.Token))
		}
	}
	there := ""
	if f.There != nil {
		there = f.There.State
	}
	record := line(f.Record)
	if f.FirstRecord != "" {
		record += ", and " + line(f.FirstRecord)
	}
	return table.Row{f.Kind, cmp.Or(ref, "-"), side(f.Here, string(f.RecordState)), side(f.There, there),
		cmp.Or(record, "-")}
}

func (c *ledgerCmd) summary(s *session, r ledger.Report, more int) {
	if more > 0 {
		say(s.out, "There are %s more: raise --limit, or use -o json.", plural(more, "finding"))
	}
	say(s.out, "%s of %s: %s and %s, %d compared, %s.", c.date.Format(time.DateOnly), line(c.Operation),
		plural(r.Entries, "entry"), plural(r.Records, "record"), r.Compared, plural(r.Differences(), "difference"))
	if r.Open > 0 {
		say(s.out, "Open, which is no difference: %s.", plural(r.Open, "record"))
	}
	if r.Undecided > 0 {
		say(s.out, "Undecided, since their attempts began more than a day before: %s.", plural(r.Undecided, "record"))
	}
	if r.Ignored > 0 {
		say(s.out, "Of another day, and not compared: %s.", plural(r.Ignored, "row"))
	}
	if r.Unread > 0 {
		say(s.out, "Unread, since their results cannot be read or lack what --result-value names: %s.",
			plural(r.Unread, "record"))
	}
}

// expect is what a record says: a response with an error has had no effect.
func (c *ledgerCmd) expect(ctx context.Context, rec ledger.Record) (x ledger.Expected, err error) {
	if x.Effect = rec.State == idem.Completed; !x.Effect {
		return x, nil
	}
	http := view.OverHTTP(rec.Codec)
	if !http && len(c.ResultValue) == 0 {
		return x, nil
	}
	body, err := rec.Result(ctx)
	if err != nil {
		return x, err
	}
	if http {
		res, err := idemhttp.Decode(protocol.Encoded{Body: body, Codec: rec.Codec})
		if err != nil {
			return x, err
		}
		if x.Effect, body = res.Status < 400, res.Body; !x.Effect {
			return x, nil
		}
	}
	if len(c.ResultValue) == 0 {
		return x, nil
	}
	values, err := idem.ValuesAt(body, "result", c.ResultValue...)
	if err != nil {
		return x, fmt.Errorf("%w: %w", idem.ErrRecordUnreadable, err)
	}
	x.Value = joined(values)
	return x, nil
}
