package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Transport is an [http.RoundTripper] for clients of services with this contract.
// It gives each logical request one key, sends the request again if that is safe and
// useful, and keeps the key:
//
//	transport, err := idemhttp.NewTransport(http.DefaultTransport, nil)
//	client := &http.Client{Transport: transport}
//	res, err := client.Post(url, "application/json", strings.NewReader(order))
//
// A logical request is one call of [http.Client.Do], with its redirects and all
// attempts. A redirect to a host that is not the first one or below it does not get the
// key: it gets a new one if the key was the Transport's own, and otherwise none. Another
// call of Do, such as one by a user who tries again or a job after a crash, is another
// logical request with another key, unless the caller keeps the key: see [WithKey],
// [DeriveKey] and [SendError].
//
// Requests with an enforced method (POST and PATCH by default) get the key. These
// requests, and those with an idempotent method (RFC 9110 9.2.2), are sent again after a
// connection error, after a problem with "retryable": true, and after a 425, 429, 502, 503
// or 504 that is not such a problem. A problem with "retryable": false is final whatever
// its status, and so is a replay. All other requests are passed on unchanged.
//
// The last answer is returned unchanged, except the 202 of a request that was accepted for
// later without a Location to follow ([CodeAccepted]). After such a 202 the request is sent
// again as after a 409. If the last answer is such a 202, the error is a [*SendError] with
// [ErrStillRunning], because the request has no outcome yet. A 202 in JSON whose body cannot be read
// may be one: it has the same error, and the request is not sent again.
//
// A request is sent again after the delay in Retry-After, or MaxWait if that is shorter,
// plus a random delay that grows. It is not sent again when its key may be forgotten, or if
// the delay ends after the context's deadline. An attempt has no time limit: set
// ResponseHeaderTimeout in the [http.Transport] behind it. What the Transport itself reads of a body
// it reads for two seconds at most.
//
// A body is sent again if the request has GetBody, which [http.NewRequest] sets for bodies
// in memory, or if it is small enough to be buffered. A request with any other body is
// sent once. A Transport is safe for concurrent use.
type Transport struct {
	base http.RoundTripper
	opts ClientOptions
	// For tests: the clock, how to wait, and a random duration up to max.
	now    func() time.Time
	wait   func(context.Context, time.Duration) error
	jitter func(max time.Duration) time.Duration
}

// NewTransport returns a transport over base; nil means [http.DefaultTransport].
// The options may be nil; a mistake in them is a [*idem.ConfigError].
func NewTransport(base http.RoundTripper, o *ClientOptions) (*Transport, error) {
	opts, err := o.check()
	if err != nil {
		return nil, err
	}
	return &Transport{base: cmp.Or(base, http.DefaultTransport), opts: opts, now: time.Now, wait: pause, jitter: upTo}, nil
}

// RoundTrip sends one logical request, or one redirect of it. The request itself is not
// changed. The error is a [*SendError] if the request was sent under the rules above.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	keyed := slices.Contains(t.opts.Methods, strings.ToUpper(req.Method))
	if !keyed && !slices.Contains(idempotent, req.Method) {
		return t.base.RoundTrip(req)
	}
	s, err := t.begin(req, keyed)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	req, err = t.opts.replayable(req)
	if err != nil {
		return nil, err
	}
	for {
		out, err := t.attempt(req, s)
		if err != nil {
			return nil, s.failed(err)
		}
		res, err := complete(t.base.RoundTrip(out))
		s.attempts++
		s.status = 0
		if err == nil {
			s.note(res, out, t.now())
		}
		delay, again := t.again(req, s, res, err)
		switch {
		case !again && err != nil:
			return nil, s.failed(err)
		case !again && s.isUndecided(res):
			drain(res.Body)
			if cause := context.Cause(req.Context()); cause != nil {
				return nil, s.failed(fmt.Errorf("%w: %w", ErrStillRunning, cause))
			}
			return nil, s.failed(ErrStillRunning)
		case !again:
			return res, nil
		}
		if err == nil {
			drain(res.Body)
		}
		if err := t.wait(req.Context(), delay); err != nil {
			return nil, s.failed(err)
		}
		s.retries++
	}
}

// attempt is the request as this attempt sends it.
func (t *Transport) attempt(req *http.Request, s *sending) (*http.Request, error) {
	out := req.Clone(context.WithValue(req.Context(), sendingKey{}, s))
	if s.sent() && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	if s.keyed || s.away {
		maps.DeleteFunc(out.Header, func(name string, _ []string) bool { return strings.EqualFold(name, t.opts.KeyHeader) })
	}
	if s.keyed {
		out.Header.Set(t.opts.KeyHeader, s.key)
		if h := t.opts.FirstSentHeader; h != "" && out.Header.Get(h) == "" {
			out.Header.Set(h, s.firstSent.UTC().Format(firstSentFormat))
		}
	}
	return out, nil
}

// firstSentFormat is RFC 3339 with milliseconds.
const firstSentFormat = "2006-01-02T15:04:05.000Z07:00"

// CloseIdleConnections lets [http.Client.CloseIdleConnections] reach the transport
// behind this one.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// complete corrects answers of other transports, such as those of tests, that do not do
// what [http.RoundTripper] requires.
func complete(res *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil:
	case res == nil:
		err = errNoAnswer
	case res.Body == nil:
		res.Body = http.NoBody
	}
	return res, err
}

var errNoAnswer = errors.New("the transport gave neither a response nor an error")

// idempotent are the methods that RFC 9110 9.2.2 calls so; without one it is GET.
var idempotent = []string{"", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}

// maxDrain is how much of an answer's rest is read so that its connection can be
// reused; if more is left, a new connection costs less.
const maxDrain = 64 << 10

func drain(body io.ReadCloser) {
	defer body.Close()
	defer limited(body, drainTime)()
	_, _ = io.CopyN(io.Discard, body, maxDrain)
}

// A service may send a body as slowly as it likes, and ResponseHeaderTimeout ends with the header. A
// body that is drained saves a connection only; one of a problem or a 202 decides what comes next.
const (
	drainTime = time.Second
	peekTime  = 2 * time.Second
)

// limited closes a body after this time, which ends a read of it, unless stop is called before.
func limited(body io.Closer, d time.Duration) (stop func()) {
	timer := time.AfterFunc(d, func() { _ = body.Close() })
	return func() { timer.Stop() }
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrStillRunning says that the last answer to a request was 202: the request is being
// executed, or will be. It may also have ended, if the body of the 202 could not be read. Send it again
// with the same key to get its outcome, or call [Transport.Await] for a 202 with a Location.
var ErrStillRunning = errors.New("idemhttp: the request is still running")

// ErrKeyExpired says that a request was not sent, since its key may be forgotten
// by now: the service could execute it a second time. Find out whether it took
// effect before you use a new key.
var ErrKeyExpired = errors.New("idemhttp: the retention window since the first sending is over")

// SendError says that a logical request got no answer to return: it may have taken effect
// or not. To send the request again in a later call, use its key and time with [WithKey]
// and [WithFirstSent]. It unwraps to the last error.
//
// If [http.Client.Timeout] ends the request, [http.Client] hides the SendError behind an
// error of its own: use a context's deadline, or set the key yourself.
type SendError struct {
	// Key of the request, empty if its method needs none.
	Key string
	// FirstSent is when the request was first sent.
	FirstSent time.Time
	// Attempts is how often it was sent, redirects included.
	Attempts int
	// Status of the last attempt's answer; zero if it had none.
	Status int
	// Location is the URL that [Transport.Await] asked last; empty after a request.
	Location string
	// Err is the last error: the connection's, or the context's while waiting.
	Err error
}

func (e *SendError) Error() string {
	last := ""
	if e.Status != 0 {
		last = fmt.Sprintf(", last status: %d", e.Status)
	}
	advice := ""
	if e.Key != "" {
		advice = "; send the request again with the same key only (SendError.Key)"
	}
	return fmt.Sprintf("idemhttp: no answer (attempts: %d%s): %v%s", e.Attempts, last, e.Err, advice)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// Timeout reports whether Err was a time-out, as [net.Error] does.
func (e *SendError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

func (s *sending) failed(err error) *SendError {
	e := &SendError{FirstSent: s.firstSent, Attempts: s.attempts, Status: s.status, Err: err}
	if s.keyed {
		e.Key = s.key
	}
	return e
}
