package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
)

type showCmd struct {
	recordFlags
	view.Reveal
}

func (c *showCmd) Run(ctx context.Context, s *session) error {
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	id, rec, err := c.must(ctx, r)
	if errors.Is(err, idem.ErrRecordUnreadable) {
		return s.showStored(ctx, b, id, err)
	}
	if err != nil {
		return err
	}
	d := record{Record: view.Of(rec, c.Reveal)}
	if c.ShowResult && rec.State == idem.Completed && !rec.Omitted && !s.sealed(rec) {
		result, err := r.Result(ctx, rec)
		if err != nil {
			return fmt.Errorf("the result cannot be read: %w", err)
		}
		d.reveal(result)
	}
	if s.json() {
		return s.writeJSON(d)
	}
	s.show(d)
	return nil
}

// sealed reports whether the record's results are encrypted to this command.
func (s *session) sealed(rec *idem.Record) bool { return rec.Sealed && len(s.globals.KMSKey) == 0 }

func (s *session) show(d record) {
	now := s.now()
	repeat := "not repeatable"
	if d.Repeatable {
		repeat = "repeatable"
	}
	s.field("Record", "%s", view.Plain(d.ID))
	s.field("Operation", "%s (%s)", view.Plain(d.Operation), repeat)
	s.field("Tenant", "%s", tenantOr(d.Tenant))
	if d.Value != "" {
		s.field("Value", "%s", view.Plain(d.Value))
	}
	in := ""
	if d.Shadow {
		in = ", in shadow: no outcome of the live mode"
	}
	s.field("State", "%s, attempt %d%s", s.state(d.State), d.Attempt, in)
	moment := func(name string, t time.Time) {
		if !t.IsZero() {
			s.field(name, "%s", when(t, now))
		}
	}
	moment("Created", d.CreatedAt)
	moment("Updated", d.UpdatedAt)
	moment("Open since", d.OpenSince)
	if d.State == idem.InProgress || d.State == idem.Unknown {
		moment("Lease until", d.LeaseUntil)
	}
	moment("Escalated", d.EscalatedAt)
	if d.EscalatedAt.IsZero() {
		moment("Sweep due", d.Due)
	}
	moment("Expires", d.ExpiresAt)
	if d.Probes > 0 {
		s.field("Probes", "%d", d.Probes)
	}
	if d.Resolved {
		s.field("Resolved", "from outside, see history")
	}
	name := "Token"
	for _, token := range d.Tokens() {
		s.field(name, "%s %s", token.Token, view.Plain(token.Of))
		name = ""
	}
	if d.Ref != "" {
		s.field("Reference", "%s", view.Plain(d.Ref))
	}
	s.showResult(d)
	if d.Failure != nil {
		s.field("Error", "%s", failureText(d.Failure))
	}
	for i, step := range d.Steps {
		name := ""
		if i == 0 {
			name = "Steps"
		}
		s.field(name, "%s", stepText(step))
		if !step.Marker() {
			s.field("", "token %s", step.Token)
		}
	}
}

// stepText says what became of a step.
func stepText(step view.Step) string {
	text := view.Plain(step.Text())
	if !step.Marker() {
		text = view.Plain(step.Name) + ": " + text
	}
	if step.Failure != nil {
		text += ", " + failureText(step.Failure)
	}
	return text
}

func failureText(f *view.Failure) string {
	if text := f.Text(); text != "" {
		return view.Plain(text)
	}
	return "has a text, see --show-error"
}
