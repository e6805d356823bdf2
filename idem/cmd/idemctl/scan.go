package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// allFlags let a command read the whole table, which costs what the table holds.
type allFlags struct {
	All    bool    `help:"Read the whole table, also what has ended and what is not watched. It says what that costs, and asks."`
	Yes    bool    `help:"With --all: do not ask."`
	Shadow bool    `help:"With --all: also records of operations in shadow."`
	Rate   float64 `default:"500" placeholder:"UNITS" help:"With --all: at most so many read units a second, which the functions lack."`
}

// errEnough ends a scan that has found enough.
var errEnough = errors.New("enough")

// scan gives every record that the filter lets through to each, in no order, after somebody
// has agreed to the price.
func (s *session) scan(ctx context.Context, b *backend, f reconcile.Filter, a allFlags, each func(rec *idem.Record) error, unreadable func(id string)) error {
	if a.Rate <= 0 {
		return misuse("--rate is %g: it is more than 0", a.Rate)
	}
	items, bytes, err := b.estimate(ctx)
	if err != nil {
		return fmt.Errorf("the table's size cannot be read: %w", err)
	}
	// An eventually consistent read of 4 KB is half a unit.
	units := float64(bytes) / 4096 / 2
	say(s.err, "This reads the whole table: %d items and %.1f MB as of some hours ago, about %.0f read units, %s at %g a second.",
		items, float64(bytes)/1e6, units, view.Span(time.Duration(units/a.Rate*float64(time.Second))), a.Rate)
	if !a.Yes {
		if err := s.ask(ctx, "Type yes to do it: ", "yes", "--yes"); err != nil {
			return err
		}
	}
	p := s.progress()
	defer p.done()
	looked := 0
	for page := ""; ; {
		got, err := b.scanner.Scan(ctx, protocol.ScanQuery{Segments: 1, Page: page})
		if err != nil {
			return err
		}
		for _, id := range got.Unreadable {
			unreadable(id)
		}
		for _, rec := range got.Records {
			_, shadow := protocol.LiveID(rec.ID)
			if shadow && !a.Shadow || protocol.IsCheckID(rec.ID) || !f.Matches(rec) {
				continue
			}
			if err := each(rec); err != nil {
				return err
			}
		}
		looked += got.Looked
		p.say("looked at %d of about %d items", looked, items)
		if page = got.Next; page == "" {
			return nil
		}
		if err := pause(ctx, time.Duration(got.Units/a.Rate*float64(time.Second))); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// collectAll is collect over the whole table.
func (s *session) collectAll(ctx context.Context, b *backend, f reconcile.Filter, a allFlags, limit int) (reconcile.Page, error) {
	var all reconcile.Page
	more := false
	err := s.scan(ctx, b, f, a, func(rec *idem.Record) error {
		if len(all.Records) == limit {
			more = true
			return errEnough
		}
		all.Records = append(all.Records, rec)
		return nil
	}, func(id string) { all.Unreadable = append(all.Unreadable, id) })
	view.Sort(all.Records)
	if more {
		say(s.err, "There are more than %s: raise --limit, or use export.", plural(limit, "record"))
		err = nil
	}
	return all, err
}
