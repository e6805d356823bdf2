package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type exportCmd struct {
	filterFlags
	allFlags
	ShowValue bool `help:"With the callers' values, if the records keep them."`
	ShowError bool `help:"With the texts of errors, which may have personal data."`
}

// Run writes whole lines, also if it is interrupted.
func (c *exportCmd) Run(ctx context.Context, s *session) error {
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	f, err := c.filter(s.now())
	if err != nil {
		return err
	}
	enc := s.encoder()
	written := 0
	var unreadable []string
	each := func(rec *idem.Record) error {
		written++
		return enc.Encode(view.Of(rec, view.Reveal{ShowValue: c.ShowValue, ShowError: c.ShowError}))
	}
	spoilt := func(id string) { unreadable = append(unreadable, id) }
	if c.All {
		err = s.scan(ctx, b, f, c.allFlags, each, spoilt)
	} else if err = c.indexed(); err == nil {
		err = s.pages(ctx, r, f, each, spoilt)
	}
	if interrupted(err) {
		return fmt.Errorf("interrupted after %s: the export is not complete", plural(written, "record"))
	}
	if err != nil {
		return err
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

// lister gives records to each, and the ids of others to unreadable.
type lister = func(ctx context.Context, r *reconcile.Reconciler, f reconcile.Filter, each func(rec *idem.Record) error, unreadable func(id string)) error

// pages gives every record of the index that the filter lets through to each.
func (s *session) pages(ctx context.Context, r *reconcile.Reconciler, f reconcile.Filter, each func(rec *idem.Record) error, unreadable func(id string)) error {
	p := s.progress()
	defer p.done()
	read := 0
	for page := ""; ; {
		l, err := r.List(ctx, f, page)
		if err != nil {
			return err
		}
		for _, rec := range l.Records {
			if err := each(rec); err != nil {
				return err
			}
		}
		for _, id := range l.Unreadable {
			unreadable(id)
		}
		read += l.Read
		p.say("read %d entries of the index", read)
		if page = l.Next; page == "" {
			return nil
		}
	}
}
