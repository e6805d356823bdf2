package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/reconcile"
)

//go:embed assets
var assets embed.FS

type console struct {
	r       *reconcile.Reconciler
	opts    Options
	streams chan struct{} // has an element for each page that is followed
	looks   chan struct{} // has one for each look that reads, or whose records are not paid for
}

// templates are those of the pages, by name.
var templates = sync.OnceValue(func() map[string]*template.Template {
	functions := template.FuncMap{"plain": plain, "name": view.Name}
	layout := template.Must(template.New("page").Funcs(functions).ParseFS(assets, "assets/layout.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"overview", "list", "record", "act", "pauses", "problem"} {
		all[name] = template.Must(template.Must(layout.Clone()).ParseFS(assets, "assets/"+name+".html"))
	}
	return all
})

func (c *console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for path, build := range map[string]builder{
		"": c.overview, "list": c.list, "record": c.record, "act": c.form, "pauses": c.listPauses,
	} {
		path = cmp.Or(path, "{$}")
		mux.Handle("GET "+c.opts.Prefix+"/"+path, c.show(build))
		mux.Handle("GET "+c.opts.Prefix+"/live/"+path, c.live(build))
	}
	if c.opts.Prefix != "" {
		mux.Handle("GET "+c.opts.Prefix, http.RedirectHandler(c.opts.Prefix+"/", http.StatusMovedPermanently))
	}
	mux.Handle("POST "+c.opts.Prefix+"/act", c.serving(c.act))
	mux.Handle("POST "+c.opts.Prefix+"/pauses", c.serving(c.changePaused))
	mux.Handle("POST "+c.opts.Prefix+"/find", c.serving(c.find))
	for name, kind := range map[string]string{"style.css": "text/css", "live.js": "text/javascript",
		"icon.svg": "image/svg+xml"} {
		mux.HandleFunc("GET "+c.opts.Prefix+"/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			http.ServeFileFS(w, r, assets, "assets/"+name)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, problem{Status: http.StatusNotFound, Title: "No such page",
			Text: "The console has no page under this address."})
	})
	return mux
}

// most is how much of a text a page shows, in bytes.
const most = 256 << 10

// plain is view.Plain of a text, cut off if it is long.
func plain(text string) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "\n(cut off; idemctl shows all of it)"
	}
	return view.Plain(strings.ReplaceAll(text, "\r\n", "\n"))
}

// builder reads what a page shows that can be followed. It is the request of the page, or one that follows it.
type builder func(r *http.Request) (*page, error)

// page is what the layout shows.
type page struct {
	Template, Title, Section string
	Prefix, Who              string
	Status                   int
	// Live is the address of the events of this page; empty for a page without them. Keep
	// says that the page must stay as it is: it is only problemOf that there is news.
	Live string
	Keep bool
	Now  moment
	// Body is what the page is about. Its JSON form without times of day is the version.
	Body any

	version string
	read    int // records, to build it
}

// page returns a page of the request.
func (c *console) page(r *http.Request, template, title string, body any) *page {
	return &page{
		Template: template, Title: title, Section: template, Prefix: c.opts.Prefix, Who: who(r), Status: http.StatusOK,
		Now: c.moment(c.opts.Now()), Body: body,
	}
}

// follow makes the page one that can be followed.
func (c *console) follow(p *page, path string, query url.Values) error {
	body, err := json.Marshal(p.Body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	p.version = base64.RawURLEncoding.EncodeToString(sum[:16])
	q := url.Values{}
	for name, values := range query {
		if name != "show" {
			q[name] = values
		}
	}
	q.Set("v", p.version)
	q.Set("at", strconv.FormatInt(p.Now.At.UnixMilli(), 10))
	q.Set("read", strconv.Itoa(p.read))
	p.Live = c.opts.Prefix + "/live/" + path + "?" + q.Encode()
	return nil
}

func (c *console) show(build builder) http.Handler {
	return c.serving(func(w http.ResponseWriter, r *http.Request) error {
		p, err := build(r)
		if err == nil {
			c.write(w, r, p)
		}
		return err
	})
}

// serving tells the error of what serves a request.
func (c *console) serving(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			c.fail(w, r, c.problemOf(r, err))
		}
	})
}

// write renders the page. Nothing is sent of one that cannot be rendered.
func (c *console) write(w http.ResponseWriter, r *http.Request, p *page) {
	var out bytes.Buffer
	if err := templates()[p.Template].ExecuteTemplate(&out, "layout", p); err != nil {
		c.opts.Log.ErrorContext(r.Context(), "idem console: page not rendered", "page", p.Template, "error", err)
		http.Error(w, "The page could not be rendered; the log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = io.Copy(w, &out)
}

// problem is an error that a page tells.
type problem struct {
	Status      int
	Title, Text string
	// Record is the record that it is about, if there is one.
	Record string
}

func (p problem) Error() string { return p.Title + ": " + p.Text }

func (c *console) fail(w http.ResponseWriter, r *http.Request, p problem) {
	shown := c.page(r, "problem", p.Title, struct{ Text, Record string }{p.Text, c.recordURL(p.Record)})
	shown.Status = p.Status
	c.write(w, r, shown)
}

// problemOf is the error as the page shows it.
func (c *console) problemOf(r *http.Request, err error) problem {
	var known problem
	var config *idem.ConfigError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &config):
		return problem{Status: http.StatusBadRequest, Title: "Not understood", Text: config.Error()}
	case errors.Is(err, idem.ErrRecordUnreadable):
		return problem{Status: http.StatusInternalServerError, Title: "Unreadable record",
			Text: fmt.Sprintf("The record is damaged, or a newer version has written it: %v. Calls with its key are refused "+
				"until an operator has looked at it.", err)}
	}
	c.opts.Log.ErrorContext(r.Context(), "idem console: request failed", "path", r.URL.Path, "error", err)
	return problem{Status: http.StatusServiceUnavailable, Title: "The store did not answer",
		Text: fmt.Sprintf("Try again. If it stays so, look at the table and at the permissions: %v", err)}
}

// moment is a time, and how it is shown.
type moment struct {
	At  time.Time
	now time.Time
}

func (c *console) moment(t time.Time) moment { return moment{At: t.UTC(), now: c.opts.Now()} }

// MarshalJSON makes the version of a page independent of when it is looked at.
func (m moment) MarshalJSON() ([]byte, error) { return json.Marshal(m.At) }

// IsZero reports whether there is no such time.
func (m moment) IsZero() bool { return m.At.IsZero() }

// Machine is the time for programs.
func (m moment) Machine() string { return m.At.Format(time.RFC3339Nano) }

// Text is the time for operators.
func (m moment) Text() string { return view.At(m.At) }

// Ago is how far away the time is.
func (m moment) Ago() string { return view.Ago(m.At, m.now) }

// Age is how long ago the time was.
func (m moment) Age() string { return view.Span(max(0, m.now.Sub(m.At))) }
