package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
)

// spans are the times over which the overview counts, the shorter one first.
var spans = [...]time.Duration{time.Hour, 24 * time.Hour}

// rateRow is what happened to an operation's open questions within each of the spans.
type rateRow struct {
	Operation                   string
	Opened, Settled, LeftPeople [len(spans)]count
}

// count is a number. More says that not everything was read that it counts.
type count struct {
	Count int
	More  bool
}

// news are the changes of the last day.
type news struct {
	// within are the changes of each span; partial says that there are more of them than one
	// page has.
	within  [len(spans)][]protocol.Audit
	partial [len(spans)]bool
	latest  []protocol.Audit
	read    int
}

// readNews reads the changes of the last day. If there are more than one page of them, it
// reads those of a shorter time too, so that it has the latest ones.
func (c *console) readNews(ctx context.Context) (n news, err error) {
	now := c.opts.Now()
	to := now.Add(time.Second) // with those of now
	for _, span := range []time.Duration{spans[1], spans[0], time.Minute} {
		p, err := c.r.Changes(ctx, now.Add(-span), to, "")
		if err != nil {
			return n, err
		}
		n.read += len(p.Entries)
		n.latest = p.Entries
		for i, within := range spans {
			if within <= span {
				n.within[i], n.partial[i] = after(p.Entries, now.Add(-within)), p.Next != ""
			}
		}
		if p.Next == "" {
			break
		}
	}
	return n, nil
}

// after are those of the changes, which are in the order of time, that are not older.
func after(all []protocol.Audit, at time.Time) []protocol.Audit {
	first := slices.IndexFunc(all, func(a protocol.Audit) bool { return !a.At.Before(at) })
	if first < 0 {
		return nil
	}
	return all[first:]
}

// rates count, by operation, the questions that opened and are still open, those that were
// settled, and those that were escalated. More says that there are open questions
// beyond the ones given.
func (c *console) rates(open []*idem.Record, more bool, n news) (rows []rateRow) {
	now := c.opts.Now()
	byName := map[string]*rateRow{}
	row := func(id string) *rateRow {
		_, name, _ := protocol.ParseRecordID(id)
		if byName[name] == nil {
			byName[name] = &rateRow{Operation: name}
		}
		return byName[name]
	}
	for i, span := range spans {
		for _, rec := range open {
			if !view.Since(rec).Before(now.Add(-span)) {
				row(rec.ID).Opened[i].Count++
			}
		}
		for _, a := range n.within[i] {
			switch {
			case a.Change == protocol.ChangeEscalated:
				row(a.ID).LeftPeople[i].Count++
			case a.Change == protocol.ChangeResolved && (a.From == idem.Unknown || a.From == idem.InProgress): // not a second time
				row(a.ID).Settled[i].Count++
			}
		}
	}
	for _, r := range byName {
		for i := range spans {
			r.Opened[i].More, r.Settled[i].More, r.LeftPeople[i].More = more, n.partial[i], n.partial[i]
		}
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b rateRow) int { return strings.Compare(a.Operation, b.Operation) })
	return rows
}
