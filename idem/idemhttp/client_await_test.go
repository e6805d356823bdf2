package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// order sends the laterService a request whose outcome takes a while.
func (b *laterService) order(c *trial) (*http.Response, error) {
	req, err := http.NewRequestWithContext(WithKey(b.Context(), testKey), "POST", b.server.URL+"/statements",
		strings.NewReader(june))
	require.NoError(b, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Tenant", "blue")
	return c.Do(req)
}

// From the request to the outcome, whatever that is.
func TestAwaitFollowsARequestToItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Later, *Options)
		end    error
		status int
		body   string
	}{
		"done":    {status: 200, body: `{"Pages":3}`},
		"failed":  {end: idem.Permanent(errors.New("no such account")), status: 500, body: "operation_failed"},
		"unknown": {end: errors.New("time-out"), status: 409, body: "outcome_unknown"},
		"a resource": {change: func(l *Later, _ *Options) { l.ResultLocation = func([]byte) string { return "/own" } },
			status: 200, body: "own"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Later, *Options) {}
			}
			b := newLaterService(t, memory(), c.change)
			client := newTrial(t, nil, nil)
			client.transport.wait = func(_ context.Context, d time.Duration) error {
				client.delays = append(client.delays, d)
				b.pass(d)
				if len(client.delays) == 5 {
					_ = b.work(c.end)
				}
				return nil
			}
			res, err := b.order(client)
			require.NoError(t, err)
			require.Equal(t, 202, res.StatusCode)
			res, err = client.transport.Await(t.Context(), res)
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, c.status, res.StatusCode)
			require.Contains(t, string(body), c.body)
			require.Len(t, client.delays, 5)
			for i := range client.delays[1:] {
				require.Greater(t, client.delays[i+1], client.delays[i])
			}

			// The same request again has the outcome at once, and there is nothing to follow.
			res, err = b.order(client)
			require.NoError(t, err)
			same, err := client.transport.Await(t.Context(), res)
			require.NoError(t, err)
			require.Same(t, res, same)
			require.Equal(t, c.status, res.StatusCode)
			require.NoError(t, res.Body.Close())
		})
	}
}

// The answers of a service that is slow, and not always there.
func TestAwaitKeepsAskingAndKeepsSecrets(t *testing.T) {
	s := serving(t, status(202, "Location", "jobs/7", "Retry-After", "7"), status(503), status(502),
		status(202, "Retry-After", "100000"), status(202, "Retry-After", "0"), status(200),
	)
	c := newTrial(t, nil, &ClientOptions{FirstSentHeader: "First-Sent"})
	req := request(t, "POST", s.URL+"/prod/jobs", `{}`)
	req.Header.Set("Authorization", "Bearer mine")
	req.Header.Set("If-Match", "x")
	res, err := c.await(t, req)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	got := s.requests()
	require.Len(t, got, 6)
	for _, r := range got[1:] {
		require.Equal(t, "GET", r.method)
		require.Equal(t, "/prod/jobs/7", r.path)
		require.Equal(t, "Bearer mine", r.header.Get("Authorization"))
		for _, name := range []string{DefaultKeyHeader, "First-Sent", "Content-Type", "If-Match"} {
			require.Empty(t, r.header.Get(name), name)
		}
		require.Empty(t, r.body)
	}
	require.Equal(t, []time.Duration{
		7*time.Second + DefaultBackoff, DefaultBackoff, 2 * DefaultBackoff, DefaultMaxWait + 2*DefaultBackoff,
		minRetryAfter + 4*DefaultBackoff,
	}, c.delays)
}

// What is not the outcome must not be taken for it: a client would order again.
func TestAwaitTellsAnOutageFromTheOutcome(t *testing.T) {
	accepted := status(202, "Location", "/jobs/7")
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		refused int // the question was refused with this status
	}{
		"429":                      {answer: status(429)},
		"500":                      {answer: status(500)},
		"502":                      {answer: status(502)},
		"503":                      {answer: status(503)},
		"504":                      {answer: status(504)},
		"the store is down":        {answer: problemOf(503, CodeStoreUnavailable, true)},
		"the record is unreadable": {answer: problemOf(503, CodeRecordUnreadable, false)},
		"401":                      {answer: status(401), refused: 401},
		"403":                      {answer: status(403), refused: 403},
		"no tenant":                {answer: problemOf(403, CodeTenantMissing, false), refused: 403},
		"no status":                {answer: problemOf(404, CodeStatusNotFound, false), refused: 404},
		"a login": {answer: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/jobs/7" {
				http.Redirect(w, r, "/login", http.StatusFound)
			}
		}, refused: 200},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []http.HandlerFunc{accepted}
			for range 2 * DefaultMaxAttempts {
				answers = append(answers, c.answer)
			}
			s := serving(t, append(answers, status(200))...)
			trial := newTrial(t, nil, nil)
			res, err := trial.await(t, request(t, "POST", s.URL+"/jobs", `{}`))
			if c.refused == 0 {
				require.NoError(t, err)
				require.Equal(t, 200, res.StatusCode)
				return
			}
			var refused *SendError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, ErrNotAnswered)
			require.Equal(t, c.refused, refused.Status)
			require.Equal(t, s.URL+"/jobs/7", refused.Location)
			require.LessOrEqual(t, len(s.requests()), 3, "no second question")
		})
	}
}

// The outcome may be anything: the contract marks it, also on the redirect to where it is.
func TestWhatAwaitTakesForTheOutcome(t *testing.T) {
	mark := []string{HeaderOriginalDate, noon.Format(http.TimeFormat)}
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		status  int
	}{
		"marked":                   {[]http.HandlerFunc{status(503, mark...)}, 503},
		"marked, and accepted":     {[]http.HandlerFunc{status(202, mark...)}, 202},
		"a resource":               {[]http.HandlerFunc{status(303, "Location", "/own"), status(200)}, 200},
		"a resource, refused":      {[]http.HandlerFunc{status(303, append(mark, "Location", "/own")...), status(403)}, 403},
		"a resource that is down":  {[]http.HandlerFunc{status(303, append(mark, "Location", "/own")...), status(500)}, 500},
		"behind a marked redirect": {[]http.HandlerFunc{status(302, append(mark, "Location", "/own")...), status(200)}, 200},
		"forgotten":                {[]http.HandlerFunc{problemOf(410, CodeExpired, false)}, 410},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, append([]http.HandlerFunc{status(202, "Location", "/jobs/7")}, c.answers...)...)
			trial := newTrial(t, nil, &ClientOptions{MaxAttempts: 1})
			res, err := trial.await(t, request(t, "POST", strings.Replace(s.URL, "http://", "http://me:secret@", 1), `{}`))
			require.NoError(t, err)
			require.Equal(t, c.status, res.StatusCode)
			for _, r := range s.requests() {
				require.NotEmpty(t, r.header.Get("Authorization"))
			}
		})
	}
}

// Await follows redirects by itself: no client of the caller's could keep the headers back.
func TestAwaitLeavesTheHeadersAtTheFirstHost(t *testing.T) {
	other := serving(t, status(200))
	away := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	s := serving(t, status(202, "Location", "/jobs/7"), status(303, "Location", "/archive"),
		status(303, "Location", away+"/link"))
	c := newTrial(t, nil, nil)
	req := request(t, "POST", s.URL+"/jobs", `{}`)
	req.Host = "bank.example"
	names := []string{"Authorization", "Cookie", "X-Api-Key", "X-Amz-Security-Token"}
	for _, name := range names {
		req.Header.Set(name, "mine")
	}
	res, err := c.await(t, req)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	for _, name := range names {
		for _, r := range s.requests() {
			require.Equal(t, "mine", r.header.Get(name), r.path)
		}
		require.Empty(t, other.requests()[0].header.Get(name))
	}
	require.Empty(t, other.requests()[0].header.Get("Referer"), "it has the id of the status")
	for _, r := range s.requests() {
		require.Equal(t, "bank.example", r.host, r.path)
	}

	// Nor does the host of the status get them, if it is another one.
	req = request(t, "POST", serving(t, status(202, "Location", away)).URL, `{}`)
	req.Header.Set("X-Api-Key", "mine")
	_, err = c.await(t, req)
	require.NoError(t, err)
	require.Empty(t, other.requests()[1].header.Get("X-Api-Key"))

	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://API.example.com/a", "https://api.example.com:443/b", true},
		{"http://api.example.com:80", "http://api.example.com", true},
		{"http://api.example.com:443", "https://api.example.com:443", false},
		{"https://api.example.com", "https://api.example.com:8443", false},
		{"https://api.example.com", "https://api.example.com.evil", false},
	} {
		a, err := url.Parse(c.a)
		require.NoError(t, err)
		b, err := url.Parse(c.b)
		require.NoError(t, err)
		require.Equal(t, c.same, isSameHost(a, b), "%s and %s", c.a, c.b)
	}
}

// A service that never ends its bodies holds up neither a request nor Await.
func TestBodiesThatStall(t *testing.T) {
	problem, html := http.Header{"Content-Type": {ProblemMediaType}}, http.Header{"Content-Type": {"text/html"}}
	inJSON := http.Header{"Content-Type": {"application/json"}}
	followed := http.Header{"Content-Type": {"application/json"}, "Location": {"/jobs/7"}}
	for name, first := range map[string]struct {
		code   int
		header http.Header
		sends  int
		err    error
	}{
		"a problem": {503, problem, 2, nil}, "another answer": {503, html, 2, nil},
		"a 202": {202, inJSON, 1, ErrStillRunning}, "a 202 with a Location": {202, followed, 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			sends, code, header := 0, first.code, first.header
			transport, err := NewTransport(answering(func(r *http.Request) (*http.Response, error) {
				sends++
				body, _ := io.Pipe()
				return &http.Response{StatusCode: code, Header: header, Body: body, Request: r}, nil
			}), &ClientOptions{MaxAttempts: 2})
			require.NoError(t, err)
			begun := time.Now()
			req := request(t, "POST", "http://service.example/jobs", `{}`)
			res, err := transport.RoundTrip(req)
			require.ErrorIs(t, err, first.err)
			if err == nil {
				require.NoError(t, res.Body.Close())
			}
			require.Equal(t, first.sends, sends, name)
			require.Less(t, time.Since(begun), 3*time.Second, name)

			code, header = 202, http.Header{"Location": {"/jobs/7"}}
			res, err = transport.RoundTrip(req)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun = time.Now()
			_, err = transport.Await(ctx, res)
			require.ErrorIs(t, err, ErrStillRunning)
			require.LessOrEqual(t, time.Since(begun), 10*time.Second+drainTime, name)
		})
	}
}

// A caller whose context ends while the body of a 202 is read gets that error too.
func TestACancelledReadOfA202(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	transport, err := NewTransport(answering(func(r *http.Request) (*http.Response, error) {
		body, end := io.Pipe()
		cancel()
		_ = end.CloseWithError(context.Canceled)
		return &http.Response{StatusCode: 202, Header: http.Header{"Content-Type": {"application/json"}}, Body: body,
			Request: r}, nil
	}), nil)
	require.NoError(t, err)
	_, err = transport.RoundTrip(request(t, "POST", "http://service.example/jobs", `{}`).WithContext(ctx))
	require.ErrorIs(t, err, ErrStillRunning)
	require.ErrorIs(t, err, context.Canceled)
}

// due is a context that has a deadline by the trial's clock.
type due struct {
	context.Context
	at time.Time
}

func (u due) Deadline() (time.Time, bool) { return u.at, true }

func TestAwaitEndsInTime(t *testing.T) {
	accepted := status(202, "Location", "/jobs/7", "Retry-After", "10")
	s := serving(t, accepted)
	c := newTrial(t, nil, nil)
	send := func() *http.Response {
		res, err := c.Do(request(t, "POST", strings.Replace(s.URL, "http://", "http://me:secret@", 1)+"/jobs", `{}`))
		require.NoError(t, err)
		return res
	}
	var late *SendError
	first := send()
	_, err := c.transport.Await(due{t.Context(), noon.Add(35 * time.Second)}, first)
	require.ErrorIs(t, err, ErrStillRunning)
	require.ErrorAs(t, err, &late)
	require.Equal(t, s.URL+"/jobs/7", late.Location)
	require.Equal(t, KeyOf(first), late.Key)
	require.NotEmpty(t, late.Key)
	require.Equal(t, 202, late.Status)
	require.Less(t, c.at, noon.Add(35*time.Second))

	// Without a deadline, until the outcome may be forgotten.
	brief := newTrial(t, nil, &ClientOptions{Retention: time.Hour})
	_, err = brief.await(t, request(t, "POST", s.URL+"/jobs", `{}`))
	require.ErrorIs(t, err, ErrStillRunning)
	require.WithinRange(t, brief.at, noon.Add(59*time.Minute), noon.Add(time.Hour))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.transport.Await(ctx, send())
	require.ErrorIs(t, err, context.Canceled)

	s.mu.Lock()
	s.got, s.answers = nil, []http.HandlerFunc{accepted, drop}
	s.mu.Unlock()
	_, err = c.transport.Await(t.Context(), send())
	require.ErrorAs(t, err, &late)
	require.Equal(t, s.URL+"/jobs/7", late.Location)
	require.NotErrorIs(t, err, ErrStillRunning)

	for _, wrong := range []string{"http://[", "gopher://example.com/"} {
		s.mu.Lock()
		s.got, s.answers = nil, []http.HandlerFunc{status(202, "Location", wrong)}
		s.mu.Unlock()
		_, err = c.transport.Await(t.Context(), send())
		require.ErrorAs(t, err, &late, wrong)
	}
}

// Other answers are nothing to wait for.
func TestAwaitReturnsOtherAnswers(t *testing.T) {
	c := newTrial(t, nil, nil)
	s := serving(t, status(202), status(201, "Location", "/jobs/7"), status(404))
	for range 3 {
		res, err := c.Do(request(t, "POST", s.URL+"/jobs", `{}`))
		require.NoError(t, err)
		same, err := c.transport.Await(t.Context(), res)
		require.NoError(t, err)
		require.Same(t, res, same)
		require.NoError(t, res.Body.Close())
	}
	require.Len(t, s.requests(), 3)
}
