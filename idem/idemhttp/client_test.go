package idemhttp

import (
	"context"
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
