package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// maxStreams is how many pages are followed at once.
	maxStreams = 100
	// perRecord is the pause for each record that a followed page reads: 50 a second.
	perRecord = 20 * time.Millisecond
	// maxLooks is how many followed pages read at once: with perRecord 200 records a second.
	maxLooks = 4
	// maxRead bounds the records of a page for which it is left alone.
	maxRead = 10_000
	// streamFor bounds an answer with events. The browser then asks again.
	streamFor = 5 * time.Minute
	// sendWithin bounds a write of events beyond the pause, in spite of a server's WriteTimeout.
	sendWithin = 10 * time.Second
)

// live tells by server-sent events when what the page shows has changed:
// https://html.spec.whatwg.org/multipage/server-sent-events.html. The page then fetches itself
// again.
func (c *console) live(build builder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method == http.MethodHead {
			return
		}
		select {
		case c.streams <- struct{}{}:
			defer func() { <-c.streams }()
		default:
			http.Error(w, "too many pages are followed: reload them by hand", http.StatusServiceUnavailable)
			return
		}
		shown := r.URL.Query().Get("v")
		out := http.NewResponseController(w)
		pause := c.untilLook(r.URL.Query())
		_ = out.SetWriteDeadline(time.Now().Add(pause + sendWithin)) // where the server can
		if _, err := fmt.Fprint(w, ": followed\n\n"); err != nil || out.Flush() != nil {
			return
		}
		for end := time.Now().Add(streamFor); time.Now().Before(end); {
			if pause > 0 { // timers of 0 in many goroutines break the race detector: https://go.dev/issue/78156
				select {
				case <-r.Context().Done():
					return
				case <-time.After(pause):
				}
			}
			select {
			case <-r.Context().Done():
				return
			case c.looks <- struct{}{}:
			}
			p, changed, err := c.look(r, build, shown)
			if r.Context().Err() != nil {
				return
			}
			event := ": as shown\n\n"
			pause = c.opts.Poll
			switch {
			case err != nil:
				event, pause = "event: trouble\ndata: "+c.problemOf(r, err).Title+"\n\n", 5*pause // each time is logged
			case changed:
				event = "event: changed\ndata: " + p.version + "\n\n"
			}
			if p != nil {
				pause = max(pause, time.Duration(p.read)*perRecord)
			}
			_ = out.SetWriteDeadline(time.Now().Add(pause + sendWithin))
			if _, err := fmt.Fprint(w, event); err != nil || out.Flush() != nil || changed {
				return
			}
		}
	})
}

// look builds the page. It lets another one read once the records of this one are paid for,
// whether it is followed still or not: if it has changed, it is now fetched, and reads them again.
func (c *console) look(r *http.Request, build builder, shown string) (p *page, changed bool, err error) {
	paid := c.opts.Poll // of a look that failed, or panicked
	defer func() { time.AfterFunc(paid, func() { <-c.looks }) }()
	p, err = build(r)
	changed = r.Context().Err() == nil && err == nil && p.version != shown
	if p != nil {
		paid = time.Duration(p.read) * perRecord
	}
	if changed {
		paid *= 2
	}
	return p, changed, err
}

// untilLook is the pause before the first look: a page that was shown just now has read what
// it shows, and may be shown again after the look. On a busy table pages would otherwise follow each other
// without a pause. A page that is opened again is looked at at once.
func (c *console) untilLook(query url.Values) time.Duration {
	at, _ := strconv.ParseInt(query.Get("at"), 10, 64)
	read, _ := strconv.Atoi(query.Get("read"))
	pause := max(c.opts.Poll, 2*time.Duration(min(max(read, 0), maxRead))*perRecord)
	return min(max(0, pause-c.opts.Now().Sub(time.UnixMilli(at))), pause)
}
