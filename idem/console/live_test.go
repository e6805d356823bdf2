package console_test

import (
	"bufio"
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// followed is the address by which a page is followed.
func (r *rig) followed(page string) string {
	r.t.Helper()
	m := regexp.MustCompile(`data-live="([^"]+)"`).FindStringSubmatch(r.get(page).text)
	require.NotNil(r.t, m)
	return html.UnescapeString(m[1])
}

// events are the lines of a page that is followed, without empty ones.
func (r *rig) events(page string) <-chan string {
	r.t.Helper()
	server := httptest.NewServer(r.h)
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+r.followed(page), nil)
	require.NoError(r.t, err)
	res, err := server.Client().Do(req)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { cancel(); _ = res.Body.Close(); server.Close() })
	require.Equal(r.t, "text/event-stream", res.Header.Get("Content-Type"))
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			if s.Text() == "" {
				continue
			}
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// until returns the first line that begins so.
func until(t *testing.T, lines <-chan string, prefix string) {
	t.Helper()
	for line := range lines {
		if strings.HasPrefix(line, prefix) {
			return
		}
	}
	require.Fail(t, "the events ended without "+prefix)
}

func TestAPageThatIsFollowedLearnsOfAChange(t *testing.T) {
	r, id := newQuestion(t, console.Options{Poll: time.Millisecond})
	query := url.Values{"id": {id}}.Encode()
	for _, page := range []string{"/ops/", "/ops/list?operation=refund", "/ops/record?" + query,
		"/ops/record?show=value&" + query, "/ops/act?to=released&" + query} {
		t.Run(page, func(t *testing.T) {
			lines := r.events(page)
			until(t, lines, ": as shown")
			until(t, lines, ": as shown")
			key := refund.Key("acme", "r-1")
			switch r.state(id) {
			case idem.Unknown:
				r.Resolve(id, idem.Released)
			default:
				r.end(key, nil, errCut)
				r.lapse()
			}
			until(t, lines, "event: changed")
		})
	}
}

func TestAPageThatIsFollowedLearnsWhatTimeDoesAndGetsTrouble(t *testing.T) {
	r := newRig(t, console.Options{Poll: time.Millisecond})
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	lines := r.events(record(id))
	until(t, lines, ": as shown")
	r.Faults.Always(idemtest.Refuse)
	until(t, lines, "event: trouble")
	r.Faults.Heal()
	until(t, lines, ": as shown")
	r.lapse() // from now on it can be resolved to released
	until(t, lines, "event: changed")
}

func TestPagesThatAreLeftMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, console.Options{Poll: time.Hour})
		staying := r.followed("/ops/")
		follow := func(ctx context.Context, method, page string) int {
			w := httptest.NewRecorder()
			r.h.ServeHTTP(w, request(method, page, nil).WithContext(ctx))
			return w.Code
		}
		ctx, leave := context.WithCancel(t.Context())
		for range 100 {
			go follow(ctx, http.MethodGet, staying)
		}
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, follow(t.Context(), http.MethodGet, "/ops/live/?v=another"))
		require.Equal(t, http.StatusOK, follow(t.Context(), http.MethodHead, staying), "it takes no room")
		leave()
		synctest.Wait()
		require.Equal(t, http.StatusOK, follow(t.Context(), http.MethodGet, "/ops/live/?v=another"))
	})
}

// Not even a browser that comes back at once, again and again, gets more.
func TestPagesThatAreFollowedAreBoundedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, console.Options{})
		for n := range 25 {
			r.end(refund.Key("acme", strconv.Itoa(n)), nil, errCut)
		}
		r.Faults.Reset()
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		for n := range 60 {
			v := "another"
			if n%2 == 0 {
				v = html.UnescapeString(regexp.MustCompile(`v=([^"&]+)`).FindStringSubmatch(
					r.get("/ops/list?operation=refund").text)[1])
			}
			go func() {
				for range 100 { // far more than it gets; a page that is answered at once must not stop the clock
					if ctx.Err() != nil {
						return
					}
					r.h.ServeHTTP(httptest.NewRecorder(),
						request(http.MethodGet, "/ops/live/list?operation=refund&v="+v, nil).WithContext(ctx))
				}
			}()
		}
		r.Faults.Reset()
		<-ctx.Done()
		synctest.Wait()
		reads := 0
		for _, call := range r.Faults.Calls() {
			if call == "Get" {
				reads++
			}
		}
		require.Greater(t, reads, 60*90)
		require.LessOrEqual(t, reads, 60*200+4*25)
	})
}

// The HTTP server catches the panic of a handler, and goes on.
func TestAPageThatPanicsMakesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, console.Options{})
		id := r.end(refund.Key("acme", "r-1"), nil, errCut)
		panics := 100
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if panics > 0 {
				panics--
				panic("the store has a fault")
			}
			return c.Do(ctx)
		}, idemtest.Get)
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Minute)
		defer leave()
		follow := func() string {
			w := httptest.NewRecorder()
			r.h.ServeHTTP(w, request(http.MethodGet, "/ops/live/record?"+url.Values{"id": {id}, "v": {"another"}}.Encode(),
				nil).WithContext(ctx))
			return w.Body.String()
		}
		for panics > 0 && ctx.Err() == nil {
			require.Panics(t, func() { follow() })
		}
		require.Contains(t, follow(), "event: changed")
	})
}

// On a busy table each page is stale when it is shown.
func TestAPageIsNotRenewedWithoutAPause(t *testing.T) {
	for _, tt := range []struct {
		name string
		read int
		ago  time.Duration
		want time.Duration
	}{
		{"of a record", 1, 0, console.DefaultPoll},
		{"of many", 1000, 0, 40 * time.Second},
		{"looked at for a while", 1000, 30 * time.Second, 10 * time.Second},
		{"that somebody comes back to", 1000, time.Hour, 0},
		{"of the future", 1, -time.Hour, console.DefaultPoll},
		{"of nonsense", -1, 0, console.DefaultPoll},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, console.Options{})
				start := time.Now()
				query := url.Values{"v": {"another"}, "read": {strconv.Itoa(tt.read)},
					"at": {strconv.FormatInt(r.Clock.Now().Add(-tt.ago).UnixMilli(), 10)}}
				require.Contains(t, r.get("/ops/live/?"+query.Encode()).text, "event: changed")
				require.Equal(t, tt.want, time.Since(start))
			})
		})
	}
}
