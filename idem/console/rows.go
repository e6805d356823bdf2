package console

import (
	"net/url"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
)

// row is a record in a list.
type row struct {
	ID, Short, URL    string
	Operation, Tenant string
	State             state
	Attempt, Probes   int
	Since             moment
	Escalated         bool
	Write, Sweep      string
}

// state is where a record stands, with the words for it.
type state struct {
	Name, Text string
}

// stateOf says of a claim whether its lease is over.
func (c *console) stateOf(rec *idem.Record) state {
	switch {
	case rec == nil:
		return state{"absent", "no record"}
	case rec.State == idem.InProgress && c.r.Lapsed(rec):
		return state{"lapsed", "lease over"}
	case rec.State == idem.InProgress:
		return state{string(rec.State), "in progress"}
	}
	return state{string(rec.State), string(rec.State)}
}

// idRow has what a record's id says.
func (c *console) idRow(id string) row {
	tenant, operation, digest := protocol.ParseRecordID(id)
	return row{ID: id, Short: digest[:min(len(digest), 12)], URL: c.recordURL(id), Operation: operation, Tenant: tenant}
}

func (c *console) rowOf(rec *idem.Record) row {
	r := c.idRow(rec.ID)
	r.State, r.Attempt, r.Probes, r.Since = c.stateOf(rec), rec.Attempt, rec.Probes, c.moment(view.Since(rec))
	r.Escalated, r.Write, r.Sweep = !rec.EscalatedAt.IsZero(), rec.Write, rec.Sweep
	return r
}

// rowsOf are the records, the oldest question first.
func (c *console) rowsOf(recs []*idem.Record) []row {
	view.Sort(recs)
	rows := make([]row, 0, len(recs))
	for _, rec := range recs {
		rows = append(rows, c.rowOf(rec))
	}
	return rows
}

func (c *console) recordURL(id string) string {
	if id == "" {
		return ""
	}
	return c.opts.Prefix + "/record?" + url.Values{"id": {id}}.Encode()
}
