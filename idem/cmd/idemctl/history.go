package main

import (
	"context"
	"errors"
	"fmt"
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
		Who: a.Who, Why: a.Why, Tool: a.Tool, Ref: a.Ref, What: a.What, Steps: a.Steps, Until: a.Until, Unconfirmed: a.Unconfirmed,
		Decision: decisionOf(a),
	}
	if a.Change == protocol.ChangeUnreadable {
		c.Entry = a.Entry
	}
	return c
}

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
		return fmt.Errorf("there is no record %s, and none was changed from outside: check operation, tenant, value, principal and secret, --table and --region", id)
	}
	s.field("Record", "%s", view.Plain(id))
	switch {
	case unread != nil:
		s.field("Now", "unreadable: %s", line(unread.Error()))
	case rec != nil:
		s.field("Created", "%s", view.At(rec.CreatedAt))
		s.field("Now", "%s, attempt %d, last written %s", s.state(rec.State), rec.Attempt, view.At(rec.UpdatedAt))
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

func (s *session) change(a protocol.Audit) {
	when := "at an unknown time"
	if !a.At.IsZero() {
		when = view.At(a.At)
	}
	what, text := view.Change(a)
	for _, part := range wrap(what+": "+line(text), width-len(when)-2) {
		fmt.Fprintln(s.out, when+"  "+part)
		when = strings.Repeat(" ", len(when))
	}
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
