package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// showCmd shows a record.
type showCmd struct {
	recordFlags
	reveal
}

// Run runs the command.
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
	d := describe(rec, c.reveal)
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

// show writes a record for people.
func (s *session) show(d record) {
	now := s.now()
	repeat := "not repeatable"
	if d.Repeatable {
		repeat = "repeatable"
	}
	s.field("Record", "%s", plain(d.ID))
	s.field("Operation", "%s (%s)", plain(d.Operation), repeat)
	s.field("Tenant", "%s", tenantOr(d.Tenant))
	if d.Value != "" {
		s.field("Value", "%s", plain(d.Value))
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
	moment("Given up", d.GivenUpAt)
	if d.GivenUpAt.IsZero() {
		moment("Sweep due", d.Due)
	}
	moment("Expires", d.ExpiresAt)
	if d.Probes > 0 {
		s.field("Probes", "%d", d.Probes)
	}
	if d.Resolved {
		s.field("Resolved", "from outside, see history")
	}
	s.tokens(d)
	if d.Ref != "" {
		s.field("Reference", "%s", plain(d.Ref))
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
		if step.Name != protocol.CompensatingStep {
			s.field("", "token %s", step.Token)
		}
	}
}

// tokens writes what the provider knows the operation by: first those of its interrupted steps,
// of which somebody must ask.
func (s *session) tokens(d record) {
	name := "Token"
	for _, step := range d.Steps {
		if step.Interrupted {
			s.field(name, "%s of step %s, which was interrupted", step.Token, plain(step.Name))
			name = ""
		}
	}
	if len(d.Steps) > 0 {
		s.field(name, "%s outside steps", d.Token)
		return
	}
	s.field(name, "%s", d.Token)
}

// stepText says what became of a step.
func stepText(step recordedStep) string {
	said := plain(step.Name) + ": " + step.State
	undoes, isUndo := strings.CutPrefix(step.Name, protocol.UndoingPrefix)
	switch {
	case step.Name == protocol.CompensatingStep:
		said = "the operation has failed, and is being undone"
	case isUndo:
		said += ", undoes " + plain(undoes)
	case step.Undone:
		said += ", and undone"
	case step.Compensates:
		said += ", has a compensation that has not run"
	}
	if step.Failure != nil {
		said += ", " + failureText(step.Failure)
	}
	return said
}

func failureText(f *failure) string {
	said := plain(f.Type)
	if f.Code != "" {
		said += " (code " + plain(f.Code) + ")"
	}
	if f.Message != "" {
		if said != "" {
			said += ": "
		}
		said += plain(f.Message)
	}
	if said == "" {
		said = "has a text, see --show-error"
	}
	return said
}
