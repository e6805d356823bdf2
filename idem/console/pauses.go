package console

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// lasting are the times after which a pause ends by itself.
var lasting = []choice{
	{Value: "", Text: "until it is resumed"}, {Value: "30m", Text: "30 minutes"}, {Value: "1h", Text: "1 hour"},
	{Value: "4h", Text: "4 hours"}, {Value: "24h", Text: "1 day"},
}

// pauses is what is paused, with the form of a pause, or of the end of one.
type pauses struct {
	Pauses []pauseRow
	// Of is the ID of the pause that the form ends; empty if it is for a new one, whose calls are typed.
	Of                string
	Operation, Tenant string   `json:"-"`
	Seen              string   `json:"-"` // its Digest, as it was shown; empty if there was none
	Calls, Why        string   `json:"-"`
	Lasts             []choice `json:"-"`
	Done              string   `json:"-"`
	Issued            string   `json:"-"`
	Token             string   `json:"-"`
	Mistake           mistake  `json:"-"`
	URL               string
}

// pauseRow is a pause.
type pauseRow struct {
	Calls, Who, Why, URL string
	Since, Until         moment

	id, digest string
}

// paused is what is paused now; nothing of a store that has no pauses.
func (c *console) paused(ctx context.Context) (rows []pauseRow, err error) {
	all, err := c.r.Paused(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	for _, p := range all {
		q := url.Values{"resume": {p.ID()}}
		rows = append(rows, pauseRow{
			Calls: view.Calls(p.Operation, p.Tenant), Who: p.Who, Why: p.Why, URL: c.opts.Prefix + "/pauses?" + q.Encode(),
			Since: c.moment(p.Since), Until: c.moment(p.Until), id: p.ID(), digest: p.Digest(),
		})
	}
	return rows, err
}

// listPauses is the page of pauses.
func (c *console) listPauses(r *http.Request) (*page, error) {
	q := r.URL.Query()
	return c.pausesOf(r, &pauses{Of: q.Get("resume"), Done: q.Get("done")}, "")
}

// pausesOf is the page with the form as it is typed.
func (c *console) pausesOf(r *http.Request, body *pauses, lasts string) (p *page, err error) {
	if body.Pauses, err = c.paused(r.Context()); err != nil {
		return nil, err
	}
	if body.Lasts, err = choose(lasting, lasts); err != nil {
		return nil, err
	}
	for _, p := range body.Pauses {
		if p.id == body.Of {
			body.Seen = cmp.Or(body.Seen, p.digest)
		}
	}
	body.URL = c.opts.Prefix + "/pauses"
	body.Issued = fmt.Sprintf("%d-%s", c.opts.Now().Unix(), rand.Text())
	body.Token = c.token(who(r), "pauses", body.Of, body.Seen, body.Issued)
	title, query := "Pauses", url.Values{}
	if body.Of != "" {
		tenant, operation, _ := protocol.ParseRecordID(body.Of)
		if operation == "" || !protocol.IsPauseID(body.Of) {
			return nil, problem{Status: http.StatusBadRequest, Title: "Not understood", Text: "The address names no pause."}
		}
		title, body.Calls = "Resume", view.Calls(operation, tenant)
		query.Set("resume", body.Of)
	}
	p = c.page(r, "pauses", title, body)
	p.read = 1
	if body.Mistake != (mistake{}) {
		p.Status = http.StatusUnprocessableEntity
	}
	return p, c.follow(p, "pauses", query)
}

// changePaused pauses or resumes.
func (c *console) changePaused(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return problem{Status: http.StatusBadRequest, Title: "Not understood",
			Text: "The form cannot be read, or is longer than 1 MB."}
	}
	f, lasts := r.PostForm, r.PostForm.Get("lasts")
	body := &pauses{
		Of: f.Get("of"), Operation: strings.TrimSpace(f.Get("operation")), Tenant: strings.TrimSpace(f.Get("tenant")),
		Why: strings.TrimSpace(f.Get("why")), Seen: f.Get("seen"), Issued: f.Get("issued"),
	}
	if !hmac.Equal([]byte(f.Get("token")), []byte(c.token(who(r), "pauses", body.Of, body.Seen, body.Issued))) {
		c.refuse(w, r, errors.New("the form's token is not of this console, operator and change"), problem{
			Status: http.StatusForbidden, Title: "Refused", Text: "This form was not made by this console for you and this " +
				"change, or the console was started again since. Nothing was changed. Open the pauses and decide again.",
		})
		return nil
	}
	second, _, _ := strings.Cut(body.Issued, "-")
	if made, _ := strconv.ParseInt(second, 10, 64); c.opts.Now().Sub(time.Unix(made, 0)) > formFor {
		return problem{Status: http.StatusConflict, Title: "Shown too long ago",
			Text: "The form was shown more than an hour ago. Nothing was changed. Look at the pauses again."}
	}
	again := func(m mistake) error {
		body.Mistake = m
		p, err := c.pausesOf(r, body, lasts)
		if err == nil {
			c.write(w, r, p)
		}
		return err
	}
	if body.Why == "" {
		return again(mistake{"why", "Say why: a reason is required."})
	}
	by := reconcile.Change{Actor: who(r), Reason: body.Why, Tool: tool}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), writeFor)
	defer cancel()
	change := protocol.ChangePaused
	_, err := choose(lasting, lasts)
	switch {
	case body.Of != "":
		change = protocol.ChangeResumed
		tenant, operation, _ := protocol.ParseRecordID(body.Of)
		by.IfWrite = cmp.Or(body.Seen, "none")
		err = c.r.Resume(ctx, operation, tenant, by)
	case err == nil:
		var until time.Time
		if d, err := time.ParseDuration(lasts); err == nil {
			until = c.opts.Now().Add(d)
		}
		err = c.r.Pause(ctx, body.Operation, body.Tenant, until, by)
	}
	var config *idem.ConfigError
	var store *idem.StoreError
	switch {
	case err == nil:
		c.opts.Log.InfoContext(r.Context(), "idem console: calls paused or resumed", "change", change, "resumed", body.Of,
			"operation", body.Operation, "tenant", body.Tenant, "who", by.Actor)
		http.Redirect(w, r, c.opts.Prefix+"/pauses?done="+string(change), http.StatusSeeOther)
		return nil
	case errors.As(err, &config):
		return again(mistake{"operation", config.Problem})
	case errors.Is(err, reconcile.ErrNotFound):
		return problem{Status: http.StatusConflict, Title: "Not paused",
			Text: "These calls have no pause of their own any more. Nothing was changed."}
	case errors.Is(err, reconcile.ErrChanged):
		return problem{Status: http.StatusConflict, Title: "The pauses have changed",
			Text: "What is paused has changed since it was shown. Nothing was changed. Look at the pauses again."}
	case errors.As(err, &store) && store.Ambiguous:
		return problem{Status: http.StatusServiceUnavailable, Title: "Look at the pauses",
			Text: "The store did not say whether the change was made. Look at the pauses, and decide again if it was not."}
	}
	return err
}
