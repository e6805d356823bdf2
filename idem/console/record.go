package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// recordView is all that the page of a record shows.
type recordView struct {
	ID, Operation, Tenant string
	State                 state
	Record                *idem.Record `json:"-"`
	Write, Sweep          string
	Tokens                []view.Token
	Created, Updated      moment
	Lease, Expires, Open  moment
	Escalated             moment
	Summary               string
	SameInput, OtherInput string
	Decisions             []decisionView
	Steps                 []stepView
	Messages              []messageView
	MoreMessages          bool
	Timeline              []happening
	// Done is the change that the operator comes from making.
	Done *happening `json:"-"`
	// Shown is what was asked for: the value, the result or a step's.
	Shown *shown `json:"-"`
	// ShowErrors says that the messages of errors were asked for.
	ShowErrors                    bool `json:"-"`
	HasResult, HTTP               bool
	ResultURL, ValueURL, ErrorURL string
}

type decisionView struct {
	reconcile.Decision
	Verb, URL string
	Danger    bool
}

type stepView struct {
	view.Step
	Begun moment
	URL   string
}

type messageView struct {
	view.Message
	Sent moment
}

// happening is an entry of a record's timeline.
type happening struct {
	At                          moment
	What, Text                  string
	Who, Why, Tool, Ref, Change string
	Coming                      bool
}

// shown is a result or a value.
type shown struct {
	Name, Text string
	Bytes      int
}

func (c *console) record(r *http.Request) (*page, error) {
	q := r.URL.Query()
	id := q.Get("id")
	rec, err := c.lookup(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		id = rec.ID // it may have moved
	}
	history, err := c.r.History(r.Context(), id)
	if err != nil {
		return nil, err
	}
	messages, more, err := c.r.Messages(r.Context(), id, "")
	if err != nil {
		return nil, err
	}
	body := c.view(id, rec, history)
	body.MoreMessages = more != ""
	for _, e := range messages {
		m := messageView{Message: view.MessageOf(e)}
		if !m.SentAt.IsZero() {
			m.Sent = c.moment(m.SentAt)
		}
		body.Messages = append(body.Messages, m)
	}
	made := reconcile.Change{DecisionID: q.Get("done")}.Made
	if i := slices.IndexFunc(history, func(a protocol.Audit) bool { return made(a) && !a.Unconfirmed }); i >= 0 {
		done := c.happening(history[i])
		body.Done = &done
	}
	body.ShowErrors = q.Get("show") == "error"
	if body.Shown, err = c.asked(r, rec); err != nil {
		return nil, err
	}
	p := c.page(r, "record", "Record of "+body.Operation, body)
	if rec == nil && len(history)+len(messages) == 0 {
		p.Status = http.StatusNotFound
	}
	p.read = 1 + len(history) + len(messages)
	return p, c.follow(p, "record", url.Values{"id": {id}})
}

// maxID bounds a record's id in bytes: DynamoDB's limit for a partition key.
const maxID = 2048

func checkID(id string) error {
	_, operation, _ := protocol.ParseRecordID(id)
	switch {
	case operation == "":
		return problem{Status: http.StatusBadRequest, Title: "No record's id",
			Text: "An id has a tenant, an operation and a digest, joined with #. The tenant may be empty."}
	case len(id) > maxID || !utf8.ValidString(id):
		return problem{Status: http.StatusBadRequest, Title: "No record's id",
			Text: fmt.Sprintf("An id has at most %d bytes, of valid UTF-8.", maxID)}
	}
	return nil
}

// lookup reads the record; nil if there is none.
func (c *console) lookup(ctx context.Context, id string) (*idem.Record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return c.r.Lookup(ctx, id)
}

func (c *console) view(id string, rec *idem.Record, history []protocol.Audit) *recordView {
	tenant, operation, _ := protocol.ParseRecordID(id)
	e := c.r.Explain(rec)
	v := &recordView{
		ID: id, Operation: operation, Tenant: tenant, State: c.stateOf(rec), Record: rec,
		Summary: e.Summary, SameInput: e.SameInput, OtherInput: e.OtherInput,
	}
	if rec != nil {
		v.Write, v.Sweep = rec.Write, rec.Sweep
		v.Created, v.Updated, v.Lease = c.moment(rec.CreatedAt), c.moment(rec.UpdatedAt), c.moment(rec.LeaseUntil)
		v.Expires, v.Open, v.Escalated = c.moment(rec.ExpiresAt), c.moment(rec.OpenSince), c.moment(rec.EscalatedAt)
		v.HTTP = view.OverHTTP(rec.Codec)
		v.HasResult = rec.State == idem.Completed && !rec.Omitted
		// The page leaves the messages out, unless it is asked for them.
		shown := view.Of(rec, view.Reveal{ShowError: true})
		v.Tokens, v.Steps = shown.Tokens(), c.steps(rec.ID, shown.Steps)
		v.ValueURL, v.ResultURL, v.ErrorURL = c.showURL(id, "value", "shown"), c.showURL(id, "result", "shown"),
			c.showURL(id, "error", "failure")
		for _, d := range e.Decisions {
			form := url.Values{"id": {id}, "to": {targetOf(d)}}
			v.Decisions = append(v.Decisions, decisionView{
				Decision: c.forOperators(rec, d), Verb: verb(targetOf(d), dangerous(d)), Danger: dangerous(d),
				URL: c.opts.Prefix + "/act?" + form.Encode(),
			})
		}
	}
	slices.SortStableFunc(v.Decisions,
		func(a, b decisionView) int { return cmp.Compare(min(len(a.Refused), 1), min(len(b.Refused), 1)) })
	v.Timeline = c.timeline(rec, e, history)
	return v
}

func (c *console) showURL(id, what, at string) string {
	return c.opts.Prefix + "/record?" + url.Values{"id": {id}, "show": {what}}.Encode() + "#" + at
}

func (c *console) steps(id string, steps []view.Step) (all []stepView) {
	for _, s := range steps {
		v := stepView{Step: s}
		if !s.BegunAt.IsZero() {
			v.Begun = c.moment(s.BegunAt)
		}
		if s.HasResult {
			v.URL = c.showURL(id, "step:"+s.Name, "shown")
		}
		all = append(all, v)
	}
	return all
}

// maxHistory is how many changes of a record its page shows, the latest ones.
const maxHistory = 200

// timeline is what has happened to the record, and what time does to it.
func (c *console) timeline(rec *idem.Record, e reconcile.Explanation, history []protocol.Audit) (all []happening) {
	if rec != nil {
		all = append(all, happening{At: c.moment(rec.CreatedAt), What: "Claimed", Text: "The first attempt claimed the key."})
		for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
			if s := rec.Steps[name]; !s.BegunAt.IsZero() {
				all = append(all, happening{At: c.moment(s.BegunAt), What: "Step began", Text: name})
			}
		}
		parked := slices.ContainsFunc(history,
			func(a protocol.Audit) bool { return a.Change == protocol.ChangeParked && a.At.Equal(rec.OpenSince) })
		if rec.Open() && !rec.OpenSince.IsZero() && !parked {
			all = append(all, happening{At: c.moment(rec.OpenSince), What: "Open question",
				Text: fmt.Sprintf("Attempt %d ended without outcome.", rec.Attempt)})
		}
		if rec.State == idem.InProgress && rec.LeaseUntil.Before(c.opts.Now()) {
			all = append(all, happening{At: c.moment(rec.LeaseUntil), What: "Lease over",
				Text: fmt.Sprintf("Attempt %d left no outcome until then.", rec.Attempt)})
		}
		if !rec.Open() && rec.State != idem.InProgress && !rec.Resolved {
			all = append(all, happening{At: c.moment(rec.UpdatedAt), What: "Ended",
				Text: fmt.Sprintf("Attempt %d ended: %s.", rec.Attempt, rec.State)})
		}
	}
	if earlier := len(history) - maxHistory; earlier > 0 {
		history = history[earlier:]
		all = append(all, happening{At: c.moment(history[0].At), What: "Changes before",
			Text: fmt.Sprintf("%d of them: idemctl history shows them.", earlier)})
	}
	for _, a := range history {
		all = append(all, c.happening(a))
	}
	for _, ch := range e.Changes {
		if ch.At.Year() < 9999 {
			all = append(all, happening{At: c.moment(ch.At), What: "To come", Text: ch.What, Coming: true})
		}
	}
	slices.SortStableFunc(all, func(a, b happening) int { return a.At.At.Compare(b.At.At) })
	return all
}

// happening is a change by an operator, a webhook or a sweep.
func (c *console) happening(a protocol.Audit) happening {
	h := happening{At: c.moment(a.At), Who: a.Who, Why: a.Why, Tool: a.Tool, Ref: a.Ref, Change: string(a.Change)}
	h.What, h.Text = view.Change(a)
	h.Text = strings.Join(append([]string{h.Text}, view.Steps(a)...), " ")
	return h
}

// asked reads what the request asks to see.
func (c *console) asked(r *http.Request, rec *idem.Record) (*shown, error) {
	what := r.URL.Query().Get("show")
	if what == "" || rec == nil {
		return nil, nil
	}
	step, isStep := strings.CutPrefix(what, "step:")
	recorded, known := rec.Steps[step]
	var body []byte
	var err error
	s := &shown{Name: what}
	switch {
	case what == "value":
		s.Name, body = "Value of the caller", []byte(rec.Value)
	case what == "result" && rec.State == idem.Completed && !rec.Omitted:
		s.Name = "Result"
		body, err = c.r.Result(r.Context(), rec)
	case isStep && known && recorded.Done():
		s.Name = "Result of step " + step
		body, err = c.r.StepResult(r.Context(), rec, step)
	default:
		return nil, nil
	}
	if rec.Sealed && errors.Is(err, idem.ErrRecordUnreadable) {
		s.Text = "(encrypted, and the console's store has no key for it)"
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.Bytes, s.Text = len(body), "(not a text)"
	if utf8.Valid(body) {
		s.Text = string(body)
	}
	if res, err := idemhttp.Decode(protocol.Encoded{Body: body, Codec: rec.Codec}); err == nil && what == "result" {
		r := view.ResponseOf(res)
		s.Text = strings.Join(r.Head(), "\n") + "\n\n" + cmp.Or(r.Body, "(no text)")
	}
	return s, nil
}

// isStale reports whether the change was refused because the record is another one by now.
func isStale(err error) bool {
	return slices.ContainsFunc([]error{
		reconcile.ErrChanged, reconcile.ErrNotUnknown, reconcile.ErrNotFound, reconcile.ErrOpen, reconcile.ErrExpired,
	}, func(stale error) bool { return errors.Is(err, stale) })
}
