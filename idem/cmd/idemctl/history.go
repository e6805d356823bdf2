package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
)

type historyCmd struct {
	recordFlags
}

// change is how an entry is written as JSON.
type change struct {
	ID      string          `json:"id"`
	At      time.Time       `json:"at,omitzero"`
	Change  protocol.Change `json:"change"`
	From    idem.State      `json:"from"`
	To      idem.State      `json:"to"`
	Attempt int             `json:"attempt,omitempty"`
	Who     string          `json:"who"`
	Why     string          `json:"why"`
	Tool    string          `json:"tool,omitempty"`
	Ref     string          `json:"ref,omitempty"`
	What    string          `json:"what,omitempty"`
	// Steps are the verdicts on steps, by name.
	Steps map[string]protocol.StepVerdict `json:"steps,omitempty"`
	// Until is until when an extension keeps the record.
	Until       time.Time `json:"until,omitzero"`
	Unconfirmed bool      `json:"unconfirmed,omitempty"`
	// Decision is that of many records that the change is part of.
	Decision string `json:"decision,omitempty"`
	// Entry names one that is unreadable.
	Entry string `json:"entry,omitempty"`
}

func describeChange(a protocol.Audit) change {
	c := change{
		ID: a.ID, At: a.At, Change: a.Change, From: a.From, To: a.To, Attempt: a.Attempt,
		Who: a.Who, Why: a.Why, Tool: a.Tool, Ref: a.Ref, What: a.What, Steps: a.Steps, Until: a.Until,
		Unconfirmed: a.Unconfirmed,
		Decision:    decisionOf(a),
	}
	if a.Change == protocol.ChangeUnreadable {
		c.Entry = a.Entry
	}
	return c
}

func (c *historyCmd) Run(ctx context.Context, s *session) error {
	id, rec, unread := c.find(ctx, s.records)
	if unread != nil && !errors.Is(unread, idem.ErrRecordUnreadable) {
		return unread
	}
	// The changes are items of their own: they are there also if the record cannot be read.
	entries, err := s.records.History(ctx, id)
	if err != nil {
		return err
	}
	if s.json() {
		all := []change{}
		for _, a := range entries {
			all = append(all, describeChange(a))
		}
		if unread != nil {
			say(s.err, "The record itself is unreadable: %s", line(unread.Error()))
		}
		return s.writeJSON(all)
	}
	if rec == nil && unread == nil && len(entries) == 0 {
		return fmt.Errorf("there is no record %s, and none was changed from outside: check operation, tenant, value, "+
			"principal and secret, --table and --region", id)
	}
	s.field("Record", "%s", view.Plain(id))
	switch {
	case unread != nil:
		s.field("Now", "unreadable: %s", line(unread.Error()))
	case rec != nil:
		s.field("Created", "%s", view.At(rec.CreatedAt))
		s.field("Now", "%s, attempt %d, last written %s", s.state(rec.State), rec.Attempt, view.At(rec.UpdatedAt))
	case !protocol.IsPauseID(id):
		s.field("Now", "%s", s.state(idem.Absent))
	}
	if len(entries) == 0 {
		s.field("Changes", "none from outside its attempts")
	}
	for _, a := range entries {
		fmt.Fprintln(s.out)
		s.change(a)
	}
	return nil
}

// decisionOf is the decision of many records that a change is part of; empty if it is of one.
func decisionOf(a protocol.Audit) string {
	if id, _, many := strings.Cut(a.Entry, "."); many && a.Tool == toolName {
		return id
	}
	return ""
}

func (s *session) change(a protocol.Audit) {
	when := "at an unknown time"
	if !a.At.IsZero() {
		when = view.At(a.At)
	}
	what, text := view.Change(a)
	s.hang(when+"  ", what+": "+line(text))
	if a.Change == protocol.ChangeUnreadable {
		s.item(line(a.Why))
		return
	}
	by := "by " + view.Plain(a.Who)
	if a.Tool != "" {
		by += ", with " + view.Plain(a.Tool)
	}
	if id := decisionOf(a); id != "" {
		by += ", decision " + line(id) + " of many"
	}
	if a.Ref != "" {
		by += ", reference " + view.Plain(a.Ref)
	}
	s.item(by)
	s.item("why: " + view.Plain(a.Why))
	for _, step := range view.Steps(a) {
		s.item(line(step))
	}
}

type changesCmd struct {
	Since     time.Duration `default:"24h" help:"Of this long until now."`
	Operation []string      `placeholder:"NAME" help:"Of records of these operations only."`
	Who       string        `placeholder:"NAME" help:"Of this one only."`
	Limit     int           `default:"100" help:"At most so many, the first ones."`
}

func (c *changesCmd) check() error {
	if c.Limit < 1 || c.Since <= 0 {
		return misuse("--limit is 1 at least, and --since is more than 0")
	}
	return nil
}

// Run writes JSON lines with -o json.
func (c *changesCmd) Run(ctx context.Context, s *session) error {
	shown, enc := 0, s.encoder()
	for a, err := range s.changes(ctx, s.now().Add(-c.Since)) {
		_, operation, _ := protocol.ParseRecordID(a.ID)
		switch {
		case err != nil:
			return err
		case c.Operation != nil && !slices.Contains(c.Operation, operation) || c.Who != "" && c.Who != a.Who:
			continue
		case shown == c.Limit:
			say(s.err, "There are more: raise --limit, or take a shorter --since.")
			return nil
		}
		shown++
		if !s.json() {
			s.change(a)
			s.item("record " + line(a.ID))
		} else if err := enc.Encode(describeChange(a)); err != nil {
			return err
		}
	}
	if shown == 0 && !s.json() {
		fmt.Fprintln(s.out, "No such changes.")
	}
	return nil
}

// changes are those since then, the earliest first. An error is the last one.
func (s *session) changes(ctx context.Context, from time.Time) iter.Seq2[protocol.Audit, error] {
	return func(yield func(protocol.Audit, error) bool) {
		p := s.progress()
		defer p.done()
		to, read := s.now().Add(time.Second), 0 // with those of now
		for page := ""; ; {
			got, err := s.records.Changes(ctx, from, to, page)
			if err != nil {
				yield(protocol.Audit{}, err)
				return
			}
			for _, a := range got.Entries {
				if !yield(a, nil) {
					return
				}
			}
			read += len(got.Entries)
			p.say("read %d changes", read)
			if page = got.Next; page == "" {
				return
			}
		}
	}
}
