package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
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

// indexed refuses states of which the index has none.
func (f *filterFlags) indexed() error {
	for _, st := range f.State {
		if st == idem.Completed || st == idem.Failed {
			return misuse("no index has records that are %s: use --all, which reads the whole table", st)
		}
	}
	return nil
}

func (f *filterFlags) filter(now time.Time) (reconcile.Filter, error) {
	if f.Older < 0 {
		return reconcile.Filter{}, misuse("--older is %v: it cannot be negative", f.Older)
	}
	x := reconcile.Filter{Operations: f.Operation, Tenants: f.Tenant, States: f.State, Escalated: f.Escalated}
	if f.NoTenant {
		x.Tenants = append(x.Tenants, "")
	}
	if f.Older > 0 {
		x.Before = now.Add(-f.Older)
	}
	return x, nil
}

type listCmd struct {
	filterFlags
	view.Reveal
	allFlags
	Limit int    `default:"50" help:"At most so many records."`
	Page  string `placeholder:"PAGE" help:"Continue there: what the command before has printed."`
}

func (c *listCmd) Run(ctx context.Context, s *session) error {
	if c.Limit < 1 {
		return misuse("--limit is %d: it is 1 at least", c.Limit)
	}
	if c.All && c.Page != "" {
		return misuse("--page is not for --all: raise --limit")
	}
	if !c.All {
		if err := c.indexed(); err != nil {
			return err
		}
	}
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	f, err := c.filter(s.now())
	if err != nil {
		return err
	}
	var found reconcile.Page
	if c.All {
		found, err = s.collectAll(ctx, b, f, c.allFlags, c.Limit)
	} else {
		found, err = s.collect(ctx, r, f, c.Page, c.Limit)
	}
	if err != nil && !interrupted(err) {
		return err
	}
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

// interrupted reports whether somebody has ended the command: what was found until then is
// still worth showing.
func interrupted(err error) bool { return errors.Is(err, context.Canceled) }

// collect reads pages until there are enough records, or no more. An error leaves what was
// found before, and the page to continue with.
func (s *session) collect(ctx context.Context, r *reconcile.Reconciler, f reconcile.Filter, page string, limit int) (reconcile.Page, error) {
	all := reconcile.Page{Next: page}
	p := s.progress()
	defer p.done()
	for {
		f.Limit = min(limit-len(all.Records), reconcile.DefaultListed) // what an interruption loses
		l, err := r.List(ctx, f, all.Next)
		if err != nil {
			view.Sort(all.Records)
			return all, err
		}
		all.Records = append(all.Records, l.Records...)
		all.Unreadable = append(all.Unreadable, l.Unreadable...)
		all.Read += l.Read
		all.Next = l.Next
		p.say("read %d entries of the index, found %s", all.Read, plural(len(all.Records), "record"))
		if all.Next == "" || len(all.Records) >= limit {
			view.Sort(all.Records)
			return all, nil
		}
	}
}

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
