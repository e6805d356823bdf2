package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type explainCmd struct {
	recordFlags
}

func (c *explainCmd) Run(ctx context.Context, s *session) error {
	id, rec, err := c.find(ctx, s.records)
	if err != nil {
		return seeStored(err)
	}
	e, attempt := s.records.Explain(rec), 0
	if rec != nil {
		attempt = rec.Attempt
	}
	if s.json() {
		return s.writeJSON(struct {
			ID      string `json:"id"`
			Attempt int    `json:"attempt,omitempty"`
			reconcile.Explanation
		}{id, attempt, e})
	}
	s.field("Record", "%s", view.Plain(id))
	if rec == nil {
		s.field("State", "%s", s.state(e.State))
	} else {
		s.field("State", "%s, attempt %d", s.state(e.State), attempt)
	}
	s.explain(e)
	fmt.Fprintln(s.out)
	fmt.Fprintln(s.out, "What you may decide:")
	for _, d := range e.Decisions {
		s.decision(d)
	}
	return nil
}

// explain writes what the record means, without the decisions.
func (s *session) explain(e reconcile.Explanation) {
	s.field("Meaning", "%s", view.Plain(e.Summary))
	fmt.Fprintln(s.out)
	fmt.Fprintln(s.out, "What the next call with the key gets:")
	s.item("with the same input: " + view.Plain(e.SameInput))
	s.item("with another input: " + view.Plain(e.OtherInput))
	if len(e.Changes) > 0 {
		fmt.Fprintln(s.out)
		fmt.Fprintln(s.out, "What time changes:")
		for _, c := range e.Changes {
			s.item(when(c.At, s.now()) + ": " + view.Plain(c.What))
		}
	}
}

func (s *session) decision(d reconcile.Decision) {
	name := decisionName(d)
	if d.Refused != "" {
		s.item(s.paint(text.Faint, name) + ": not now: " + view.Plain(flags(d.Refused)))
		return
	}
	line := s.paint(text.Bold, name)
	if d.Again {
		line += " --again (it replaces an earlier resolution)"
	}
	if len(d.Undo) > 0 {
		line += " --undone (after what these did has been undone: " + view.Plain(strings.Join(d.Undo, ", ")) + ")"
	}
	for _, name := range d.Steps {
		line += " --step " + view.Plain(name) + "=WHAT"
	}
	line += ": then a call gets: " + view.Plain(flags(d.Then))
	if d.Caution != "" {
		line += " " + s.paint(text.FgRed, "Caution: "+view.Plain(flags(d.Caution)))
	}
	s.item(line)
}
