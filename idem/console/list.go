package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// listed is a page of a list, with its filter.
type listed struct {
	Operation, Tenant   string
	NoTenant, Escalated bool
	States              []choice
	Older               []choice
	Rows                []row
	Unreadable          []row
	Read                int
	Next                string // address of the next page
	First               string // address of the first page, on another one
}

// choice is one of a select.
type choice struct {
	Value, Text string
	Chosen      bool
}

// states that a record of the index can have.
var states = []choice{
	{Value: "", Text: "all"}, {Value: string(idem.Unknown), Text: "unknown"},
	{Value: string(idem.InProgress), Text: "in progress"},
	{Value: string(idem.Released), Text: "released, with steps"}, {Value: string(idem.Pending), Text: "pending"},
}

// olders are the ages to choose from.
var olders = []choice{
	{Value: "", Text: "any"}, {Value: "15m", Text: "15 minutes"}, {Value: "1h", Text: "1 hour"},
	{Value: "4h", Text: "4 hours"}, {Value: "24h", Text: "1 day"}, {Value: "168h", Text: "7 days"},
}

func choose(all []choice, value string) ([]choice, error) {
	out, found := make([]choice, len(all)), false
	for i, ch := range all {
		ch.Chosen = ch.Value == value
		found = found || ch.Chosen
		out[i] = ch
	}
	if !found {
		return nil, problem{Status: http.StatusBadRequest, Title: "Not understood",
			Text: fmt.Sprintf("%q is none of the choices.", value)}
	}
	return out, nil
}

func (c *console) list(r *http.Request) (*page, error) {
	q := r.URL.Query()
	body := &listed{
		Operation: strings.TrimSpace(q.Get("operation")), Tenant: strings.TrimSpace(q.Get("tenant")),
		NoTenant: q.Get("no_tenant") == "1", Escalated: q.Get("escalated") == "1",
	}
	var err error
	if body.States, err = choose(states, q.Get("state")); err != nil {
		return nil, err
	}
	if body.Older, err = choose(olders, q.Get("older")); err != nil {
		return nil, err
	}
	filter := reconcile.Filter{Escalated: body.Escalated}
	if body.Operation != "" {
		filter.Operations = []string{body.Operation}
	}
	if body.Tenant != "" {
		filter.Tenants = append(filter.Tenants, body.Tenant)
	}
	if body.NoTenant {
		filter.Tenants = append(filter.Tenants, "")
	}
	if s := q.Get("state"); s != "" {
		filter.States = []idem.State{idem.State(s)}
	}
	if older, err := time.ParseDuration(q.Get("older")); err == nil {
		filter.Before = c.opts.Now().Add(-older)
	}
	found, err := c.r.List(r.Context(), filter, q.Get("page"))
	if err != nil {
		return nil, err
	}
	body.Rows, body.Read = c.rowsOf(found.Records), found.Read
	for _, id := range found.Unreadable {
		body.Unreadable = append(body.Unreadable, c.unreadable(id))
	}
	if found.Next != "" {
		body.Next = c.listURL(q, found.Next)
	}
	if q.Get("page") != "" {
		body.First = c.listURL(q, "")
	}
	p := c.page(r, "list", "Open questions and claims", body)
	p.read = found.Read
	return p, c.follow(p, "list", q)
}

// listURL is the address of a page of the list with the filter of the query.
func (c *console) listURL(query url.Values, page string) string {
	q := url.Values{}
	for _, name := range []string{"operation", "tenant", "no_tenant", "state", "older", "escalated"} {
		if v := query.Get(name); v != "" {
			q.Set(name, v)
		}
	}
	if page != "" {
		q.Set("page", page)
	}
	return c.opts.Prefix + "/list?" + q.Encode()
}

// find leads to the record of a key. The caller's value comes in the body, so that no log of
// addresses has it.
func (c *console) find(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return problem{Status: http.StatusBadRequest, Title: "Not understood", Text: "The form cannot be read."}
	}
	id := strings.TrimSpace(r.PostForm.Get("id"))
	if id == "" {
		tenant := cmp.Or(r.PostForm.Get("tenant"), idem.SingleTenant)
		value := idemhttp.KeyValue(r.PostForm.Get("principal"), r.PostForm.Get("value"))
		key := idem.Operation{Name: r.PostForm.Get("operation")}.Key(tenant, value)
		if err := key.Err(); err != nil {
			return problem{Status: http.StatusUnprocessableEntity, Title: "No such key", Text: err.Error()}
		}
		id = key.ID()
	}
	if err := checkID(id); err != nil {
		return err
	}
	http.Redirect(w, r, c.recordURL(id), http.StatusSeeOther)
	return nil
}

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
	r := row{ID: id, Short: digest[:min(len(digest), 12)], URL: c.recordURL(id), Operation: operation, Tenant: tenant}
	if protocol.IsPauseID(id) {
		r.URL = c.opts.Prefix + "/pauses"
	}
	return r
}

// rowsOf are the records, the oldest question first.
func (c *console) rowsOf(recs []*idem.Record) []row {
	view.Sort(recs)
	rows := make([]row, 0, len(recs))
	for _, rec := range recs {
		r := c.idRow(rec.ID)
		r.State, r.Attempt, r.Probes, r.Since = c.stateOf(rec), rec.Attempt, rec.Probes, c.moment(view.Since(rec))
		r.Escalated, r.Write, r.Sweep = !rec.EscalatedAt.IsZero(), rec.Write, rec.Sweep
		rows = append(rows, r)
	}
	return rows
}

func (c *console) recordURL(id string) string {
	if id == "" {
		return ""
	}
	return c.opts.Prefix + "/record?" + url.Values{"id": {id}}.Encode()
}
