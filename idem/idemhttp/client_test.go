package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// trial is a client with a clock of its own. Waiting takes no time, and the
// random part of a delay is its limit.
type trial struct {
	*http.Client
	transport *Transport
	mu        sync.Mutex
	at        time.Time
	delays    []time.Duration
}

func newTrial(t testing.TB, base http.RoundTripper, o *ClientOptions) *trial {
	t.Helper()
	transport, err := NewTransport(base, o)
	require.NoError(t, err)
	c := &trial{Client: &http.Client{Transport: transport}, transport: transport, at: noon}
	transport.now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.at
	}
	transport.wait = func(ctx context.Context, d time.Duration) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.at, c.delays = c.at.Add(d), append(c.delays, d)
		return ctx.Err()
	}
	transport.jitter = func(max time.Duration) time.Duration { return max }
	return c
}

// do sends a request and returns status and body.
func (c *trial) do(t testing.TB, req *http.Request) (int, string) {
	t.Helper()
	res, err := c.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// service is a real server that answers each request with the next handler, and
// remembers what it got.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	answers []http.HandlerFunc
	got     []received
}

type received struct {
	method, path, body string
	header             http.Header
	length             int64
}

func serving(t testing.TB, answers ...http.HandlerFunc) *service {
	s := &service{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got = append(s.got, received{r.Method, r.URL.Path, string(body), r.Header.Clone(), r.ContentLength})
	answer := s.answers[min(len(s.got), len(s.answers))-1]
	s.mu.Unlock()
	answer(w, r)
}

func (s *service) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func (s *service) keys() (keys []string) {
	for _, r := range s.requests() {
		keys = append(keys, strings.Join(r.header.Values(DefaultKeyHeader), "+"))
	}
	return keys
}

// status answers with a status and headers, in pairs.
func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, http.StatusText(code))
	}
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func request(t testing.TB, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	return req
}

const uuid7Form = `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`

func TestNewKeysCarryTheirTime(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		k := uuid7(noon)
		require.Regexp(t, uuid7Form, k)
		require.Equal(t, "01a1fdfa4600", strings.ReplaceAll(k, "-", "")[:12]) // noon in milliseconds
		require.False(t, seen[k])
		seen[k] = true
	}
	require.Less(t, uuid7(noon), uuid7(noon.Add(time.Millisecond)))
	require.Regexp(t, uuid7Form, NewKey())
}

func TestCallersKeyIsKept(t *testing.T) {
	const own = `"any form: what the service takes"`
	for name, c := range map[string]struct {
		header, context string
		o               *ClientOptions
		want            string
	}{
		"header":            {own, "", nil, own},
		"context":           {"", testKey, nil, testKey},
		"both, the same":    {testKey, testKey, nil, testKey},
		"short":             {"", "4711", nil, "4711"},
		"own header's name": {"", testKey, &ClientOptions{KeyHeader: "x-request-key"}, testKey},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, status(503), status(200))
			req := request(t, "POST", s.URL, "")
			header := DefaultKeyHeader
			if c.o != nil {
				header = c.o.KeyHeader
			}
			if c.header != "" {
				req.Header.Set(header, c.header)
			}
			if c.context != "" {
				req = req.WithContext(WithKey(req.Context(), c.context))
			}
			res, err := newTrial(t, nil, c.o).Do(req)
			require.NoError(t, err)
			res.Body.Close()
			require.Equal(t, c.want, KeyOf(res))
			require.Len(t, s.requests(), 2)
			for _, r := range s.requests() {
				require.Equal(t, []string{c.want}, r.header.Values(header))
			}
		})
	}
}

func TestUnusableKeysAreNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		header []string
		key    any
		want   string
	}{
		"two headers":  {[]string{testKey, testKey}, nil, "2 Idempotency-Key headers"},
		"empty header": {[]string{""}, nil, "header is empty"},
		"two keys":     {[]string{testKey}, testKey + "1", "different keys"},
		"empty":        {nil, "", "empty key"},
		"quotes":       {nil, `"` + testKey + `"`, "without quotes"},
		"grammar":      {nil, "order/4711", "letters, digits"},
		"white space":  {nil, " " + testKey, "white space"},
		"too long":     {nil, strings.Repeat("k", MaxKey+1), "at most 255"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, status(200))
			body := &watched{Reader: strings.NewReader("order")}
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
			require.NoError(t, err)
			for _, h := range c.header {
				req.Header.Add(DefaultKeyHeader, h)
			}
			if key, ok := c.key.(string); ok {
				req = req.WithContext(WithKey(req.Context(), key))
			}
			_, err = newTrial(t, nil, nil).Do(req)
			require.ErrorIs(t, err, idem.ErrKeyInvalid)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, s.requests())
			require.True(t, body.closed)
		})
	}
}

// watched is a body that knows whether it was read to its end and closed.
type watched struct {
	io.Reader
	ended, closed bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.ended = w.ended || err == io.EOF
	return n, err
}

func (w *watched) Close() error {
	w.closed = true
	return nil
}

func TestKeyOfForeignResponses(t *testing.T) {
	require.Empty(t, KeyOf(nil))
	require.Empty(t, KeyOf(&http.Response{}))
	require.Empty(t, KeyOf(&http.Response{Request: request(t, "POST", "/", "")}))
}

// net/http sends a request once more by itself when a kept connection turns out
// to be closed. That is one attempt of ours, under one key.
func TestOwnResendsOfNetHTTPKeepTheKey(t *testing.T) {
	s := serving(t, status(200), drop, status(201))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := newTrial(t, base, &ClientOptions{MaxAttempts: 1})
	c.do(t, request(t, "POST", s.URL, "first"))
	code, _ := c.do(t, request(t, "POST", s.URL, "second"))
	require.Equal(t, 201, code)
	keys := s.keys()
	require.Len(t, keys, 3)
	require.NotEqual(t, keys[0], keys[1])
	require.Equal(t, keys[1], keys[2])
	require.Equal(t, "second", s.requests()[2].body)
}

func TestClientMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		o    ClientOptions
		want string
	}{
		"key header":    {ClientOptions{KeyHeader: "a b"}, "KeyHeader"},
		"first sent":    {ClientOptions{FirstSentHeader: "a b"}, "FirstSentHeader"},
		"one header":    {ClientOptions{FirstSentHeader: "idempotency-key"}, "two headers"},
		"methods":       {ClientOptions{Methods: []string{"post"}}, "capitals"},
		"attempts":      {ClientOptions{MaxAttempts: -1}, "MaxAttempts"},
		"backoff":       {ClientOptions{Backoff: -1}, "Backoff"},
		"max backoff":   {ClientOptions{Backoff: 2, MaxBackoff: 1}, "MaxBackoff"},
		"negative max":  {ClientOptions{MaxBackoff: -1}, "MaxBackoff"},
		"backoff days":  {ClientOptions{MaxBackoff: 25 * time.Hour}, "MaxBackoff"},
		"wait days":     {ClientOptions{MaxWait: 25 * time.Hour}, "MaxWait"},
		"wait":          {ClientOptions{MaxWait: -1}, "MaxWait"},
		"retention":     {ClientOptions{Retention: -1}, "Retention"},
		"empty method":  {ClientOptions{Methods: []string{""}}, "capitals"},
		"method spaces": {ClientOptions{Methods: []string{"A B"}}, "capitals"},
	} {
		_, err := NewTransport(nil, &c.o)
		var config *idem.ConfigError
		require.ErrorAs(t, err, &config, name)
		require.ErrorContains(t, err, c.want, name)
	}
	o, err := (*ClientOptions)(nil).check()
	require.NoError(t, err)
	require.Equal(t, ClientOptions{
		KeyHeader: "Idempotency-Key", Methods: []string{"POST", "PATCH"}, MaxAttempts: 5, Backoff: 200 * time.Millisecond,
		MaxBackoff: 10 * time.Second, MaxWait: time.Minute, Retention: 24 * time.Hour, MaxBody: 1 << 20,
	}, o)
	o, err = (&ClientOptions{Backoff: time.Minute}).check()
	require.NoError(t, err)
	require.Equal(t, time.Minute, o.MaxBackoff)
	o, err = (&ClientOptions{MaxBackoff: time.Millisecond}).check()
	require.NoError(t, err)
	require.Equal(t, time.Millisecond, o.Backoff)
}

// order sends the laterService a request whose outcome takes a while.
func (b *laterService) order(c *trial) (*http.Response, error) {
	req, err := http.NewRequestWithContext(WithKey(b.Context(), testKey), "POST", b.server.URL+"/statements", strings.NewReader(june))
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
		"done":       {status: 200, body: `{"Pages":3}`},
		"failed":     {end: idem.Permanent(errors.New("no such account")), status: 500, body: "operation_failed"},
		"unknown":    {end: errors.New("time-out"), status: 409, body: "outcome_unknown"},
		"a resource": {change: func(l *Later, _ *Options) { l.ResultLocation = func([]byte) string { return "/own" } }, status: 200, body: "own"},
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
	s := serving(t,
		status(202, "Location", "jobs/7", "Retry-After", "7"),
		status(503), status(502),
		status(202, "Retry-After", "100000"),
		status(200),
	)
	c := newTrial(t, nil, &ClientOptions{FirstSentHeader: "First-Sent"})
	req := request(t, "POST", s.URL+"/prod/jobs", `{}`)
	req.Header.Set("Authorization", "Bearer mine")
	req.Header.Set("If-Match", "x")
	res, err := c.Do(req)
	require.NoError(t, err)
	res, err = c.transport.Await(t.Context(), res)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
	got := s.requests()
	require.Len(t, got, 5)
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
	}, c.delays)

	// Another host gets none of the request's headers.
	other := serving(t, status(200))
	s = serving(t, status(202, "Location", strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	req = request(t, "POST", s.URL, `{}`)
	req.Header.Set("X-Api-Key", "mine")
	res, err = c.Do(req)
	require.NoError(t, err)
	res, err = c.transport.Await(t.Context(), res)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Empty(t, other.requests()[0].header.Get("X-Api-Key"))
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
		res, err := c.Do(request(t, "POST", s.URL+"/jobs", `{}`))
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
