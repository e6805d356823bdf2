package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type changesCmd struct {
	Since     time.Duration `default:"24h" help:"Of this long until now."`
	Operation []string      `placeholder:"NAME" help:"Of records of these operations only."`
	Who       string        `placeholder:"NAME" help:"Of this one only."`
	Limit     int           `default:"100" help:"At most so many, the first ones."`
}

// Run writes JSON lines with -o json.
func (c *changesCmd) Run(ctx context.Context, s *session) error {
	if c.Limit < 1 || c.Since <= 0 {
		return misuse("--limit is 1 at least, and --since is more than 0")
	}
	r, _, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	now, shown, more := s.now(), 0, false
	enc := s.encoder()
	err = s.eachChange(ctx, r, now.Add(-c.Since), func(a protocol.Audit) error {
		_, operation, _ := protocol.ParseRecordID(a.ID)
		if c.Operation != nil && !slices.Contains(c.Operation, operation) || c.Who != "" && c.Who != a.Who {
			return nil
		}
		if shown == c.Limit {
			more = true
			return errEnough
		}
		shown++
		if s.json() {
			return enc.Encode(describeChange(a))
		}
		s.change(a)
		s.item("record " + line(a.ID))
		return nil
	})
	switch {
	case more:
		say(s.err, "There are more: raise --limit, or take a shorter --since.")
	case err != nil:
		return err
	case shown == 0 && !s.json():
		fmt.Fprintln(s.out, "No such changes.")
	}
	return nil
}

// eachChange gives the changes since then, the earliest first.
func (s *session) eachChange(ctx context.Context, r *reconcile.Reconciler, from time.Time, each func(protocol.Audit) error) error {
	p := s.progress()
	defer p.done()
	to, read := s.now().Add(time.Second), 0 // with those of now
	for page := ""; ; {
		got, err := r.Changes(ctx, from, to, page)
		if err != nil {
			return err
		}
		for _, a := range got.Entries {
			if err := each(a); err != nil {
				return err
			}
		}
		read += len(got.Entries)
		p.say("read %d changes", read)
		if page = got.Next; page == "" {
			return nil
		}
	}
}
