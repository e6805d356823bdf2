package idemhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// problemOf answers with a problem of the contract.
func problemOf(status int, code Code, retryable any, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ProblemMediaType)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%q,"retryable":%v}`, code, retryable)
	}
}

func TestWhatIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		answer http.HandlerFunc
		again  bool
	}{
		"created":                 {"POST", status(201), false},
		"business conflict":       {"POST", status(409), false},
		"bad request":             {"POST", status(400), false},
		"request time-out":        {"POST", status(408), false},
		"server error":            {"POST", status(500), false},
		"too early":               {"POST", status(425), true},
		"throttled":               {"POST", status(429), true},
		"bad gateway":             {"POST", status(502), true},
		"unavailable":             {"POST", status(503), true},
		"gateway time-out":        {"POST", status(504), true},
		"dropped":                 {"POST", drop, true},
		"PATCH":                   {"PATCH", status(503), true},
		"GET":                     {"GET", status(503), true},
		"GET dropped":             {"GET", drop, true},
		"PUT":                     {"PUT", status(503), true},
		"DELETE":                  {"DELETE", status(429), true},
		"unknown method":          {"LOCK", status(503), false},
		"unknown method, dropped": {"LOCK", drop, false},
		"in progress":             {"POST", problemOf(409, CodeInProgress, true), true},
		"unreadable record":       {"POST", problemOf(503, CodeRecordUnreadable, false), false},
		"final 429":               {"POST", problemOf(429, "quota_gone", false), false},
		"a service's own row":     {"POST", problemOf(423, CodeInProgress, true), true},
		"accepted":                {"POST", problemOf(202, CodeAccepted, true), false},
		"a problem that is mute":  {"POST", problemOf(503, "maintenance", "null"), true},
		"not a boolean":           {"POST", problemOf(503, "maintenance", `"no"`), true},
		"damaged problem":         {"POST", status(503, "Content-Type", ProblemMediaType), true},
		"damaged, final status":   {"POST", status(409, "Content-Type", ProblemMediaType), false},
		"other JSON":              {"POST", problemOf(409, CodeInProgress, true, "Content-Type", "application/json"), false},
		"type with parameter": {"POST",
			problemOf(409, CodeInProgress, true, "Content-Type", "Application/Problem+JSON; charset=utf-8"), true},
		"encoded problem": {"POST", problemOf(409, CodeInProgress, true, "Content-Encoding", "zstd"), false},
		"replay":          {"POST", problemOf(422, "no_stock", true, HeaderReplayed, "true"), false},
		"replay, Stripe":  {"POST", problemOf(422, "no_stock", true, HeaderReplayedStripe, "true"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, c.answer, status(200))
			res, err := newTrial(t, nil, nil).Do(request(t, c.method, s.URL, "order"))
			want := 1
			if c.again {
				want = 2
				require.NoError(t, err)
				require.Equal(t, 200, res.StatusCode)
			}
			if err == nil {
				res.Body.Close()
			}
			require.Len(t, s.requests(), want)
			require.Equal(t, c.method == "POST" || c.method == "PATCH", s.keys()[0] != "")
		})
	}
}

// Every refusal of the contract, in both profiles: the client does what the problem says, whatever the status.
func TestClientFollowsEveryCodeOfTheContract(t *testing.T) {
	for _, profile := range []Profile{IETF, Stripe} {
		c := newContract(t, memory(), func(o *Options) { o.Profile = profile })
		for code, r := range c.rows {
			answer := c.refusal(t.Context(), payment(), &situation{code: code})
			s := serving(t, answer.writeTo, status(201))
			newTrial(t, nil, nil).do(t, request(t, "POST", s.URL, "order"))
			require.Equal(t, r.retryable, len(s.requests()) == 2, code)
		}
	}
}

func TestAProblemThatWasLookedAtIsWhole(t *testing.T) {
	long := strings.Repeat("x", maxProblem)
	for name, body := range map[string]string{
		"final": `{"retryable":false,"detail":"n"}`,
		"long":  `{"detail":"` + long + `","retryable":true}`,
		"mute":  `{}`,
		"empty": "",
	} {
		s := serving(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ProblemMediaType)
			w.WriteHeader(409)
			_, _ = io.WriteString(w, body)
		})
		code, got := newTrial(t, nil, nil).do(t, request(t, "POST", s.URL, "order"))
		require.Equal(t, 409, code, name)
		require.Equal(t, body, got, name)
	}
}

func TestAProblemThatBreaksOffStaysBroken(t *testing.T) {
	broken := errors.New("connection reset")
	c := newTrial(t, answering(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 409, Header: http.Header{"Content-Type": {ProblemMediaType}},
			Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"code"`), &failingOnce{err: broken}))}, nil
	}), nil)
	res, err := c.Do(request(t, "POST", "http://service.test/", "order"))
	require.NoError(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	require.ErrorIs(t, err, broken)
	require.Equal(t, `{"code"`, string(got))
}

// failingOnce forgets its error, as a body may.
type failingOnce struct{ err error }

func (f *failingOnce) Read([]byte) (int, error) {
	if err := f.err; err != nil {
		f.err = nil
		return 0, err
	}
	return 0, io.EOF
}

// answering is a base without a network.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func reply(status int, body io.ReadCloser, headers ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: body}
	for i := 0; i < len(headers); i += 2 {
		res.Header.Set(headers[i], headers[i+1])
	}
	return res
}

func TestAnswersBeforeTheLastAreReadAndClosed(t *testing.T) {
	var bodies []*watched
	c := newTrial(t, answering(func(*http.Request) (*http.Response, error) {
		size := 1000
		if len(bodies) == 1 {
			size = 10 * maxDrain
		}
		bodies = append(bodies, &watched{Reader: bytes.NewReader(make([]byte, size))})
		return reply(503, bodies[len(bodies)-1]), nil
	}), &ClientOptions{MaxAttempts: 3})
	res, err := c.Do(request(t, "POST", "http://service.test/", "order"))
	require.NoError(t, err)
	require.True(t, bodies[0].ended && bodies[0].closed)
	require.True(t, !bodies[1].ended && bodies[1].closed, "a long answer is read to its end")
	require.False(t, bodies[2].ended || bodies[2].closed)
	res.Body.Close()
	require.True(t, bodies[2].closed)
	require.NotEmpty(t, KeyOf(res), "a base that does not say which request it sent")
}

func TestDelays(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		o      *ClientOptions
		answer http.HandlerFunc
		want   []time.Duration
	}{
		"doubles": {nil, status(503), []time.Duration{s / 5, 2 * s / 5, 4 * s / 5, 8 * s / 5}},
		"up to its limit": {&ClientOptions{Backoff: s, MaxBackoff: 3 * s}, status(503),
			[]time.Duration{s, 2 * s, 3 * s, 3 * s}},
		"seconds": {&ClientOptions{Backoff: 1, MaxBackoff: 1}, status(503, "Retry-After", "7"),
			[]time.Duration{7*s + 1, 7*s + 1, 7*s + 1, 7*s + 1}},
		"zero": {&ClientOptions{Backoff: s, MaxAttempts: 2}, status(503, "Retry-After", "0"), []time.Duration{s}},
		"date, server's clock": {&ClientOptions{Backoff: s, MaxAttempts: 2},
			status(503, "Date", "Sat, 01 Jan 2000 00:00:00 GMT", "Retry-After", "Sat, 01 Jan 2000 00:00:09 GMT"),
			[]time.Duration{10 * s}},
		"date, past": {&ClientOptions{Backoff: s, MaxAttempts: 2},
			status(503, "Date", "Sat, 01 Jan 2000 00:00:00 GMT", "Retry-After", "Fri, 31 Dec 1999 00:00:00 GMT"),
			[]time.Duration{s}},
		"not to be read": {&ClientOptions{Backoff: s, MaxAttempts: 2}, status(503, "Retry-After", "soon"),
			[]time.Duration{s}},
		"negative": {&ClientOptions{Backoff: s, MaxAttempts: 2}, status(503, "Retry-After", "-5"), []time.Duration{s}},
		"at most": {&ClientOptions{Backoff: 1, MaxBackoff: 1, MaxAttempts: 2}, status(503, "Retry-After", "60"),
			[]time.Duration{60*s + 1}},
		"longer": {&ClientOptions{Backoff: 1, MaxBackoff: 1}, status(503, "Retry-After", "61"),
			[]time.Duration{60*s + 1, 60*s + 1, 60*s + 1, 60*s + 1}},
		"longer than its own": {&ClientOptions{Backoff: 1, MaxAttempts: 2, MaxWait: s / 2},
			problemOf(409, CodeInProgress, true, "Retry-After", "2"), []time.Duration{s/2 + 1}},
		"out of range": {&ClientOptions{Backoff: 1, MaxAttempts: 2}, status(503, "Retry-After", "9223372036854775808"),
			[]time.Duration{60*s + 1}},
		"far out of range": {&ClientOptions{Backoff: 1, MaxAttempts: 2},
			status(503, "Retry-After", strings.Repeat("9", 40)), []time.Duration{60*s + 1}},
		"date, far in future": {&ClientOptions{Backoff: 1, MaxAttempts: 2},
			status(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), []time.Duration{60*s + 1}},
		"final, and long": {nil, problemOf(429, "quota_gone", false, "Retry-After", "86400"), nil},
		"once only":       {&ClientOptions{MaxAttempts: 1}, status(503), nil},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serving(t, c.answer)
			trial := newTrial(t, nil, c.o)
			code, _ := trial.do(t, request(t, "POST", srv.URL, "order"))
			require.GreaterOrEqual(t, code, 400)
			require.Equal(t, c.want, trial.delays)
			require.Len(t, srv.requests(), len(c.want)+1)
		})
	}
}

func TestDateWithoutAServersClock(t *testing.T) {
	res := reply(503, http.NoBody, "Retry-After", noon.Add(9*time.Second).Format(http.TimeFormat))
	require.Equal(t, 9*time.Second, retryAfterOf(res, noon))
}

func TestJitterIsAnythingUpToItsLimit(t *testing.T) {
	low, high := false, false
	for range 1000 {
		d := upTo(10)
		require.True(t, 0 <= d && d <= 10, d)
		low, high = low || d == 0, high || d == 10
	}
	require.True(t, low && high)
}

// The real clock and timers, without a network.
func TestContextEndsTheSending(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		after           string        // of the service's 503
		deadline, limit time.Duration // of the context, and of the client
		cancel          time.Duration
		sent            int
		least, most     time.Duration
	}{
		"no time left to wait":     {after: "5", deadline: 4 * s, sent: 1},
		"asked to wait for longer": {after: "86400", deadline: 150 * s, sent: 3, least: 119 * s, most: 121 * s},
		"client's time limit":      {after: "5", limit: 12 * s, sent: 3, least: 5 * s, most: 12*s - 1},
		"cancelled while waiting":  {after: "5", cancel: 2 * s, sent: 1, least: 2 * s, most: 2 * s},
		"cancelled while sending":  {after: "5", cancel: 1, sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(WithKey(t.Context(), testKey))
				defer cancel()
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				n := 0
				transport, err := NewTransport(answering(func(r *http.Request) (*http.Response, error) {
					if n++; c.cancel == 1 {
						cancel()
						return nil, r.Context().Err()
					}
					return reply(503, http.NoBody, "Retry-After", c.after), nil
				}), nil)
				require.NoError(t, err)
				began := time.Now()
				if c.cancel > 1 {
					time.AfterFunc(c.cancel, cancel)
				}
				res, err := (&http.Client{Transport: transport, Timeout: c.limit}).Do(
					request(t, "POST", "http://service.test/", "").WithContext(ctx))
				require.Equal(t, c.sent, n)
				require.GreaterOrEqual(t, time.Since(began), c.least)
				require.LessOrEqual(t, time.Since(began), c.most)
				if c.cancel == 0 {
					require.NoError(t, err)
					require.NoError(t, res.Body.Close())
					require.Equal(t, 503, res.StatusCode)
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				var failed *SendError
				if c.cancel > 1 {
					require.ErrorAs(t, err, &failed)
					require.Equal(t, SendError{Key: testKey, FirstSent: began, Attempts: 1, Status: 503,
						Err: context.Canceled}, *failed)
				}
			})
		})
	}
}

func TestSendErrorHasWhatTheNextCallNeeds(t *testing.T) {
	s := serving(t, drop)
	c := newTrial(t, nil, &ClientOptions{MaxAttempts: 3})
	_, err := c.Do(request(t, "POST", s.URL, "order"))
	var failed *SendError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, SendError{Key: s.keys()[0], FirstSent: noon, Attempts: 3, Err: failed.Err}, *failed)
	require.ErrorContains(t, err, "attempts: 3)")
	require.ErrorContains(t, err, "same key")
	require.False(t, failed.Timeout())
	require.True(t, (&SendError{Err: context.DeadlineExceeded}).Timeout())

	_, err = c.Do(request(t, "DELETE", s.URL, ""))
	require.ErrorAs(t, err, &failed)
	require.Empty(t, failed.Key)
	require.NotContains(t, err.Error(), "key")
	require.ErrorContains(t, &SendError{Attempts: 2, Status: 503, Err: io.EOF}, "(attempts: 2, last status: 503)")
}

func TestAPeerThatIsNotTrustedIsAskedOnce(t *testing.T) {
	tls := httptest.NewUnstartedServer(status(200))
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	c := newTrial(t, &http.Transport{}, nil)
	_, err := c.Do(request(t, "POST", tls.URL, "order"))
	require.Error(t, err)
	require.Empty(t, c.delays)

	plain := serving(t, status(200))
	_, err = c.Do(request(t, "POST", strings.Replace(plain.URL, "http:", "https:", 1), "order"))
	require.Error(t, err)
	require.Empty(t, c.delays)
}

func TestBodies(t *testing.T) {
	long := strings.Repeat("x", 100)
	stream := func(text string) io.Reader { return &watched{Reader: strings.NewReader(text)} }
	for name, c := range map[string]struct {
		body    io.Reader
		o       *ClientOptions
		change  func(*http.Request)
		want    string
		lengths []int64
	}{
		"none":             {nil, nil, nil, "", []int64{0, 0}},
		"in memory":        {strings.NewReader("order"), nil, nil, "order", []int64{5, 5}},
		"stream":           {stream("order"), nil, nil, "order", []int64{5, 5}},
		"empty stream":     {stream(""), nil, nil, "", []int64{0, 0}},
		"stream, as large": {stream(long), &ClientOptions{MaxBody: 100}, nil, long, []int64{100, 100}},
		"too large":        {stream(long), &ClientOptions{MaxBody: 99}, nil, long, []int64{-1}},
		"too large, known": {stream(long), &ClientOptions{MaxBody: 99},
			func(r *http.Request) { r.ContentLength = 100 }, long, []int64{100}},
		"large in memory": {strings.NewReader(long), &ClientOptions{MaxBody: 1}, nil, long, []int64{100, 100}},
		"never buffered":  {stream("order"), &ClientOptions{MaxBody: -1}, nil, "order", []int64{-1}},
		"chunked": {stream("order"), nil,
			func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }, "order", []int64{-1}},
		"trailer": {stream("order"), nil,
			func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"1"}} }, "order", []int64{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, status(503))
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, c.body)
			require.NoError(t, err)
			if c.change != nil {
				c.change(req)
			}
			var o ClientOptions
			if c.o != nil {
				o = *c.o
			}
			o.MaxAttempts = 2
			code, _ := newTrial(t, nil, &o).do(t, req)
			require.Equal(t, 503, code)
			var lengths []int64
			for _, r := range s.requests() {
				require.Equal(t, c.want, r.body)
				require.NotEmpty(t, r.header.Get(DefaultKeyHeader), "a body that is sent once has a key nevertheless")
				lengths = append(lengths, r.length)
			}
			require.Equal(t, c.lengths, lengths)
			if body, ok := c.body.(*watched); ok {
				require.True(t, body.closed)
			}
		})
	}
}

func TestABodyThatCannotBeReadIsNotSent(t *testing.T) {
	broken := errors.New("disk failed")
	s := serving(t, status(200))
	body := &watched{Reader: io.MultiReader(strings.NewReader("ord"), failing{broken})}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
	require.NoError(t, err)
	_, err = newTrial(t, nil, nil).Do(req)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "nothing was sent")
	require.Empty(t, s.requests())
	require.True(t, body.closed)
}

func TestABodyThatCannotBeHadAgainEndsTheSending(t *testing.T) {
	broken := errors.New("file moved")
	s := serving(t, status(503))
	req := request(t, "POST", s.URL, "order")
	req.GetBody = func() (io.ReadCloser, error) { return nil, broken }
	_, err := newTrial(t, nil, nil).Do(req)
	require.ErrorIs(t, err, broken)
	var failed *SendError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 503, failed.Status)
	require.Len(t, s.requests(), 1)
}
