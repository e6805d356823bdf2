package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// filterFlags say which records a command is about.
type filterFlags struct {
	Operation []string      `placeholder:"NAME" help:"Of these operations only."`
	Tenant    []string      `placeholder:"NAME" help:"Of these tenants only."`
	NoTenant  bool          `help:"Of records without a tenant only."`
	State     []idem.State  `enum:"unknown,in_progress,released,pending,completed,failed" placeholder:"STATE" help:"In these states only: unknown, in_progress, released, pending; with --all also completed, failed."`
	Older     time.Duration `placeholder:"15m" help:"Without an outcome for longer than this only, or ended so long ago."`
	Escalated bool          `help:"Escalated by the sweep only."`
}

// check refuses states that the index does not hold, unless the whole table is read.
func (f *filterFlags) check(all bool) error {
	if f.Older < 0 {
		return misuse("--older is %v: it cannot be negative", f.Older)
	}
	for _, st := range f.State {
		if !all && (st == idem.Completed || st == idem.Failed) {
			return misuse("no index has records that are %s: use --all, which reads the whole table", st)
		}
	}
	return nil
}

func (f *filterFlags) filter(now time.Time) reconcile.Filter {
	x := reconcile.Filter{Operations: f.Operation, Tenants: f.Tenant, States: f.State, Escalated: f.Escalated}
	if f.NoTenant {
		x.Tenants = append(x.Tenants, "")
	}
	if f.Older > 0 {
		x.Before = now.Add(-f.Older)
	}
	return x
}

// allFlags let a command read the whole table, which costs what the table holds.
type allFlags struct {
	All    bool    `help:"Read the whole table, also what has ended and what is not watched. On DynamoDB it says what that costs, and asks."`
	Yes    bool    `help:"With --all: do not ask."`
	Shadow bool    `help:"With --all: also records of operations in shadow."`
	Rate   float64 `default:"500" placeholder:"UNITS" help:"With --all: at most so many read units a second, which the functions lack."`
}

func (a *allFlags) check() error {
	if a.All && a.Rate <= 0 {
		return misuse("--rate is %g: it is more than 0", a.Rate)
	}
	return nil
}

// pages are records that are read page by page. An error is the last one.
type pages = iter.Seq2[reconcile.Page, error]

// pages reads what the index holds and the filter lets through, from a page on, until there are as many records as
// the limit says; 0 is none.
func (s *session) pages(ctx context.Context, f reconcile.Filter, page string, limit int) pages {
	return func(yield func(reconcile.Page, error) bool) {
		p := s.progress()
		defer p.done()
		read, found := 0, 0
		for {
			if limit > 0 {
				f.Limit = min(limit-found, reconcile.DefaultListed) // what an interruption loses
			}
			l, err := s.records.List(ctx, f, page)
			read, found = read+l.Read, found+len(l.Records)
			p.say("read %d entries of the index, found %s", read, plural(found, "record"))
			page = l.Next
			if !yield(l, err) || err != nil || page == "" || limit > 0 && found >= limit {
				return
			}
		}
	}
}

// scan reads all records of the table that the filter lets through, in no order, after an operator
// has agreed to the price.
func (s *session) scan(ctx context.Context, f reconcile.Filter, a allFlags) pages {
	return func(yield func(reconcile.Page, error) bool) {
		items, err := s.agree(ctx, a)
		if err != nil {
			yield(reconcile.Page{}, err)
			return
		}
		p := s.progress()
		defer p.done()
		q := protocol.ScanQuery{Segments: 1}
		for looked := 0; ; {
			got, err := s.table.scanner.Scan(ctx, q)
			looked += got.Looked
			of := ""
			if items > 0 {
				of = fmt.Sprintf(" of about %d", items)
			}
			p.say("looked at %d%s items", looked, of)
			recs := slices.DeleteFunc(got.Records, func(rec *idem.Record) bool {
				_, shadow := protocol.LiveID(rec.ID)
				return shadow && !a.Shadow || protocol.IsCheckID(rec.ID) || !f.Matches(rec)
			})
			if !yield(reconcile.Page{Records: recs, Unreadable: got.Unreadable}, err) || err != nil || got.Next == "" {
				return
			}
			q.Page = got.Next
			if err := smithytime.SleepWithContext(ctx, time.Duration(got.Units/a.Rate*float64(time.Second))); err != nil {
				yield(reconcile.Page{}, err)
				return
			}
		}
	}
}

// agree says what it costs to read the whole table, and asks. It returns about how many items that are; 0 is unknown.
func (s *session) agree(ctx context.Context, a allFlags) (items int64, err error) {
	if s.table.estimate == nil {
		say(s.err, "This reads all records.")
		return 0, nil
	}
	items, bytes, err := s.table.estimate(ctx)
	if err != nil {
		return 0, fmt.Errorf("the table's size cannot be read: %w", err)
	}
	// An eventually consistent read of 4 KB is half a unit.
	units := float64(bytes) / 4096 / 2
	say(s.err, "This reads the whole table: %d items and %.1f MB as of some hours ago, about %.0f read units, "+
		"%s at %g a second.",
		items, float64(bytes)/1e6, units, view.Span(time.Duration(units/a.Rate*float64(time.Second))), a.Rate)
	if a.Yes {
		return items, nil
	}
	return items, s.ask(ctx, "Type yes to do it: ", "yes", "--yes", "read")
}

type listCmd struct {
	filterFlags
	view.Reveal
	allFlags
	Limit int    `default:"50" help:"At most so many records."`
	Page  string `placeholder:"PAGE" help:"Continue there: what the command before has printed."`
}

func (c *listCmd) check() error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	if c.All && c.Page != "" {
		return misuse("--page is not for --all: raise --limit")
	}
	return errors.Join(c.filterFlags.check(c.All), c.allFlags.check())
}

func checkLimit(limit int) error {
	if limit < 1 {
		return misuse("--limit is %d: it is 1 at least", limit)
	}
	return nil
}

func (c *listCmd) Run(ctx context.Context, s *session) error {
	pages := s.pages(ctx, c.filter(s.now()), c.Page, c.Limit)
	if c.All {
		pages = s.scan(ctx, c.filter(s.now()), c.allFlags)
	}
	found := reconcile.Page{Next: c.Page}
	var err error
	for l, failed := range pages {
		if err = failed; err != nil {
			break
		}
		found.Records = append(found.Records, l.Records...)
		found.Unreadable = append(found.Unreadable, l.Unreadable...)
		if found.Next = l.Next; len(found.Records) > c.Limit { // of all
			found.Records = found.Records[:c.Limit]
			say(s.err, "There are more than %s: raise --limit, or use export.", plural(c.Limit, "record"))
			break
		}
	}
	if err != nil && !interrupted(err) {
		return err
	}
	view.Sort(found.Records)
	if s.json() {
		all := []view.Record{}
		for _, rec := range found.Records {
			all = append(all, view.Of(rec, c.Reveal))
		}
		return errors.Join(err, s.writeJSON(struct {
			Records    []view.Record `json:"records"`
			Unreadable []string      `json:"unreadable,omitempty"`
			Next       string        `json:"next,omitempty"`
		}{all, found.Unreadable, found.Next}))
	}
	s.list(found)
	if !c.All && err == nil && len(found.Records)+len(found.Unreadable) == 0 && found.Next == "" {
		say(s.err, "What has ended, and claims that are not watched, no index has: --all reads the whole table.")
	}
	return err
}

// interrupted reports whether an operator has ended the command: what was found until then is
// still worth showing.
func interrupted(err error) bool { return errors.Is(err, context.Canceled) }

// list writes records: two lines each, since an id is copied and never cut.
func (s *session) list(l reconcile.Page) {
	now := s.now()
	for _, rec := range l.Records {
		d := view.Of(rec, view.Reveal{})
		age := "for " + view.Span(max(now.Sub(view.Since(rec)), 0)) // its writer's clock may be ahead
		switch {
		case !rec.Open() && rec.State != idem.InProgress:
			age = view.Span(now.Sub(rec.UpdatedAt)) + " ago"
		case rec.State == idem.InProgress && view.Since(rec).After(now):
			age = "lease ends in " + view.Span(view.Since(rec).Sub(now))
		}
		head := fmt.Sprintf("%s %s, attempt %d", s.state(rec.State), age, rec.Attempt)
		switch {
		case !rec.EscalatedAt.IsZero():
			head += ", escalated"
		case rec.Probes > 0:
			head += ", asked " + plural(rec.Probes, "time")
		}
		if open := d.Interrupted(); len(open) > 0 {
			head += ", interrupted in " + line(strings.Join(open, ", "))
		}
		if rec.Ref != "" {
			head += ", reference " + line(rec.Ref)
		}
		if d.Shadow {
			head += ", in shadow"
		}
		fmt.Fprintln(s.out, head)
		fmt.Fprintln(s.out, "  "+line(rec.ID))
	}
	for _, id := range l.Unreadable {
		fmt.Fprintln(s.out, "unreadable: damaged, or written by a newer version")
		fmt.Fprintln(s.out, "  "+line(id))
	}
	if len(l.Records)+len(l.Unreadable) == 0 {
		fmt.Fprintln(s.out, "No such records.")
	}
	if l.Next != "" {
		fmt.Fprintln(s.out, "There are more, and older ones may be among them: raise --limit, or go on with")
		fmt.Fprintf(s.out, "  --page '%s'\n", l.Next)
	}
}

type exportCmd struct {
	filterFlags
	allFlags
	ShowValue bool `help:"With the callers' values, if the records keep them."`
	ShowError bool `help:"With the texts of errors, which may have personal data."`
}

func (c *exportCmd) check() error { return errors.Join(c.filterFlags.check(c.All), c.allFlags.check()) }

// Run writes whole lines, also if it is interrupted.
func (c *exportCmd) Run(ctx context.Context, s *session) error {
	pages := s.pages(ctx, c.filter(s.now()), "", 0)
	if c.All {
		pages = s.scan(ctx, c.filter(s.now()), c.allFlags)
	}
	enc, written := s.encoder(), 0
	var unreadable []string
	for l, err := range pages {
		if interrupted(err) {
			return fmt.Errorf("interrupted after %s: the export is not complete", plural(written, "record"))
		}
		if err != nil {
			return err
		}
		unreadable = append(unreadable, l.Unreadable...)
		for _, rec := range l.Records {
			written++
			if err := enc.Encode(view.Of(rec, view.Reveal{ShowValue: c.ShowValue, ShowError: c.ShowError})); err != nil {
				return err
			}
		}
	}
	say(s.err, "%s written.", plural(written, "record"))
	for _, id := range unreadable {
		say(s.err, "%s is unreadable: damaged, or written by a newer version.", line(id))
	}
	if len(unreadable) > 0 {
		return fmt.Errorf("%s could not be read", plural(len(unreadable), "record"))
	}
	return nil
}
