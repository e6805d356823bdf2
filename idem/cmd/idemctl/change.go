package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// whyFlags are those of every change.
type whyFlags struct {
	Reason string `required:"" placeholder:"TEXT" help:"Why, for those who read it in a year. It is kept with the change."`
	Who    string `placeholder:"NAME" help:"Who makes the change; else the AWS caller, and with --store or a DynamoDB Local this machine's user."`
	DryRun bool   `help:"Show what would be done, and write nothing."`
}

// changeFlags are those of every change of a record.
type changeFlags struct {
	whyFlags
	Yes  bool   `help:"Do not ask."`
	Seen string `placeholder:"WRITE" help:"Refuse what was not seen: the record's write, as show -o json prints it; of many records what --dry-run prints, instead of an answer at a terminal."`
}

// toolName is what changes are made with.
const toolName = "idemctl"

// writeTime bounds a change that was confirmed. Ctrl-C does not end it: it would be unknown
// whether it was made.
const writeTime = 30 * time.Second

// decision is what a command decides about a record.
type decision struct {
	change protocol.Change
	// to is the state that the record gets; an extension leaves it as it is.
	to idem.State
	// prepare makes the change of a record, and refuses what does not fit the record. The decision
	// is what the record's explanation says of it without flags.
	prepare func(rec *idem.Record, x reconcile.Decision) (action, error)
}

// of is the decision as the explanation has it.
func (d decision) of(e reconcile.Explanation) reconcile.Decision {
	return e.Decisions[slices.IndexFunc(e.Decisions, func(x reconcile.Decision) bool {
		return x.Change == d.change && (x.To == d.to || d.change == protocol.ChangeExtended)
	})]
}

// decisionName is the command that carries a decision out.
func decisionName(x reconcile.Decision) string {
	switch {
	case x.Change == protocol.ChangeExtended:
		return "extend"
	case x.Change == protocol.ChangeForgotten:
		return "forget"
	case x.To == idem.Released:
		return "release"
	}
	return "resolve --to " + string(x.To)
}

// refused says why the decision is not possible; nil if it is.
func refused(x reconcile.Decision) error {
	if x.Refused == "" {
		return nil
	}
	return fmt.Errorf("%s is refused, and nothing was changed: %s", decisionName(x), flags(x.Refused))
}

// action is a change of a record that an operator may confirm.
type action struct {
	// what it does, if that is not only that the record becomes another one; what calls get then, and
	// what it risks.
	what, then, caution string
	// again says that it replaces an earlier decision; unanswered that it lacks what the provider answered.
	again, unanswered bool
	// shows writes what is recorded; it may be nil.
	shows func(*session)
	// records is what is recorded; of a change of many records --seen confirms it.
	records reconcile.Resolution
	do      func(ctx context.Context, by reconcile.Change) error
}

// changed is what a change writes as JSON.
type changed struct {
	ID     string     `json:"id"`
	From   idem.State `json:"from"`
	To     idem.State `json:"to"`
	DryRun bool       `json:"dry_run,omitempty"`
	Then   string     `json:"then"`
	// Seen is what --seen takes, of a dry run.
	Seen string `json:"seen,omitempty"`
	// Decision is that of many records that it is part of.
	Decision string `json:"decision,omitempty"`
}

// decide shows a record and what the decision does, asks, and carries it out.
func (s *session) decide(ctx context.Context, flags recordFlags, c changeFlags, d decision) error {
	if _, _, err := flags.key(); err != nil {
		return err
	}
	by, err := s.by(ctx, c.whyFlags)
	if err != nil {
		return err
	}
	_, rec, err := flags.must(ctx, s.records)
	if err != nil {
		return seeStored(err)
	}
	if c.Seen != "" && c.Seen != rec.Write {
		return errors.New("the record has been written since the look that --seen names, and nothing was changed: " +
			"look again with idemctl explain, and decide again")
	}
	shown := s.aside()
	shown.show(record{Record: view.Of(rec, view.Reveal{})})
	e := s.records.Explain(rec)
	shown.explain(e)
	fmt.Fprintln(shown.out)
	x := d.of(e)
	a, err := d.prepare(rec, x)
	if err != nil {
		return err
	}
	becomes := fmt.Sprintf("%s: the record becomes %s.", decisionName(x), shown.state(x.To))
	shown.field("This will", "%s", cmp.Or(a.what, becomes))
	shown.field("Then", "a call with the key and the same input gets: %s", view.Plain(a.then))
	if err := shown.risks(ctx, rec.ID, a); err != nil {
		return err
	}
	shown.signed(by)
	report := changed{ID: rec.ID, From: rec.State, To: x.To, Then: a.then, DryRun: c.DryRun}
	if c.DryRun {
		fmt.Fprintln(shown.out, "Dry run: nothing was written.")
		report.Seen = rec.Write
		return s.reported(report)
	}
	if a.unanswered {
		return errUnanswered
	}
	if !c.Yes {
		if err := s.ask(ctx, "Type yes to do it: ", "yes", "--yes", "changed"); err != nil {
			return err
		}
	}
	by.IfWrite = rec.Write
	if err := s.carryOut(ctx, a.do, by, "history"); err != nil {
		return err
	}
	fmt.Fprintln(shown.out, "Done.")
	return s.reported(report)
}

// errUnanswered refuses what only the provider's answer can justify.
var errUnanswered = errors.New("nothing was changed: ask the provider, and give what it answered with " +
	"--provider-says")

// risks writes what an action replaces of the record, what it risks, and what it records.
func (s *session) risks(ctx context.Context, id string, a action) error {
	if a.again {
		history, err := s.records.History(ctx, id)
		if err != nil {
			return err
		}
		s.field("Replaces", "%s", view.Plain(view.Resolution(history)))
	}
	if a.caution != "" {
		s.field("Caution", "%s", s.paint(text.FgRed, view.Plain(a.caution)))
	}
	if a.shows != nil {
		a.shows(s)
	}
	return nil
}

// aside is the session that writes text: on the errors' side if the output is JSON.
func (s *session) aside() *session {
	if !s.json() {
		return s
	}
	t := *s.terminal
	t.out, t.colour = t.err, false
	a := *s
	a.terminal = &t
	return &a
}

// reported writes what a change was, if the output is JSON.
func (s *session) reported(v any) error { return s.print(v, func() {}) }

func (s *session) by(ctx context.Context, c whyFlags) (reconcile.Change, error) {
	if strings.TrimSpace(c.Reason) == "" {
		return reconcile.Change{}, misuse("--reason is empty: say why, for those who read it in a year")
	}
	who, err := s.who(ctx, c.Who)
	return reconcile.Change{Actor: who, Reason: c.Reason, Tool: toolName}, err
}

// signed writes who makes a change, and why.
func (s *session) signed(by reconcile.Change) {
	s.field("By", "%s, because: %s", view.Plain(by.Actor), view.Plain(by.Reason))
}

// asFlags names the fields of a resolution in a text by their flags.
var asFlags = strings.NewReplacer(
	"Steps has", "--step names", "; a probe answers with ContinueWith", "", "Resolution.Steps", "--step",
	"Resolution.Replace", "--again", "Resolution.CompensatedManually", "--undone",
	"resolve to completed with that response", "use --to completed --status",
)

func flags(text string) string { return asFlags.Replace(text) }

// ask has an operator confirm. done is what was done to nothing if they do not.
func (s *session) ask(ctx context.Context, prompt, want, flag, done string) error {
	if !s.asks {
		return fmt.Errorf("nothing was %s: the input is no terminal, where the question could be answered: use %s",
			done, flag)
	}
	fmt.Fprint(s.err, prompt)
	answer, err := bufio.NewReader(interruptible{ctx, s.in}).ReadString('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(s.err)
		return fmt.Errorf("interrupted, and nothing was %s", done)
	case strings.TrimSpace(answer) != want:
		return fmt.Errorf("not confirmed, and nothing was %s", done)
	}
	return nil
}

// refusals are the errors of a change that was refused.
var refusals = []error{
	reconcile.ErrNotUnknown, reconcile.ErrTooEarly, reconcile.ErrNotUndone, reconcile.ErrStepsUnnamed,
	reconcile.ErrOpen, reconcile.ErrExpired, reconcile.ErrNotFound, idem.ErrRecordUnreadable,
}

// carryOut makes a change. look is the command that shows whether it was made.
func (s *session) carryOut(ctx context.Context, do func(context.Context, reconcile.Change) error,
	by reconcile.Change, look string) error {
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted, and nothing was changed")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	err := do(ctx, by)
	_, mistaken := errors.AsType[*idem.ConfigError](err)
	store, ofStore := errors.AsType[*idem.StoreError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, reconcile.ErrChanged):
		what, again := "record", "explain"
		if look == "pauses" {
			what, again = "pause", look
		}
		return fmt.Errorf("the %s has been written since it was shown, and nothing was changed: look again with "+
			"idemctl %s, and decide again", what, again)
	case ofStore && store.Ambiguous: // an earlier try may have landed, whatever the last one got
	case mistaken, slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		why := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "idem: resolution: "), "reconcile: ")
		return fmt.Errorf("refused, and nothing was changed: %s", flags(why))
	case denied(err):
		return fmt.Errorf("AWS does not allow it: %w", err)
	}
	return fmt.Errorf("it may or may not have been written: look with idemctl %s, and repeat it if it was not (%w)",
		look, err)
}
