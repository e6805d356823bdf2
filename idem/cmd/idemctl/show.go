package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

type showCmd struct {
	recordFlags
	view.Reveal
}

func (c *showCmd) Run(ctx context.Context, s *session) error {
	id, rec, err := c.must(ctx, s.records)
	if errors.Is(err, idem.ErrRecordUnreadable) {
		return s.showStored(ctx, id, err)
	}
	if err != nil {
		return err
	}
	d := record{Record: view.Of(rec, c.Reveal)}
	if c.ShowResult && rec.State == idem.Completed && !rec.Omitted && !s.sealed(rec) {
		result, err := s.records.Result(ctx, rec)
		if err != nil {
			return fmt.Errorf("the result cannot be read: %w", err)
		}
		d.reveal(result)
	}
	messages, next, err := s.messages(ctx, id, "")
	if err != nil {
		return err
	}
	d.Messages, d.MoreMessages = messages, next != ""
	return s.print(d, func() { s.show(d) })
}

// sealed reports whether the record's results are encrypted to this command.
func (s *session) sealed(rec *idem.Record) bool { return rec.Sealed && len(s.globals.KMSKey) == 0 }

func (s *session) show(d record) {
	now := s.now()
	repeat := "not repeatable"
	if d.Repeatable {
		repeat = "repeatable"
	}
	if view.OverHTTP(d.Codec) {
		repeat += ", over HTTP"
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
	name = "Steps"
	for _, step := range d.Steps {
		s.field(name, "%s", stepText(step))
		name = ""
		if !step.Marker() {
			s.field("", "token %s", step.Token)
		}
	}
	s.showMessages(d.Messages, d.MoreMessages)
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

// bare are the attributes of a record that are shown as they are stored, with how long their
// unit is where they are times. Of all others only kind and size are shown: they may be
// personal or secret, or are not known here.
var bare = map[string]time.Duration{
	schema.Version: 0, schema.State: 0, schema.Repeatable: 0, schema.Codec: 0, schema.Owner: 0,
	schema.Attempt: 0, schema.Write: 0, schema.Seen: 0, schema.Retention: 0, schema.Uncertain: 0,
	schema.Encoding: 0, schema.Size: 0, schema.ResponseVersion: 0, schema.Omitted: 0, schema.Ref: 0,
	schema.RefWrite: 0, schema.Resolved: 0, schema.Unsettled: 0, schema.Sweep: 0, schema.Probes: 0,
	schema.OpenShard: 0, schema.ExpiresAt: time.Second, schema.LeaseUntil: time.Millisecond,
	schema.CreatedAt: time.Millisecond, schema.UpdatedAt: time.Millisecond,
	schema.OpenSince: time.Millisecond, schema.OpenDue: time.Millisecond, schema.EscalatedAt: time.Millisecond,
}

// maxBare is how much of an attribute is shown.
const maxBare = 200

// seeStored says where to look if a record cannot be read.
func seeStored(err error) error {
	if errors.Is(err, idem.ErrRecordUnreadable) {
		return fmt.Errorf("%w; idemctl show prints what is stored, and idemctl history what was changed", err)
	}
	return err
}

// showStored writes what is stored of a record that cannot be read, and returns why it cannot.
func (s *session) showStored(ctx context.Context, id string, why error) error {
	stored, err := s.table.stored(ctx, id)
	if err != nil {
		return fmt.Errorf("%w; nor can its attributes: %w", why, err)
	}
	attributes := map[string]string{}
	for name, value := range stored {
		if name != schema.PK && name != schema.SK {
			attributes[name] = s.attribute(name, value)
		}
	}
	if s.json() {
		if err := s.writeJSON(struct {
			ID         string            `json:"id"`
			Unreadable string            `json:"unreadable"`
			Stored     map[string]string `json:"stored"`
		}{id, why.Error(), attributes}); err != nil {
			return err
		}
		return why
	}
	tenant, operation, _ := protocol.ParseRecordID(id)
	s.field("Record", "%s", view.Plain(id))
	s.field("Operation", "%s", view.Plain(operation))
	s.field("Tenant", "%s", tenantOr(tenant))
	s.field("State", "unreadable: calls with the key get an error, over HTTP 503 idempotency_record_unreadable, "+
		"and the handler does not run.")
	head := "Stored"
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		s.field(head, "%s: %s", line(name), attributes[name])
		head = ""
	}
	return fmt.Errorf("%w; the runbook's section RecordUnreadable says what to do", why)
}

// attribute is what is shown of an attribute.
func (s *session) attribute(name string, value types.AttributeValue) string {
	unit, isBare := bare[name]
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		if isBare {
			return strconv.Quote(v.Value[:min(len(v.Value), maxBare)])
		}
		return "a text of " + plural(len(v.Value), "byte")
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		switch {
		case !isBare:
			return "a number"
		case unit > 0 && err == nil && n > 0 && n <= int64(maxTime/unit):
			return v.Value + ", " + when(time.Unix(0, n*int64(unit)).UTC(), s.now())
		}
		return v.Value
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	case *types.AttributeValueMemberB:
		return "binary, " + plural(len(v.Value), "byte")
	case *types.AttributeValueMemberM:
		var names []string
		for _, name := range slices.Sorted(maps.Keys(v.Value)) {
			names = append(names, line(name))
		}
		return "a map of " + strings.Join(names, ", ")
	case *types.AttributeValueMemberL:
		return "a list of " + plural(len(v.Value), "value")
	case *types.AttributeValueMemberNULL:
		return "null"
	}
	return "a set"
}

// maxTime is the latest time that is one.
const maxTime time.Duration = 1<<63 - 1

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
	paused, err := s.pausesOf(ctx, id)
	if err != nil {
		return err
	}
	if s.json() {
		return s.writeJSON(struct {
			ID      string           `json:"id"`
			Attempt int              `json:"attempt,omitempty"`
			Paused  []protocol.Pause `json:"paused,omitempty"`
			reconcile.Explanation
		}{id, attempt, paused, e})
	}
	s.field("Record", "%s", view.Plain(id))
	if rec == nil {
		s.field("State", "%s", s.state(e.State))
	} else {
		s.field("State", "%s, attempt %d", s.state(e.State), attempt)
	}
	s.explain(e)
	if len(paused) > 0 {
		fmt.Fprintln(s.out)
		fmt.Fprintln(s.out, "A call for which the handler would run gets 503 operation_paused:")
		for _, p := range paused {
			s.pause(p)
		}
	}
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
