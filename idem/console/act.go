package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// tool is the Change.Tool of every change.
	tool = "console"
	// maxForm bounds a form in bytes.
	maxForm = 1 << 20
	// formFor is how long a form is taken after it was shown.
	formFor = time.Hour
	// writeFor bounds a change. It goes on if the browser does not wait for it, as after a
	// second click.
	writeFor = 20 * time.Second
)

// words for what may be decided.
type words struct{ Verb, What string }

// forgotten and extended are the targets of a removal and of an extension, next to the states.
const (
	forgotten = string(protocol.ChangeForgotten)
	extended  = string(protocol.ChangeExtended)
)

// days for which a record can be kept.
var days = []choice{{Value: "7", Text: "7 days"}, {Value: "30", Text: "30 days"}, {Value: "90", Text: "90 days"},
	{Value: "366", Text: "a year"}}

var wordsOf = map[string]words{
	string(idem.Completed): {"Resolve to completed", "It records that the operation took effect."},
	string(idem.Failed):    {"Resolve to failed", "It records that the operation has failed for good."},
	string(idem.Released):  {"Release to the next call", "It records that the operation did not take effect."},
	extended: {"Keep the record longer",
		"It keeps the record, and with it its outcome, longer than its retention."},
	forgotten: {"Forget the record", "It removes the record and its result: a later call runs the handler again."},
}

// verb is what a decision's button says. It is dangerous if it can repeat an effect.
func verb(to string, dangerous bool) string {
	switch {
	case !dangerous:
		return wordsOf[to].Verb
	case to == forgotten:
		return "Danger: forget the record"
	}
	return "Danger: run it again"
}

// dangerous reports whether a decision can repeat an effect. With interrupted steps it depends on what is
// said of them.
func dangerous(d reconcile.Decision) bool { return d.Repeats && len(d.Steps) == 0 }

func targetOf(d reconcile.Decision) string {
	if d.Change == protocol.ChangeResolved {
		return string(d.To)
	}
	return string(d.Change)
}

// action is the form of a decision, with what it says about the record.
type action struct {
	To       string
	Words    words       `json:"-"`
	Record   *recordView `json:"-"`
	Write    string
	Decision reconcile.Decision
	Typed    typed `json:"-"`
	// Preview is what the decision would do as it is typed, if that was asked for.
	Preview *reconcile.Decision `json:"-"`
	// Caution is what the decision risks, as it is typed if that was asked for; Danger that it is a second
	// effect.
	Caution string `json:"-"`
	Danger  bool   `json:"-"`
	// Asks says that the decision wants what the provider answered; Earlier is the one that it replaces.
	Asks    bool
	Earlier string
	// Response is what the preview would record of an HTTP response, Dropped which headers it would not.
	Response *view.Response `json:"-"`
	Dropped  []string       `json:"-"`
	// Resolves says that the decision records an outcome.
	Resolves bool
	Days     []choice `json:"-"`
	Expires  moment
	// Undo are the steps that must have been undone before; MayUndo only if the result is a
	// failure, which is known once it is typed.
	Undo    []string
	MayUndo bool
	// JSON and HTTP say what a result is that can be typed.
	JSON, HTTP   bool
	Seen         string  `json:"-"`
	Issued       string  `json:"-"`
	Token        string  `json:"-"`
	Mistake      mistake `json:"-"`
	BackURL, URL string
}

// form is the page of a decision.
func (c *console) form(r *http.Request) (*page, error) {
	q := r.URL.Query()
	return c.formOf(r, q.Get("id"), q.Get("to"), typed{Known: "no", Days: "30"}, mistake{})
}

func (c *console) formOf(r *http.Request, id, to string, t typed, m mistake) (*page, error) {
	rec, err := c.lookup(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if _, ok := wordsOf[to]; !ok {
		return nil, problem{Status: http.StatusBadRequest, Title: "No such decision",
			Text: "A record is resolved to completed, failed or released, kept longer, or forgotten.", Record: id}
	}
	d := c.decided(rec, to)
	body := &action{
		To: to, Words: wordsOf[to], Record: c.view(id, rec, nil), Decision: d, Typed: t,
		BackURL: c.recordURL(id), URL: c.opts.Prefix + "/act", Mistake: m,
	}
	body.Resolves = to != forgotten && to != extended
	if body.Undo = body.Decision.Undo; to == string(idem.Completed) && len(body.Undo) == 0 &&
		rec != nil && rec.Codec != "" {
		body.Undo, body.MayUndo = c.decided(rec, string(idem.Failed)).Undo, true
	}
	if t.Steps == nil {
		body.Typed.Steps = answersOf(id, body.Decision.Steps, nil)
	}
	for i, step := range body.Typed.Steps {
		body.Typed.Steps[i].Compensates = rec != nil && rec.Steps[step.Name].Compensates
	}
	for _, d := range days {
		d.Chosen = d.Value == t.Days
		body.Days = append(body.Days, d)
	}
	if rec != nil {
		body.Expires = c.moment(rec.ExpiresAt)
		body.Write, body.Seen = rec.Write, rec.Write
		body.JSON, body.HTTP = rec.Codec == "", view.OverHTTP(rec.Codec)
		body.Issued = fmt.Sprintf("%d-%s", c.opts.Now().Unix(), rand.Text()) // each form is another one
		body.Token = c.token(who(r), id, to, body.Seen, body.Issued)
		if t.Look && m == (mistake{}) {
			body.Preview, body.Mistake = c.preview(rec, d, t)
		}
		body.Caution, body.Danger = d.Caution, dangerous(d)
		if body.Preview != nil {
			body.Caution, body.Danger = body.Preview.Caution, body.Preview.Repeats
			if res, err := typedResponse(t); body.HTTP && t.Known == "yes" && err == nil {
				if encoded, err := c.opts.Encode(rec, res); err == nil {
					body.Response, body.Dropped, _ = view.Kept(encoded, res)
				}
			}
		}
		body.Words.Verb = verb(to, body.Danger)
		body.Asks = body.Resolves && (d.Repeats || d.Again)
	}
	read := 1
	if d.Again {
		history, err := c.r.History(r.Context(), id)
		if err != nil {
			return nil, err
		}
		body.Earlier, read = view.Resolution(history), read+len(history)
	}
	p := c.page(r, "act", body.Words.Verb, body)
	p.Section, p.Keep, p.read = "record", true, read
	if body.Mistake != (mistake{}) {
		p.Status = http.StatusUnprocessableEntity
	}
	return p, c.follow(p, "act", url.Values{"id": {id}, "to": {to}})
}

// decided is what the decision would do now.
func (c *console) decided(rec *idem.Record, to string) reconcile.Decision {
	all := c.r.Explain(rec).Decisions
	d := all[slices.IndexFunc(all, func(d reconcile.Decision) bool { return targetOf(d) == to })]
	return c.forOperators(rec, d)
}

// asFields names the fields of a resolution in a text by what the form has for them.
var asFields = strings.NewReplacer(
	"set Resolution.CompensatedManually", "say so in the form", "in Resolution.Steps", "in the form",
)

// forOperators is a decision without what only programs can say and set.
func (c *console) forOperators(rec *idem.Record, d reconcile.Decision) reconcile.Decision {
	if len(d.Steps) > 0 {
		d.Then = c.r.Preview(rec, runsAgain(d)).Then
	}
	if d.To == idem.Completed && d.Change == protocol.ChangeResolved && d.Refused == "" {
		without := c.r.Preview(rec, reconcile.Resolution{To: d.To, Replace: d.Again, CompensatedManually: len(d.Undo) > 0})
		switch {
		case !typeable(rec):
			d.Then, d.Refused = without.Then, without.Refused
		case without.Refused == "":
			d.Then = "If you give its result: " + d.Then + " If not: " + without.Then
		}
	}
	d.Refused = asFields.Replace(d.Refused)
	return d
}

// preview is what the decision would do as it is typed, or what is wrong with that.
func (c *console) preview(rec *idem.Record, d reconcile.Decision, t typed) (*reconcile.Decision, mistake) {
	res, m := c.resolution(rec, d, t)
	if m != (mistake{}) {
		return nil, m
	}
	would := c.r.Preview(rec, res)
	if would.Refused != "" {
		return nil, mistake{"", "Not possible: " + asFields.Replace(would.Refused) + "."}
	}
	return &would, mistake{}
}

// token shows that this console has made the form, for this operator and decision about the
// record as it was.
func (c *console) token(parts ...string) string {
	text, _ := json.Marshal(parts) // strings
	mac := hmac.New(sha256.New, c.opts.FormKey)
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// act makes a change.
func (c *console) act(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return problem{Status: http.StatusBadRequest, Title: "Not understood",
			Text: "The form cannot be read, or is longer than 1 MB."}
	}
	id, to, seen, issued := r.PostForm.Get("id"), r.PostForm.Get("to"), r.PostForm.Get("seen"), r.PostForm.Get("issued")
	if !hmac.Equal([]byte(r.PostForm.Get("token")), []byte(c.token(who(r), id, to, seen, issued))) || seen == "" {
		c.refuse(w, r, errors.New("the form's token is not of this console, operator, record and decision"), problem{
			Status: http.StatusForbidden, Title: "Refused", Text: "This form was not made by this console for you and this " +
				"decision, or the console was started again since. Nothing was changed. Open the record and decide again.",
		})
		return nil
	}
	t := typed{
		Why: strings.TrimSpace(r.PostForm.Get("why")), Says: strings.TrimSpace(r.PostForm.Get("says")),
		Status: r.PostForm.Get("status"), Headers: r.PostForm.Get("headers"), Ref: strings.TrimSpace(r.PostForm.Get("ref")),
		Message: r.PostForm.Get("message"), Type: r.PostForm.Get("type"), Code: r.PostForm.Get("code"),
		Known: r.PostForm.Get("known"), Days: r.PostForm.Get("days"), Result: strings.TrimSpace(r.PostForm.Get("result")),
		Undone: r.PostForm.Get("undone") == "1",
	}
	rec, err := c.lookup(r.Context(), id)
	if err != nil {
		return err
	}
	second, _, _ := strings.Cut(issued, "-")
	made, _ := strconv.ParseInt(second, 10, 64) // signed
	by := reconcile.Change{Actor: who(r), Reason: view.Why(t.Why, t.Says), Tool: tool, IfWrite: seen,
		DecisionID: c.token("decision", r.PostForm.Encode())}
	if rec == nil || rec.Write != seen {
		return c.stale(r, id, by)
	}
	refused := func(title, text string) error {
		return problem{Status: http.StatusConflict, Title: title, Text: text, Record: id}
	}
	if c.opts.Now().Sub(time.Unix(made, 0)) > formFor {
		return refused("Shown too long ago",
			"The form was shown more than an hour ago. Nothing was changed. Look at the record again.")
	}
	d := c.decided(rec, to)
	if d.Refused != "" {
		return refused("Not possible", "Nothing was changed: "+d.Refused+".")
	}
	again := func(m mistake) error {
		p, err := c.formOf(r, id, to, t, m)
		if err != nil {
			return err
		}
		if p.Body.(*action).Seen != seen {
			return refused("The record has changed",
				"The record has been written since it was shown. Nothing was changed. Look again.")
		}
		c.write(w, r, p)
		return nil
	}
	t.Steps = answersOf(id, d.Steps, r.PostForm)
	if t.Look = r.PostForm.Get("look") == "1"; t.Look {
		return again(mistake{})
	}
	change, m := c.change(rec, to, d, t)
	if m != (mistake{}) {
		return again(m)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), writeFor)
	defer cancel()
	err = change(ctx, by)
	var config *idem.ConfigError
	var store *idem.StoreError
	switch {
	case err == nil:
		c.opts.Log.InfoContext(r.Context(), "idem console: record changed", "record", id, "to", to, "who", by.Actor)
		http.Redirect(w, r, c.recordURL(id)+"&done="+by.DecisionID, http.StatusSeeOther)
		return nil
	case isStale(err):
		return c.stale(r, id, by)
	case errors.As(err, &store) && store.Ambiguous: // whatever the last try got
		c.opts.Log.ErrorContext(r.Context(), "idem console: it is not known whether a change was made",
			"record", id, "error", err)
		return problem{Status: http.StatusServiceUnavailable, Title: "Look at the record",
			Text:   "The store did not say whether the change was made. Look at the record: if it is as before, decide again.",
			Record: id}
	case errors.As(err, &config):
		return again(mistake{"", asFields.Replace(config.Problem)})
	case errors.Is(err, reconcile.ErrTooEarly), errors.Is(err, reconcile.ErrNotUndone),
		errors.Is(err, reconcile.ErrStepsUnnamed):
		return refused("Not possible", fmt.Sprintf("Nothing was changed: %s.", asFields.Replace(err.Error())))
	}
	p := c.problemOf(r, err)
	p.Record = id
	return p
}

// stale says that the record is another one than the operator has seen: because of this very
// decision, or because of another one.
func (c *console) stale(r *http.Request, id string, by reconcile.Change) error {
	history, err := c.r.History(r.Context(), id)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(history, func(a protocol.Audit) bool { return by.Made(a) && !a.Unconfirmed }) {
		return problem{Status: http.StatusConflict, Title: "Already done",
			Text: "This decision was recorded before. It was not made a second time.", Record: id}
	}
	return problem{Status: http.StatusConflict, Title: "The record has changed", Text: "The record has been " +
		"written since it was shown. Nothing was changed. Look again, and decide about what you see.", Record: id}
}
