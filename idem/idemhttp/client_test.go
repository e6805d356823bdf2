package idemhttp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// trial is a client with a clock of its own. Waiting takes no time, and the random part of a delay is its limit.
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

// await sends a request, follows it to its outcome and closes that.
func (c *trial) await(t testing.TB, req *http.Request) (*http.Response, error) {
	t.Helper()
	res, err := c.Do(req)
	require.NoError(t, err)
	if res, err = c.transport.Await(t.Context(), res); err == nil {
		require.NoError(t, res.Body.Close())
	}
	return res, err
}

// service is a real server that answers each request with the next handler, and remembers what it got.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	answers []http.HandlerFunc
	got     []received
}

type received struct {
	method, path, body, host string
	header                   http.Header
	length                   int64
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
	s.got = append(s.got, received{r.Method, r.URL.Path, string(body), r.Host, r.Header.Clone(), r.ContentLength})
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
		require.ErrorAs(t, err, new(*idem.ConfigError), name)
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

// The answer is lost after the effect: the next attempt gets it, and nothing runs twice.
func TestALostAnswerIsReplayed(t *testing.T) {
	var runs, sent atomic.Int32
	h := mounted(netContract(t, memory()), nil, func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		_, _ = io.WriteString(w, "made")
	})
	s := serving(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("{}"))
		r.Header.Set("X-Tenant", "blue")
		if sent.Add(1) == 3 {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		drop(w, r)
	})
	code, body := newTrial(t, nil, nil).do(t, request(t, "POST", s.URL+"/payments", "{}"))
	require.Equal(t, 200, code)
	require.Equal(t, "made", body)
	require.EqualValues(t, 1, runs.Load())
	require.Len(t, s.requests(), 3)
}

// The 202 of accepted work without a Location is not the operation's answer: the request is
// sent again, and in the end is an error.
func TestAcceptedIsNoAnswer(t *testing.T) {
	answered := func(code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(202)
			_, _ = io.WriteString(w, `{"code":"`+code+`","retryable":true}`)
		}
	}
	s := serving(t, answered(string(CodeAccepted)), status(402))
	got, _ := newTrial(t, nil, nil).do(t, request(t, "POST", s.URL, "order"))
	require.Equal(t, 402, got)

	for _, attempts := range []int{1, 3} {
		s = serving(t, answered(string(CodeAccepted)))
		_, err := newTrial(t, nil, &ClientOptions{MaxAttempts: attempts}).Do(request(t, "POST", s.URL, "order"))
		var unsure *SendError
		require.ErrorAs(t, err, &unsure)
		require.ErrorIs(t, err, ErrStillRunning)
		require.Equal(t, 202, unsure.Status)
		require.Equal(t, s.keys()[0], unsure.Key)
		require.Len(t, s.requests(), attempts)
	}
	// A request without a key is none of the contract's: its 202 is what it asked for.
	s = serving(t, answered(string(CodeAccepted)))
	got, _ = newTrial(t, nil, nil).do(t, request(t, "GET", s.URL+"/jobs/1", ""))
	require.Equal(t, 202, got)
	require.Len(t, s.requests(), 1)
	// The operation's own 202 is its answer, whatever it says.
	s = serving(t, answered("queued"))
	got, body := newTrial(t, nil, nil).do(t, request(t, "POST", s.URL, "order"))
	require.Equal(t, 202, got)
	require.Contains(t, body, "queued")
	require.Len(t, s.requests(), 1)
}

func TestIdleConnectionsBehindAreClosed(t *testing.T) {
	base := &idle{}
	transport, err := NewTransport(base, nil)
	require.NoError(t, err)
	(&http.Client{Transport: transport}).CloseIdleConnections()
	require.Equal(t, 1, base.closed)
	transport, err = NewTransport(answering(nil), nil)
	require.NoError(t, err)
	require.NotPanics(t, transport.CloseIdleConnections)
}

type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestOtherRequestsPassUntouched(t *testing.T) {
	var got *http.Request
	given := reply(503, http.NoBody)
	c := newTrial(t, answering(func(r *http.Request) (*http.Response, error) {
		got = r
		return given, nil
	}), nil)
	for i, method := range []string{"LOCK", "get", "PROPFIND"} {
		req := request(t, method, "http://service.test/"+strconv.Itoa(i), "order")
		res, err := c.transport.RoundTrip(req)
		require.NoError(t, err)
		require.Same(t, req, got)
		require.Same(t, given, res)
	}
}
