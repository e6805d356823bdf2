package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Compare compares the entries from a time up to another, such as a day, with the records of that time, and
// passes what it finds to found, one after the other. The last one is [Complete]. The order of findings depends on
// neither side's order.
//
// Nothing is found before both sides have been read to the end. If one cannot be read, or found returns
// an error, Compare fails: the report says that it is incomplete, and all can be compared again.
func (l *Ledger) Compare(ctx context.Context, from, to time.Time, found func(Finding) error) (Report, error) {
	c := &comparison{Ledger: l, found: found, now: l.opts.Now(), byName: sorter{memory: l.memory},
		byRecord: sorter{memory: l.memory}, named: newFilter(l.memory),
		report: Report{Operation: l.opts.Operation, From: from.UTC().Round(0), To: to.UTC().Round(0), Incomplete: true}}
	defer c.byName.close()
	defer c.byRecord.close()
	if !from.Before(to) {
		return c.report, invalid("the compared time", "is from %v up to %v: give an end that is later", from, to)
	}
	if over := to.Add(Margin); c.now.Before(over) {
		return c.report, invalid("the compared time", "ends at %v, and entries may still come: compare it from %v on", to,
			over)
	}
	for _, part := range []func(context.Context) error{c.readEntries, c.readRecords, c.match, c.judge} {
		if err := part(ctx); err != nil {
			return c.report, err
		}
	}
	c.report.Incomplete = false
	report := c.report
	err := c.emit(Finding{Kind: Complete, Report: &report})
	c.report.Incomplete = err != nil
	return c.report, err
}

// comparison is one call of Compare. First byName brings entries to the records that have their tokens and
// references, then byRecord all entries of a record together.
type comparison struct {
	*Ledger
	found  func(Finding) error
	now    time.Time
	report Report

	byName, byRecord sorter
	named            filter        // tokens and references of entries
	ofDay            int           // entries of the time itself
	known            int           // records of the operation, of any time
	kept             time.Duration // the shortest retention of those that are completed; zero for none
}

// during reports whether the time is compared itself, and is not in its margins.
func (c *comparison) during(at time.Time) bool {
	return !at.Before(c.report.From) && at.Before(c.report.To)
}

// window is the time with its margins.
func (c *comparison) window() (from, to time.Time) {
	return c.report.From.Add(-Margin), c.report.To.Add(Margin)
}

// earliest is from when entries are read: those before the window are compared with nothing.
func (c *comparison) earliest() time.Time { return c.report.From.Add(-Margin - earlier) }

func (c *comparison) readEntries(ctx context.Context) error {
	from, to := c.window()
	failed := func(err error) error {
		return fmt.Errorf("ledger: the provider's entries cannot be read to the end, so that nothing is reported: %w", err)
	}
	for e, err := range c.opts.Entries(ctx, c.earliest(), to) {
		if err == nil {
			err = e.check()
		}
		switch {
		case err != nil:
			return failed(err)
		case e.At.Before(c.earliest()) || !e.At.Before(to):
			c.report.Ignored++
			continue
		case c.during(e.At):
			c.ofDay++
		}
		e.At = e.At.UTC() // or equal entries are not equal
		names := e.names()
		for _, name := range names {
			if !e.At.Before(from) {
				c.named.add(name)
			}
		}
		if err := add(&c.byName, row{name: names[0], Entry: &e}); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil { // by which an iterator may have ended without an error
		return failed(err)
	}
	return nil
}

func add(s *sorter, r row) error {
	line, err := r.line()
	if err != nil {
		return err
	}
	return s.add(line)
}

// check reports what an entry lacks.
func (e *Entry) check() error {
	name := cmp.Or(e.Ref, e.Token)
	switch err := e.checkTexts(); {
	case err != nil:
		return fmt.Errorf("entry %.40q has %w", name, err)
	case name == "":
		return fmt.Errorf("an entry of %v has neither Token nor Ref: leave out what is not of the operation", e.At)
	case e.At.IsZero():
		return fmt.Errorf("entry %q has no time: set At", name)
	}
	return nil
}

func (c *comparison) readRecords(ctx context.Context) error {
	failed := func(err error) error {
		return fmt.Errorf("ledger: the records cannot be read to the end, so that nothing is reported: %w", err)
	}
	for q := (protocol.ScanQuery{Segments: 1, Results: true}); ; {
		page, err := c.store.Scan(ctx, q)
		if err != nil {
			return failed(err)
		}
		c.report.Units += page.Units
		for _, rec := range page.Records {
			if err := c.readRecord(ctx, rec); err != nil {
				return failed(err)
			}
		}
		for _, id := range page.Unreadable {
			if !c.isOurs(id) {
				continue
			}
			c.known++
			r := &record{ID: id, State: Unreadable, Unread: protocol.ErrRecordUnreadable.Error(),
				Here: Entry{Token: c.opts.Token(&protocol.Record{ID: id})}}
			if err := c.add(r); err != nil {
				return failed(err)
			}
		}
		if q.Page = page.Next; q.Page == "" {
			break
		}
		if err := sleep(ctx, time.Duration(page.Units/c.opts.Rate*float64(time.Second))); err != nil {
			return failed(err)
		}
	}
	return c.complete()
}

// isOurs reports whether the id is of a key of the operation.
func (c *comparison) isOurs(id string) bool {
	_, operation, _ := protocol.ParseRecordID(id) // a record of shadow has none
	return operation == c.opts.Operation && !protocol.IsCheckID(id)
}

// complete reports that the records are not all that there were, as far as they show it.
func (c *comparison) complete() error {
	from, _ := c.window()
	switch {
	case c.known == 0 && c.ofDay > 0:
		return fmt.Errorf("ledger: the provider has %d entries, and the table no record of operation %q: look at the name "+
			"of the operation and the table, or the records have expired", c.ofDay, c.opts.Operation)
	case c.kept > 0 && from.Add(c.kept).Before(c.now):
		return fmt.Errorf("ledger: records of the operation are kept for %v, and those from %v may have been deleted: "+
			"compare them earlier, and set the operation's Retention to three days or more", c.kept, from)
	}
	return nil
}

func (c *comparison) readRecord(ctx context.Context, rec *protocol.Record) error {
	if !c.isOurs(rec.ID) {
		return nil
	}
	c.known++
	from, to := c.window()
	if rec.State == protocol.Completed && !rec.ExpiresAt.IsZero() && !rec.UpdatedAt.Before(from) {
		if kept := rec.ExpiresAt.Sub(rec.UpdatedAt); c.kept == 0 || kept < c.kept {
			c.kept = max(kept, 1)
		}
	}
	r := &record{ID: rec.ID, State: rec.State, Created: rec.CreatedAt,
		Here:    Entry{Token: c.opts.Token(rec), Ref: rec.Ref, At: rec.UpdatedAt},
		Open:    rec.Open() || rec.State == protocol.InProgress,
		Running: rec.State == protocol.InProgress && c.now.Before(rec.LeaseUntil),
		Past:    rec.UpdatedAt.Before(from)}
	if !r.Created.Before(to) || r.Past && !slices.ContainsFunc(r.Here.names(), c.named.has) {
		return nil
	}
	if rec.State == protocol.Completed || rec.State == protocol.Failed {
		x, unread, err := c.expected(ctx, rec)
		if err != nil {
			return err
		}
		r.Effect, r.Unread, r.Here.Value, r.Here.State = x.Effect, unread, x.Value, x.State
	}
	return c.add(r)
}

// add adds a record to both sorts.
func (c *comparison) add(r *record) error {
	if err := r.Here.checkTexts(); err != nil {
		return fmt.Errorf("record %q has or expects %w", r.ID, err)
	}
	if err := add(&c.byRecord, row{name: r.ID, Record: r}); err != nil {
		return err
	}
	named := &record{ID: r.ID, State: r.State, Effect: r.Effect, Past: r.Past,
		Here: Entry{Token: r.Here.Token, Ref: r.Here.Ref, At: r.Here.At}}
	for _, name := range r.Here.names() {
		if err := add(&c.byName, row{name: name, Record: named}); err != nil {
			return err
		}
	}
	return nil
}

// match brings each entry to its record, and finds those without one, and records that share a name.
func (c *comparison) match(context.Context) error {
	var name, same string
	var owner, last *record
	var before *Entry
	for line, err := range c.byName.sorted() {
		r, failed := parse(line)
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
		if line == same && (r.Record != nil || r.Entry.Ref != "" && !c.opts.Distinct) { // pages overlap
			continue
		}
		same = line
		if r.name != name {
			name, owner, last, before = r.name, nil, nil, nil
		}
		if r.Record != nil {
			if owner == nil {
				owner, last = r.Record, r.Record
			}
			if r.Record.Effect && r.Record.ID != last.ID {
				err = c.shared(owner, r.Record)
			}
			last = r.Record
		} else {
			if from, _ := c.window(); !r.Entry.At.Before(from) {
				c.report.Entries++
			}
			switch {
			case owner != nil:
				err = add(&c.byRecord, row{name: owner.ID, Entry: r.Entry})
			case !c.during(r.Entry.At):
			case before == nil:
				err = c.emit(Finding{Kind: MissingHere, There: r.Entry})
			default:
				err = c.emit(Finding{Kind: Doubled, There: r.Entry, First: before})
			}
			before = r.Entry
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shared finds two records that have one token or reference. It is of the day of the later one.
func (c *comparison) shared(owner, r *record) error {
	at := r.Here.At
	if owner.Here.At.After(at) {
		at = owner.Here.At
	}
	if !c.during(at) {
		return nil
	}
	return c.emit(Finding{Kind: Doubled, Record: r.ID, RecordState: r.State, Here: &r.Here, FirstRecord: owner.ID})
}

// judge looks at each record with all of its entries.
func (c *comparison) judge(context.Context) error {
	var rec *record
	var before *Entry
	for line, err := range c.byRecord.sorted() {
		r, failed := parse(line)
		switch err = cmp.Or(err, failed); {
		case err != nil:
			return err
		case r.Record != nil && (rec == nil || rec.ID != r.Record.ID):
			if err := c.alone(rec, before); err != nil {
				return err
			}
			rec, before = r.Record, nil
			if !rec.Past {
				c.report.Records++
			}
		case r.Record != nil:
			// A scan may have two states of a record that is written during it.
			if r.Record.Here.At.After(rec.Here.At) {
				rec = r.Record
			}
		default:
			if c.during(r.Entry.At) {
				if err := c.pair(rec, r.Entry, before); err != nil {
					return err
				}
			}
			before = r.Entry
		}
	}
	return c.alone(rec, before)
}

// pair judges an entry of a record. before is the one before it, nil if it is the first.
func (c *comparison) pair(rec *record, e, before *Entry) error {
	f := Finding{Record: rec.ID, RecordState: rec.State, Here: &rec.Here, There: e, First: before}
	differ := func(here, there string) bool { return here != "" && there != "" && here != there }
	switch {
	case before != nil || rec.Past && rec.Effect:
		f.Kind = Doubled
	case rec.Running:
		f.Kind = Open
	case rec.Unread != "":
		f.Kind, f.Why = Unread, rec.Unread
	case !rec.Effect:
		f.Kind = MissingHere
	default:
		c.report.Compared++
		switch {
		case differ(rec.Here.Value, e.Value) || differ(rec.Here.State, e.State):
			f.Kind = Different
		case rec.Created.Before(c.earliest().Add(Margin)):
			f.Kind = Undecided
		default:
			return nil
		}
	}
	return c.emit(f)
}

// alone judges a record for which the provider has nothing.
func (c *comparison) alone(rec *record, e *Entry) error {
	if rec == nil || e != nil {
		return nil
	}
	f := Finding{Record: rec.ID, RecordState: rec.State, Here: &rec.Here}
	switch {
	case rec.State == Unreadable || rec.Open && c.during(rec.Here.At):
		f.Kind = Open
	case !rec.Effect || !c.during(rec.Here.At):
		return nil
	case rec.Created.Before(c.earliest().Add(Margin)):
		f.Kind = Undecided
	default:
		f.Kind = MissingThere
	}
	return c.emit(f)
}

// emit passes a finding on.
func (c *comparison) emit(f Finding) error {
	c.report.count(f.Kind)
	if err := c.found(f); err != nil {
		return fmt.Errorf("ledger: the findings cannot be passed on: %w", err)
	}
	return nil
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
