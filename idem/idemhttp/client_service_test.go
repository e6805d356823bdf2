package idemhttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// The answer is lost after the effect: the next attempt gets it, and nothing runs
// twice.
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

func TestAKeyIsNotSentAfterItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		o     *ClientOptions
		reply []string
		want  int
	}{
		// 0, 4, not 12
		"retention":     {&ClientOptions{Retention: 10 * time.Second, Backoff: 4 * time.Second}, nil, 2},
		"up to the end": {&ClientOptions{Retention: 12 * time.Second, Backoff: 4 * time.Second}, nil, 2},   // not at 12
		"one more":      {&ClientOptions{Retention: 12*time.Second + 1, Backoff: 4 * time.Second}, nil, 3}, // not at 22
		"advertised": {&ClientOptions{Backoff: 4 * time.Second},
			[]string{HeaderExpires, "Sat, 01 Jan 2000 00:00:05 GMT"}, 2},
		"advertised later": {&ClientOptions{Retention: time.Second, Backoff: 4 * time.Second},
			[]string{HeaderExpires, "Sat, 01 Jan 2000 00:00:50 GMT"}, 1},
		"advertised, damaged": {&ClientOptions{Backoff: time.Second, MaxAttempts: 3}, []string{HeaderExpires, "tomorrow"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			// The service's clock is far off.
			first := append([]string{"Date", "Sat, 01 Jan 2000 00:00:00 GMT"}, c.reply...)
			s := serving(t, status(503, first...), status(503))
			code, _ := newTrial(t, nil, c.o).do(t, request(t, "POST", s.URL, "order"))
			require.Equal(t, 503, code)
			require.Len(t, s.requests(), c.want)
		})
	}
}

func TestALaterCallKnowsTheFirstSending(t *testing.T) {
	s := serving(t, status(503), status(200))
	o := &ClientOptions{Retention: time.Hour, Backoff: time.Minute, MaxBackoff: time.Minute}
	send := func(age time.Duration) error {
		ctx := WithFirstSent(WithKey(t.Context(), testKey), noon.Add(-age))
		res, err := newTrial(t, nil, o).Do(request(t, "POST", s.URL, "order").WithContext(ctx))
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	err := send(time.Hour)
	require.ErrorIs(t, err, ErrKeyExpired)
	require.ErrorContains(t, err, "2026-11-21T11:00:00Z")
	require.Empty(t, s.requests(), "nothing may be sent")
	require.NoError(t, send(time.Hour-time.Minute))
	require.Len(t, s.requests(), 1, "its second attempt would come too late")
	require.NoError(t, send(time.Minute))
}

// Requests that are idempotent by themselves need no window.
func TestWindowsAreForKeys(t *testing.T) {
	s := serving(t, status(503), status(200))
	ctx := WithFirstSent(t.Context(), noon.Add(-48*time.Hour))
	code, _ := newTrial(t, nil, nil).do(t, request(t, "PUT", s.URL, "order").WithContext(ctx))
	require.Equal(t, 200, code)
}

func TestFirstSentHeader(t *testing.T) {
	o := &ClientOptions{FirstSentHeader: "first-sent", Backoff: 1500 * time.Millisecond}
	s := serving(t, status(503), status(307, "Location", "/moved"), status(201), status(200))
	c := newTrial(t, nil, o)
	c.do(t, request(t, "POST", s.URL, "order"))
	req := request(t, "POST", s.URL, "order")
	req.Header.Set("First-Sent", "earlier")
	c.do(t, req)
	c.do(t, request(t, "GET", s.URL, ""))
	ctx := WithFirstSent(t.Context(), noon.Add(-time.Minute).In(time.FixedZone("", 3600)))
	c.do(t, request(t, "POST", s.URL, "order").WithContext(ctx))
	var got []string
	for _, r := range s.requests() {
		got = append(got, strings.Join(r.header.Values("First-Sent"), "+"))
	}
	const first = "2026-11-21T12:00:00.000Z"
	require.Equal(t, []string{first, first, first, "earlier", "", "2026-11-21T11:59:00.000Z"}, got)
	_, err := time.Parse(time.RFC3339, first)
	require.NoError(t, err)
}

func TestTwoHeadersInTwoSpellings(t *testing.T) {
	req := request(t, "POST", "http://service.test/", "order")
	req.Header["idempotency-KEY"], req.Header["Idempotency-Key"] = []string{testKey}, []string{"another"}
	_, err := newTrial(t, nil, nil).Do(req)
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
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
