package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// overviewReads is how many entries of the index the overview reads at most.
	overviewReads = 1000
	// overviewChanges is how many changes it shows.
	overviewChanges = 10
	// overviewOldest is how many questions it names.
	overviewOldest = 10
)

// ages are the limits of the columns of the overview.
var ages = []struct {
	Name, Param string
	Over        time.Duration
}{
	{"under 15 min", "", 0}, {"15 min to 1 h", "15m", 15 * time.Minute}, {"1 h to 1 d", "1h", time.Hour},
	{"over 1 d", "24h", 24 * time.Hour},
}

// overview is what is open, by operation and age.
type overview struct {
	Paused                           []pauseRow
	Open, Escalated, Lapsed, Running int
	Oldest                           moment
	Ages                             []string
	Operations                       []operationRow
	Records                          []row
	Unreadable                       []row
	// Changes are the latest ones by operators, webhooks and sweeps.
	Changes []changed
	// Rates are what happened in the last hour and in the last day.
	Rates []rateRow
	// More says that there is more in the index than was read.
	More bool
	Read int
}

// operationRow counts an operation's records.
type operationRow struct {
	Operation string
	Cells     []cell // open questions, by age
	Escalated cell
	Lapsed    cell
	Running   cell
	Oldest    moment
}

// cell is a number, with the address of the list that it counts.
type cell struct {
	Count int
	URL   string
}

func (c *console) overview(r *http.Request) (*page, error) {
	recs, body, err := c.readOpen(r.Context())
	if err != nil {
		return nil, err
	}
	now := c.opts.Now()
	operations := map[string]*operationRow{}
	var open []*idem.Record
	for _, rec := range recs {
		_, name, _ := protocol.ParseRecordID(rec.ID)
		o := operations[name]
		if o == nil {
			o = c.operationRow(name)
			operations[name] = o
		}
		switch {
		case rec.Open():
			open = append(open, rec)
			body.Open++
			o.Cells[ageOf(now.Sub(view.Since(rec)))].Count++
			if o.Oldest.IsZero() || view.Since(rec).Before(o.Oldest.At) {
				o.Oldest = c.moment(view.Since(rec))
			}
		case c.r.Lapsed(rec):
			body.Lapsed++
			o.Lapsed.Count++
		default:
			body.Running++
			o.Running.Count++
		}
		if !rec.EscalatedAt.IsZero() {
			body.Escalated++
			o.Escalated.Count++
		}
	}
	for _, o := range operations {
		body.Operations = append(body.Operations, *o)
	}
	slices.SortFunc(body.Operations, func(a, b operationRow) int { return strings.Compare(a.Operation, b.Operation) })
	body.Records = c.rowsOf(open)
	if len(body.Records) > 0 {
		body.Oldest = body.Records[0].Since
	}
	body.Records = body.Records[:min(len(body.Records), overviewOldest)]
	if body.Paused, err = c.paused(r.Context()); err != nil {
		return nil, err
	}
	p := c.page(r, "overview", "Overview", body)
	n, err := c.readNews(r.Context())
	if err != nil {
		return nil, err
	}
	body.Changes, body.Rates = c.latest(n.latest), c.rates(open, body.More, n)
	p.read = body.Read + n.read + 1
	return p, c.follow(p, "", nil)
}

// readOpen reads what the index holds, up to a bound.
func (c *console) readOpen(ctx context.Context) ([]*idem.Record, *overview, error) {
	body := &overview{}
	for _, a := range ages {
		body.Ages = append(body.Ages, a.Name)
	}
	var recs []*idem.Record
	for next := ""; ; {
		l, err := c.r.List(ctx, reconcile.Filter{Limit: overviewReads - body.Read}, next)
		if err != nil {
			return nil, nil, err
		}
		recs = append(recs, l.Records...)
		for _, id := range l.Unreadable {
			body.Unreadable = append(body.Unreadable, c.unreadable(id))
		}
		body.Read += l.Read
		if next = l.Next; next == "" || body.Read >= overviewReads {
			body.More = next != ""
			return recs, body, nil
		}
	}
}

// changed is a change, with its record.
type changed struct {
	happening
	Record row
}

// latest are the latest of the changes, the latest first.
func (c *console) latest(changes []protocol.Audit) (all []changed) {
	for _, a := range slices.Backward(changes[max(0, len(changes)-overviewChanges):]) {
		all = append(all, changed{c.happening(a), c.idRow(a.ID)})
	}
	return all
}

// unreadable is a record that cannot be read.
func (c *console) unreadable(id string) row {
	r := c.idRow(id)
	r.State = state{"unreadable", "unreadable"}
	return r
}

func (c *console) operationRow(name string) *operationRow {
	list := func(more ...string) cell {
		q := url.Values{"operation": {name}}
		for i := 0; i+1 < len(more); i += 2 {
			q.Set(more[i], more[i+1])
		}
		return cell{URL: c.opts.Prefix + "/list?" + q.Encode()}
	}
	o := &operationRow{Operation: name, Escalated: list("escalated", "1"), Lapsed: list("state", string(idem.InProgress)),
		Running: list("state", string(idem.InProgress))}
	for _, a := range ages {
		o.Cells = append(o.Cells, list("older", a.Param))
	}
	return o
}

func ageOf(d time.Duration) int {
	for i := len(ages) - 1; i > 0; i-- {
		if d >= ages[i].Over {
			return i
		}
	}
	return 0
}

// spans are the times over which the overview counts, the shorter one first.
var spans = [...]time.Duration{time.Hour, 24 * time.Hour}

// rateRow is what happened to an operation's open questions within each of the spans.
type rateRow struct {
	Operation                  string
	Opened, Settled, Escalated [len(spans)]count
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
				row(a.ID).Escalated[i].Count++
			// not a second time
			case a.Change == protocol.ChangeResolved && (a.From == idem.Unknown || a.From == idem.InProgress):
				row(a.ID).Settled[i].Count++
			}
		}
	}
	for _, r := range byName {
		for i := range spans {
			r.Opened[i].More, r.Settled[i].More, r.Escalated[i].More = more, n.partial[i], n.partial[i]
		}
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b rateRow) int { return strings.Compare(a.Operation, b.Operation) })
	return rows
}
