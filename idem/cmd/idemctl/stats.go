package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type statsCmd struct {
	allFlags
	Limit int `default:"10000" help:"Count at most so many records, with a read for each, and at most so many changes."`
}

// stats are what the command says.
type stats struct {
	Paused     []protocol.Pause `json:"paused,omitempty"`
	Groups     []*group         `json:"groups"`
	Oldest     *view.Record     `json:"oldest,omitempty"`
	Unreadable int              `json:"unreadable,omitempty"`
	Partial    bool             `json:"partial,omitempty"`
	// More says that there are more changes than were counted.
	More    bool          `json:"more_changes,omitempty"`
	Changes []changeCount `json:"changes_of_the_last_day"`
}

// group is the records of an operation in a state.
type group struct {
	Operation string     `json:"operation"`
	State     idem.State `json:"state"`
	Count     int        `json:"count"`
	// Those younger than each of the ages, and the others: a sweep should have settled them,
	// the alarm has rung, operators have had a day.
	Under15m  int `json:"under_15m"`
	Under1h   int `json:"under_1h"`
	Under1d   int `json:"under_1d"`
	Older     int `json:"older"`
	Escalated int `json:"escalated"`
	// Abandoned are those that a call would go on with, and for which none has come.
	Abandoned int       `json:"abandoned,omitempty"`
	Since     time.Time `json:"oldest_since"`
}

type changeCount struct {
	Change protocol.Change `json:"change"`
	To     idem.State      `json:"to,omitempty"`
	Count  int             `json:"count"`
}

func (c *statsCmd) check() error { return errors.Join(checkLimit(c.Limit), c.allFlags.check()) }

func (c *statsCmd) Run(ctx context.Context, s *session) error {
	now, n := s.now(), 0
	st := stats{Groups: []*group{}, Changes: []changeCount{}}
	var err error
	if st.Paused, err = s.records.Paused(ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	groups := map[[2]string]*group{}
	var oldest *idem.Record
	pages := s.pages(ctx, reconcile.Filter{}, "", 0)
	if c.All {
		pages = s.scan(ctx, reconcile.Filter{}, c.allFlags)
	}
	for l, err := range pages {
		if err != nil {
			return err
		}
		st.Unreadable += len(l.Unreadable)
		l.Records = slices.DeleteFunc(l.Records, func(rec *idem.Record) bool {
			return !rec.Open() && rec.State != idem.InProgress
		})
		st.Partial = n+len(l.Records) > c.Limit
		for _, rec := range l.Records[:min(len(l.Records), c.Limit-n)] {
			n++
			id, _ := protocol.LiveID(rec.ID)
			_, operation, _ := protocol.ParseRecordID(id)
			g := groups[[2]string{operation, string(rec.State)}]
			if g == nil {
				g = &group{Operation: operation, State: rec.State, Since: view.Since(rec)}
				groups[[2]string{operation, string(rec.State)}] = g
			}
			g.add(rec, now)
			if oldest == nil || view.Since(rec).Before(view.Since(oldest)) {
				oldest = rec
			}
		}
		if st.Partial {
			break
		}
	}
	if oldest != nil {
		st.Oldest = new(view.Of(oldest, view.Reveal{}))
	}
	st.Groups = slices.AppendSeq(st.Groups, maps.Values(groups))
	slices.SortFunc(st.Groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	counts, read := map[changeCount]int{}, 0
	for a, err := range s.changes(ctx, now.Add(-24*time.Hour)) {
		if err != nil {
			return err
		}
		if st.More = read == c.Limit; st.More {
			break
		}
		read++
		counts[changeCount{Change: a.Change, To: a.To}]++
	}
	for k, n := range counts {
		st.Changes = append(st.Changes, changeCount{k.Change, k.To, n})
	}
	slices.SortFunc(st.Changes, func(a, b changeCount) int {
		return cmp.Or(cmp.Compare(a.Change, b.Change), cmp.Compare(a.To, b.To))
	})
	err = s.print(st, func() { s.stats(st) })
	if !c.All && err == nil && len(st.Groups) == 0 {
		say(s.err, "Claims that are not watched, no index has: --all reads the whole table.")
	}
	return err
}

func (g *group) add(rec *idem.Record, now time.Time) {
	g.Count++
	if !rec.EscalatedAt.IsZero() {
		g.Escalated++
	}
	if abandoned(rec, now) {
		g.Abandoned++
	}
	if view.Since(rec).Before(g.Since) {
		g.Since = view.Since(rec)
	}
	switch age := now.Sub(view.Since(rec)); {
	case age < 15*time.Minute:
		g.Under15m++
	case age < time.Hour:
		g.Under1h++
	case age < 24*time.Hour:
		g.Under1d++
	default:
		g.Older++
	}
}

// abandoned reports whether a call would go on with the record. Had one come, it would be another record.
func abandoned(rec *idem.Record, now time.Time) bool {
	ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: rec.Fingerprint, Repeat: rec.Repeat,
		Margin: idem.DefaultMargin}
	if rec.Accepted() {
		ev.Kind = protocol.EventWork
	}
	return rec.State != idem.Pending && protocol.Next(rec, ev, now).Do == protocol.DoTakeOver
}

func (s *session) stats(st stats) {
	for _, p := range st.Paused {
		s.pause(p)
		fmt.Fprintln(s.out)
	}
	t := newTable(s.out)
	t.AppendHeader(table.Row{"operation", "state", "all", "<15m", "<1h", "<1d", "older", "escalated", "oldest"})
	for _, g := range st.Groups {
		age := s.now().Sub(g.Since)
		t.AppendRow(table.Row{
			text.Trim(line(g.Operation), 22), s.state(g.State), g.Count, g.Under15m, g.Under1h, g.Under1d, g.Older, g.Escalated,
			view.Span(max(age, 0)),
		})
	}
	if len(st.Groups) > 0 {
		t.Render()
	} else {
		fmt.Fprintln(s.out, "Nothing is without an outcome.")
	}
	if st.Partial {
		say(s.out, "There are more, and older ones may be among them: raise --limit.")
	}
	if st.Unreadable > 0 {
		say(s.out, "%s cannot be read: list shows which.", plural(st.Unreadable, "record"))
	}
	if st.Oldest != nil {
		fmt.Fprintln(s.out)
		s.field("Oldest", "%s", line(st.Oldest.ID))
	}
	s.abandoned(st.Groups)
	fmt.Fprintln(s.out)
	if len(st.Changes) == 0 {
		fmt.Fprintln(s.out, "No changes from outside in the last day.")
		return
	}
	fmt.Fprintln(s.out, "Changes from outside in the last day:")
	for _, c := range st.Changes {
		what := string(c.Change)
		if c.To != idem.Absent {
			what += " to " + string(c.To)
		}
		s.item(fmt.Sprintf("%s: %d", view.Plain(what), c.Count))
	}
	if st.More {
		say(s.out, "There are more, and these are the first ones: raise --limit.")
	}
}

// abandoned writes how many of each operation wait for a call.
func (s *session) abandoned(groups []*group) {
	byOperation := map[string]int{}
	for _, g := range groups {
		if g.Abandoned > 0 {
			byOperation[g.Operation] += g.Abandoned
		}
	}
	if len(byOperation) == 0 {
		return
	}
	fmt.Fprintln(s.out)
	fmt.Fprintln(s.out, "Abandoned: a call would go on with them, and none has come.")
	for _, name := range slices.Sorted(maps.Keys(byOperation)) {
		s.item(fmt.Sprintf("%s: %d", line(name), byOperation[name]))
	}
}
