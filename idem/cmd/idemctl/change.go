package main

import (
	"bufio"
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
	Who    string `placeholder:"NAME" help:"Who makes the change; else the AWS caller, and with a DynamoDB Local $$USER."`
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

// writeTime bounds a change that was confirmed. Ctrl-C does not end it: nobody would know
// whether it was made.
const writeTime = 30 * time.Second

// decision is what a command decides about a record.
type decision struct {
	to idem.State
	// prepare makes the change of a record, and refuses what does not fit the record. The decision
	// is what the record's explanation says of it without flags.
	prepare func(rec *idem.Record, x reconcile.Decision) (action, error)
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
func (s *session) decide(ctx context.Context, r *reconcile.Reconciler, b *backend, flags recordFlags, c changeFlags, d decision) error {
	return s.confirmed(ctx, r, b, flags, c, func(rec *idem.Record, e reconcile.Explanation) (a action, err error) {
		x, err := d.of(e)
		if err != nil {
			return a, err
		}
		if a, err = d.prepare(rec, x); err != nil {
			return a, err
		}
		a.to, a.what = d.to, fmt.Sprintf("%s: the record becomes %s.", decisionName(d.to), s.aside().state(d.to))
		return a, nil
	})
}

// action is a change of a record that somebody may confirm.
type action struct {
	to idem.State
	// what it does, what calls get then, and what it risks.
	what, then, caution string
	// shows writes what is recorded; it may be nil.
	shows func(*session)
	// records is what is recorded; of a change of many records --seen confirms it.
	records reconcile.Resolution
	do      func(ctx context.Context, by reconcile.Change) error
}

// confirmed shows a record and what an action does, asks, and does it.
func (s *session) confirmed(ctx context.Context, r *reconcile.Reconciler, b *backend, flags recordFlags, c changeFlags,
	plan func(rec *idem.Record, e reconcile.Explanation) (action, error),
) error {
	if _, _, err := flags.key(); err != nil {
		return err
	}
	by, err := s.by(ctx, b, c.whyFlags)
	if err != nil {
		return err
	}
	_, rec, err := flags.must(ctx, r)
	if err != nil {
		return seeStored(err)
	}
	if c.Seen != "" && c.Seen != rec.Write {
		return errors.New("the record has been written since the look that --seen names, and nothing was changed: " +
			"look again with idemctl explain, and decide again")
	}
	shown := s.aside()
	shown.show(record{Record: view.Of(rec, view.Reveal{})})
	e := r.Explain(rec)
	shown.explain(e)
	fmt.Fprintln(shown.out)
	a, err := plan(rec, e)
	if err != nil {
		return err
	}
	shown.field("This will", "%s", a.what)
	shown.field("Then", "a call with the key and the same input gets: %s", view.Plain(a.then))
	shown.caution(a)
	if a.shows != nil {
		a.shows(shown)
	}
	shown.signed(by)
	report := changed{ID: rec.ID, From: rec.State, To: a.to, Then: a.then, DryRun: c.DryRun}
	if c.DryRun {
		fmt.Fprintln(shown.out, "Dry run: nothing was written.")
		report.Seen = rec.Write
		return s.changed(report)
	}
	if !c.Yes {
		if err := s.ask(ctx, "Type yes to do it: ", "yes", "--yes"); err != nil {
			return err
		}
	}
	by.IfWrite = rec.Write
	if err := s.carryOut(ctx, a.do, by); err != nil {
		return err
	}
	fmt.Fprintln(shown.out, "Done.")
	return s.changed(report)
}

// caution writes what an action risks.
func (s *session) caution(a action) {
	if a.caution != "" {
		s.field("Caution", "%s", s.paint(text.FgRed, view.Plain(a.caution)))
	}
}

// aside is the session that writes for people: beside the JSON, if that is the output.
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

func (s *session) changed(c changed) error {
	if s.json() {
		return s.writeJSON(c)
	}
	return nil
}

func (s *session) by(ctx context.Context, b *backend, c whyFlags) (reconcile.Change, error) {
	if strings.TrimSpace(c.Reason) == "" {
		return reconcile.Change{}, misuse("--reason is empty: say why, for those who read it in a year")
	}
	who, err := s.who(ctx, b, c.Who)
	return reconcile.Change{Actor: who, Reason: c.Reason, Tool: toolName}, err
}

// signed writes who makes a change, and why.
func (s *session) signed(by reconcile.Change) {
	s.field("By", "%s, because: %s", view.Plain(by.Actor), view.Plain(by.Reason))
}

// of is the decision as the explanation has it.
func (d decision) of(e reconcile.Explanation) (reconcile.Decision, error) {
	i := slices.IndexFunc(e.Decisions, func(x reconcile.Decision) bool { return x.To == d.to && x.Change != protocol.ChangeExtended })
	if i < 0 {
		return reconcile.Decision{}, fmt.Errorf("nothing is known of %s here", decisionName(d.to))
	}
	return e.Decisions[i], nil
}

// refused says why the decision is not possible; nil if it is.
func (d decision) refused(x reconcile.Decision) error {
	if x.Refused == "" {
		return nil
	}
	return fmt.Errorf("%s is refused, and nothing was changed: %s", decisionName(d.to), flags(x.Refused))
}

// flags says by which flags a text's fields of a resolution are set.
func flags(text string) string {
	return strings.NewReplacer("Resolution.Steps", "--step", "Steps has", "--step names", "Steps says", "--step says", "Resolution.Replace", "--again", "Resolution.CompensatedManually", "--undone").Replace(text)
}

// ask has somebody confirm.
func (s *session) ask(ctx context.Context, prompt, want, flag string) error {
	if !s.asks {
		return fmt.Errorf("nothing was changed: the input is no terminal, where the question could be answered: "+
			"use %s", flag)
	}
	fmt.Fprint(s.err, prompt)
	answer, err := bufio.NewReader(interruptible{ctx, s.in}).ReadString('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(s.err)
		return errors.New("interrupted, and nothing was changed")
	case strings.TrimSpace(answer) != want:
		return errors.New("not confirmed, and nothing was changed")
	}
	return nil
}

func (s *session) carryOut(ctx context.Context, do func(context.Context, reconcile.Change) error, by reconcile.Change) error {
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted, and nothing was changed")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	err := do(ctx, by)
	var mistaken *idem.ConfigError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, reconcile.ErrChanged):
		return errors.New("the record has been written since it was shown, and nothing was changed: " +
			"look again with idemctl explain, and decide again")
	case errors.Is(err, reconcile.ErrNotUnknown), errors.Is(err, reconcile.ErrTooEarly), errors.Is(err, reconcile.ErrNotUndone), errors.Is(err, reconcile.ErrStepsUnnamed),
		errors.Is(err, reconcile.ErrOpen), errors.Is(err, reconcile.ErrExpired), errors.Is(err, reconcile.ErrNotFound),
		errors.Is(err, idem.ErrRecordUnreadable), errors.As(err, &mistaken):
		return fmt.Errorf("refused, and nothing was changed: %s", flags(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "idem: resolution: "), "reconcile: ")))
	case denied(err):
		return fmt.Errorf("AWS does not allow it: %w", err)
	}
	return fmt.Errorf("it may or may not have been written: look with idemctl history, and repeat it if it was not (%w)", err)
}
