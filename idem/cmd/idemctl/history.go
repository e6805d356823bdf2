package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// historyCmd lists what was done about a record.
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
	// Steps are what was said of steps, by name.
	Steps map[string]protocol.StepWord `json:"steps,omitempty"`
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
		Who: a.Who, Why: a.Why, Tool: a.Tool, Ref: a.Ref, What: a.What, Steps: a.Steps, Until: a.Until, Unconfirmed: a.Unconfirmed,
		Decision: decisionOf(a),
	}
	if a.Change == protocol.ChangeUnreadable {
		c.Entry = a.Entry
	}
	return c
}

// Run runs the command.
func (c *historyCmd) Run(ctx context.Context, s *session) error {
	r, _, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	id, rec, unread := c.find(ctx, r)
	if unread != nil && !errors.Is(unread, idem.ErrRecordUnreadable) {
		return unread
	}
	// The changes lie beside the record: they are there also if it cannot be read.
	entries, err := r.History(ctx, id)
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
		return fmt.Errorf("there is no record %s, and none was changed from outside: check operation, tenant, value, principal and secrets, --table and --region", id)
	}
	s.field("Record", "%s", plain(id))
	switch {
	case unread != nil:
		s.field("Now", "unreadable: %s", line(unread.Error()))
	case rec != nil:
		s.field("Created", "%s", at(rec.CreatedAt))
		s.field("Now", "%s, attempt %d, last written %s", s.state(rec.State), rec.Attempt, at(rec.UpdatedAt))
	default:
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

// change writes an entry for people.
func (s *session) change(a protocol.Audit) {
	switch a.Change {
	case protocol.ChangeRequeued, protocol.ChangeReplayed:
		fmt.Fprintf(s.out, "%s  %s\n", at(a.At), a.Change)
		s.item(line(a.What))
	case protocol.ChangeUnreadable:
		when := "at an unknown time"
		if !a.At.IsZero() {
			when = at(a.At)
		}
		fmt.Fprintf(s.out, "%s  an entry that is unreadable: damaged, or written by a newer version\n", when)
		if a.Entry != "" {
			s.item("entry " + line(a.Entry))
		}
		s.item(line(a.Why))
		return
	default:
		fmt.Fprintf(s.out, "%s  %s: %s -> %s, attempt %d\n", at(a.At), a.Change, s.state(a.From), s.state(a.To), a.Attempt)
	}
	by := "by " + plain(a.Who)
	if a.Tool != "" {
		by += ", with " + plain(a.Tool)
	}
	if id := decisionOf(a); id != "" {
		by += ", decision " + line(id) + " of many"
	}
	if a.Ref != "" {
		by += ", reference " + plain(a.Ref)
	}
	s.item(by)
	s.item("why: " + plain(a.Why))
	for _, name := range slices.Sorted(maps.Keys(a.Steps)) {
		s.item("step " + line(name) + " " + line(a.Steps[name].Text()) + ": token " + protocol.Token(a.ID, name))
	}
	if !a.Until.IsZero() {
		s.item("kept until " + at(a.Until))
	}
	if a.Unconfirmed {
		s.item(unconfirmed(a.Change))
	}
}

// unconfirmed says what an entry means that was written before its change.
func unconfirmed(c protocol.Change) string {
	switch c {
	case protocol.ChangeRequeued:
		return "unconfirmed, it may not have been made: dead list shows whether the message still waits there"
	case protocol.ChangeReplayed:
		return "unconfirmed: the command still runs, or has died, and some may have been sent; the queue has the others"
	}
	return "unconfirmed, it may not have been made: the record shows it"
}
