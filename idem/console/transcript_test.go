package console_test

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/story"
	"github.com/idem-go/idempotency/idem/testenv/transcript"
)

// What operators see of pages, and what comes of the forms that they send, is in testdata. In its lines
//
//	$ GET /record?id={refund/acme/r-1}
//	$ POST /find operation=refund tenant=acme value=r-1
//	$ send why="case 1"
//
// the key in braces stands for the id of its record, and send sends the last form that a page had.
func TestPagesAndFormsAreAsTheTranscriptsSay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			transcript.Test(t, path, func(t *testing.T, scene string) (played string) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, console.Options{})
					played = transcript.Play(scene, r.line)
				})
				return played
			})
		})
	}
}

var keyed = regexp.MustCompile(`\{(\w+/[^/]*/[^}]*)\}`)

// followed is what a page is followed by: it changes if there is news.
var followed = regexp.MustCompile(`data-live="[^"]*;v=([^"]+)"`)

// line runs a line of a transcript.
func (r *rig) line(line, _ string) (output, status string) {
	r.t.Helper()
	if event, ok := strings.CutPrefix(line, "> "); ok {
		return r.Happens(event, r.happenings()), ""
	}
	words := transcript.Words(keyed.ReplaceAllStringFunc(line, func(key string) string {
		return story.Key(strings.Trim(key, "{}")).ID()
	}))
	r.before = r.Everything()
	var page answer
	switch words[1] {
	case "GET":
		page = r.get("/ops" + strings.ReplaceAll(words[2], "#", "%23"))
	case "POST":
		page = r.post("/ops"+words[2], fields(words[3:]))
	case "send":
		page = r.sends(fields(words[2:]))
	default:
		require.Fail(r.t, "no request", line)
	}
	if page.StatusCode == http.StatusSeeOther {
		page = r.get(page.Header.Get("Location"))
		status = "(303)\n"
	} else {
		if page.StatusCode != http.StatusOK {
			status = fmt.Sprintf("(%d)\n", page.StatusCode)
		}
		if !strings.Contains(page.text, "did not say whether the change was made") {
			require.Equal(r.t, r.before, r.Everything(), "nothing is changed: %s", line)
		}
	}
	require.NotContains(r.t, page.text, "reconcile:", "the name of a package tells an operator nothing")
	if form := formOf(page); form.Has("token") {
		r.shown, r.live = form, followed.FindStringSubmatch(page.text)[1]
	}
	return textOf(page.text), status
}

// chosen are the fields that are no texts.
var chosen = regexp.MustCompile(`^(known|days|undone|look|lasts|step-\d+)$`)

// sends sends the form that was shown, with what is typed. What has a mistake is shown again with all that was typed,
// and neither that nor a look is news to who follows the page.
func (r *rig) sends(typed url.Values) answer {
	form := maps.Clone(r.shown)
	maps.Copy(form, typed)
	page := r.post(map[bool]string{false: "/ops/act", true: "/ops/pauses"}[form.Has("of")], form)
	if page.StatusCode == http.StatusUnprocessableEntity || page.StatusCode == http.StatusOK {
		for name, text := range typed {
			if !chosen.MatchString(name) {
				require.Contains(r.t, html.UnescapeString(page.text), strings.TrimSpace(text[0]), "what was typed is not lost")
			}
		}
		require.Equal(r.t, r.live, followed.FindStringSubmatch(page.text)[1])
	}
	return page
}

// fields are what is typed, such as why="case 1". \n begins a line.
func fields(words []string) url.Values {
	form := url.Values{}
	for _, word := range words {
		name, text, _ := strings.Cut(word, "=")
		form.Set(name, strings.ReplaceAll(text, `\n`, "\r\n"))
	}
	return form
}

func (r *rig) happenings() map[string]story.Event {
	return map[string]story.Event{
		"bob resolves it to completed when it has been read": story.OfEach(func(key idem.Key) {
			r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
				r.Resolve(key.ID(), idem.Completed)
				r.before = r.Everything()
				return c.Do(ctx)
			})
		}),
		"its messages are those of an outbox": story.Act(func(keys string) {
			keys, many := strings.CutPrefix(keys, "many of ")
			b := &box{Store: r.Faults, records: map[string]bool{}, at: r.Clock.Now(), many: many}
			for key := range strings.FieldsSeq(keys) {
				b.records[story.Key(key).ID()] = true
			}
			r.over(b)
		}),
		"bob pauses": story.Act(func(operation string) {
			require.NoError(r.t, r.r.Pause(r.t.Context(), operation, "", time.Time{},
				reconcile.Change{Actor: "bob", Reason: "another case"}))
		}),
		"bob resumes": story.Act(func(operation string) {
			require.NoError(r.t, r.r.Resume(r.t.Context(), operation, "", reconcile.Change{Actor: "bob", Reason: "it is over"}))
		}),
		"the console has no key for results":  story.Act(func(string) { r.over(sealed{r.Faults}) }),
		"a page has not all changes of a day": story.Act(func(string) { r.over(crowded{r.Faults}) }),
		"the margin is an hour": story.Act(func(string) {
			rc, err := reconcile.New(r.Faults, &reconcile.Options{Now: r.Clock.Now, Margin: time.Hour})
			require.NoError(r.t, err)
			r.mount(rc, console.Options{})
		}),
	}
}

// sealed is a store of records whose results are encrypted, without the key.
type sealed struct{ reconcile.Store }

func (s sealed) Get(ctx context.Context, id string) (*idem.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if rec != nil {
		rec.Sealed = true
	}
	return rec, err
}

func (s sealed) Result(context.Context, *idem.Record) ([]byte, error) {
	return nil, fmt.Errorf("%w: its results are encrypted", idem.ErrRecordUnreadable)
}

func (s sealed) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if w.Sealed && len(w.Ending.Result) > 0 {
		return &idem.ConfigError{What: "dynamostore: Settle", Problem: "this store would write a plain one"}
	}
	return s.Store.Settle(ctx, now, w)
}

// box has an outbox with the messages of records: of the states that a message may be in, in this order.
type box struct {
	reconcile.Store
	records map[string]bool
	at      time.Time
	many    bool // more than a page of each
}

func (b *box) Messages(_ context.Context, record, _ string) ([]*outbox.Entry, string, error) {
	if !b.records[record] {
		return nil, "", nil
	}
	all := []*outbox.Entry{
		{State: outbox.Dispatched, SentID: "a1b2c3d4-0000-4000-8000-000000000001", SentAt: b.at},
		{State: outbox.New, SentID: "before"},
		{State: outbox.Retrying, Tries: 2, Reason: "<the queue> does not exist"},
		{State: outbox.Dead, Tries: 10, Reason: "the queue does not exist"},
		{Unreadable: protocol.ErrRecordUnreadable},
	}
	for n, e := range all {
		e.Record, e.Number, e.Created = record, n, b.at
		e.Message = outbox.Message{ID: fmt.Sprint("m-", n), Destination: "orders"}
	}
	if b.many {
		return slices.Repeat(all, 20), "another page", nil
	}
	return all, "", nil
}

func (b *box) Requeue(context.Context, *outbox.Entry, protocol.Audit) error { return nil }

// crowded has more changes of a day than a page holds.
type crowded struct{ reconcile.Store }

func (s crowded) AuditBetween(ctx context.Context, shard int, from, to time.Time,
	page string) (protocol.AuditPage, error) {
	p, err := s.Store.AuditBetween(ctx, shard, from, to, page)
	if to.Sub(from) > 2*time.Hour && len(p.Entries) > 0 {
		p.Next = "more"
	}
	return p, err
}
