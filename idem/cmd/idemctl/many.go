package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// manyFlags make a change one of many records.
type manyFlags struct {
	Limit     int           `placeholder:"N" help:"Change all records of --operation that the flags name, if they are at most so many."`
	State     []idem.State  `enum:"unknown,in_progress" placeholder:"STATE" help:"With --limit: in these states only: ${enum}."`
	Older     time.Duration `placeholder:"15m" help:"With --limit: without an outcome for longer than this only."`
	Escalated bool          `help:"With --limit: escalated by the sweep only."`

	Decision string        `placeholder:"ID" help:"With --limit and --again: the records whose outcome is this earlier decision of many, which changes names."`
	Since    time.Duration `placeholder:"24h" help:"With --decision: it was made within this time."`
}

func (m *manyFlags) check(f *recordFlags, c *changeFlags) error {
	narrowed := len(m.State) > 0 || m.Older != 0 || m.Escalated
	switch {
	case m.Limit < 0 || m.Older < 0 || m.Since < 0:
		return misuse("--limit, --older and --since cannot be negative")
	case m.Decision == "" && m.Since != 0:
		return misuse("--since says when the decision was made: use it with --decision")
	case m.Decision != "" && (m.Limit == 0 || narrowed):
		return misuse("--decision names records: use it with --limit, and without --state, --older and --escalated")
	case m.Limit == 0 && narrowed:
		return misuse("--state, --older and --escalated are for many records: use them with --limit")
	case m.Limit == 0:
		return nil
	case f.ID != "" || f.Value != "" || f.Principal != "" || f.Secret != "":
		return misuse("--limit is for many records: leave out the id, --value and all else that names a single one")
	case f.Operation == "":
		return misuse("a change of many records needs --operation")
	case f.Tenant != "" && f.NoTenant:
		return misuse("give --tenant or --no-tenant, but not both")
	case c.Yes && c.Seen == "" && !c.DryRun:
		return misuse("--yes does not confirm a change of many records: give --seen with what --dry-run prints")
	}
	return nil
}

// decideMany shows all records that the flags name, asks for their number, and changes one
// after the other, each on the condition that it is as it was shown.
func (s *session) decideMany(ctx context.Context, f recordFlags, m manyFlags, c changeFlags, d decision) error {
	by, err := s.by(ctx, c.whyFlags)
	if err != nil {
		return err
	}
	filter := filterFlags{Operation: []string{f.Operation}, NoTenant: f.NoTenant, State: m.State, Older: m.Older,
		Escalated: m.Escalated}
	if f.Tenant != "" {
		filter.Tenant = []string{f.Tenant}
	}
	if len(filter.State) == 0 {
		filter.State = []idem.State{idem.Unknown}
	}
	none := fmt.Sprintf("without --state only those that are unknown are meant; idemctl list --operation %s shows "+
		"all that have no outcome", line(f.Operation))
	pages := s.pages(ctx, filter.filter(s.now()), "", 0)
	if m.Decision != "" {
		none = "idemctl changes names the decisions; --since says how long ago this one was made, if that is more than a day"
		filter.State = nil
		pages = s.decided(ctx, filter.filter(s.now()), m)
	}
	var found reconcile.Page
	for l, err := range pages {
		if err != nil {
			return fmt.Errorf("the records could not be listed, and nothing was changed: %w", err)
		}
		found.Unreadable = append(found.Unreadable, l.Unreadable...)
		if found.Records = append(found.Records, l.Records...); len(found.Records) > m.Limit {
			break
		}
	}
	view.Sort(found.Records)
	switch {
	case len(found.Records)+len(found.Unreadable) == 0:
		return fmt.Errorf("there is no such record, and nothing was changed: %s", none)
	case len(found.Records) > m.Limit:
		return fmt.Errorf("there are more than %s, and nothing was changed: narrow it with --tenant, --older or --state, "+
			"or raise --limit", plural(m.Limit, "record"))
	}
	todo, err := s.plan(ctx, found, d)
	switch {
	case err != nil:
		return err
	case len(todo) == 0:
		return fmt.Errorf("there is nothing to change: of %s, %d cannot be changed so", plural(len(found.Records), "record"),
			len(found.Records))
	}
	shown := s.aside()
	shown.signed(by)
	var of []string
	for _, p := range todo {
		of = append(of, p.ID, p.write, all(p.records))
	}
	if c.DryRun {
		shown.dryRun(of)
		return s.changedMany(todo, seen(of))
	}
	if slices.ContainsFunc(todo, func(p planned) bool { return p.unanswered }) {
		return errUnanswered
	}
	if err := s.confirm(ctx, "records to change", len(todo), of, c.Seen); err != nil {
		return err
	}
	by.DecisionID = seen(of)
	done, failed := s.carryOutEach(ctx, todo, by)
	if len(done) > 0 {
		shown.field("Decision", "%s: resolve --again --decision %s --operation %s --limit %d replaces it, where no call "+
			"has claimed the record since.",
			by.DecisionID, by.DecisionID, line(f.Operation), len(done))
	}
	if err := s.changedMany(done, ""); err != nil {
		return err
	}
	switch left := len(todo) - len(done) - failed; {
	case left > 0:
		return fmt.Errorf("interrupted: %s were not changed", plural(left, "record"))
	case failed > 0:
		return fmt.Errorf("%s could not be changed", plural(failed, "record"))
	}
	return nil
}

// decided lists the records whose outcome is an earlier decision of many.
func (s *session) decided(ctx context.Context, f reconcile.Filter, m manyFlags) pages {
	by := reconcile.Change{DecisionID: m.Decision}
	return func(yield func(reconcile.Page, error) bool) {
		met := map[string]bool{}
		for a, err := range s.changes(ctx, s.now().Add(-cmp.Or(m.Since, 24*time.Hour))) {
			if err == nil && (!by.Made(a) || met[a.ID]) {
				continue
			}
			met[a.ID] = true
			var l reconcile.Page
			if err == nil {
				l, err = s.stillDecided(ctx, f, by, a.ID)
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// stillDecided reads the record if its outcome is that decision, and the filter lets it through.
func (s *session) stillDecided(ctx context.Context, f reconcile.Filter, by reconcile.Change,
	id string) (l reconcile.Page, err error) {
	rec, err := s.records.Lookup(ctx, id)
	switch {
	case errors.Is(err, idem.ErrRecordUnreadable):
		return reconcile.Page{Unreadable: []string{id}}, nil
	case err != nil || rec == nil || !f.Matches(rec):
		return l, err
	}
	history, err := s.records.History(ctx, id)
	if err != nil {
		return l, err
	}
	if last := lastDecision(history); !rec.Resolved || last.Unconfirmed || !by.Made(last) ||
		last.Change != protocol.ChangeResolved {
		s.aside().item(view.Plain(id) +
			": its outcome is not that decision any more, or its history does not tell: look with idemctl history")
		return l, nil
	}
	return reconcile.Page{Records: []*idem.Record{rec}}, nil
}

// lastDecision is the last entry that may be of the record's outcome. One that cannot be read may.
func lastDecision(history []protocol.Audit) (last protocol.Audit) {
	for _, a := range history {
		switch a.Change {
		case protocol.ChangeExtended, protocol.ChangeRequeued, protocol.ChangeEscalated:
		default:
			last = a
		}
	}
	return last
}

// seen is what --seen takes of the things that were shown.
func seen(of []string) string {
	h := sha256.New()
	for _, text := range of {
		fmt.Fprintf(h, "%q", text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// all is everything that a resolution of many records says. None has a result or steps.
func all(res reconcile.Resolution) string {
	failure := res.Failure
	res.Failure = nil // what is printed of a pointer within is another one each time
	return fmt.Sprintf("%+v %+v", res, failure)
}

// dryRun says how these, and no others, are confirmed.
func (s *session) dryRun(of []string) {
	fmt.Fprintf(s.out, "Dry run: nothing was written. --seen %s confirms what was shown.\n", seen(of))
}

// confirm asks for the number of things, unless given is what was shown of them before. A number
// alone confirms others that have come since then.
func (s *session) confirm(ctx context.Context, what string, n int, of []string, given string) error {
	switch {
	case given == "":
		return s.ask(ctx, "Type the number of "+what+" them: ", strconv.Itoa(n), "--seen with what --dry-run prints",
			"changed")
	case given != seen(of):
		return errors.New("--seen is of others, of these as they were before, or of another decision, and nothing was " +
			"changed: look again with --dry-run")
	}
	return nil
}

// planned is a change of one of many: of a record, if that is as it was at its write.
type planned struct {
	changed
	action
	write string
}

func (s *session) plan(ctx context.Context, l reconcile.Page, d decision) (todo []planned, err error) {
	shown := s.aside()
	shown.list(l)
	fmt.Fprintln(shown.out)
	for _, rec := range l.Records {
		a, err := d.prepare(rec, d.of(s.records.Explain(rec)))
		if err != nil {
			shown.item(view.Plain(rec.ID) + ": " + view.Plain(err.Error()))
			continue
		}
		todo = append(todo, planned{changed{ID: rec.ID, From: rec.State, To: d.to, Then: a.then}, a, rec.Write})
	}
	if len(todo) > 0 {
		name := decisionName(reconcile.Decision{Change: d.change, To: d.to})
		shown.field("This will", "%s: state %s for %s.", name, shown.state(d.to), plural(len(todo), "record"))
		shown.field("Then", "a call with the key and the same input gets, of the first: %s", view.Plain(todo[0].Then))
		// What is recorded is the same of each, but not what it risks.
		risky := todo[max(0, slices.IndexFunc(todo, func(p planned) bool { return p.caution != "" }))]
		err = shown.risks(ctx, risky.ID, risky.action)
	}
	return todo, err
}

// carryOutEach goes on after a refusal: the others do not depend on it.
func (s *session) carryOutEach(ctx context.Context, todo []planned, by reconcile.Change) (done []planned, failed int) {
	shown := s.aside()
	for _, p := range todo {
		if ctx.Err() != nil {
			break
		}
		by.IfWrite = p.write
		if err := s.carryOut(ctx, p.do, by, "history"); err != nil {
			failed++
			shown.item(line(p.ID) + ": " + line(err.Error()))
			continue
		}
		p.Decision = by.DecisionID
		done = append(done, p)
	}
	fmt.Fprintf(shown.out, "Done: %d of %d.\n", len(done), len(todo))
	return done, failed
}

// changedMany writes the changes as JSON: of a dry run with what --seen takes.
func (s *session) changedMany(all []planned, seen string) error {
	out := []changed{}
	for _, p := range all {
		p.DryRun, p.Seen = seen != "", seen
		out = append(out, p.changed)
	}
	return s.reported(out)
}
