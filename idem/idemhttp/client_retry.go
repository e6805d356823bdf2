package idemhttp

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// again decides whether the request is sent once more, and after which delay.
func (t *Transport) again(req *http.Request, s *sending, res *http.Response, err error) (time.Duration, bool) {
	if s.once || s.retries+1 >= t.opts.MaxAttempts || !hasReplayableBody(req) || req.Context().Err() != nil {
		return 0, false
	}
	if err != nil && isHopeless(err) || err == nil && !s.mayRepeat(res) {
		return 0, false
	}
	now := t.now()
	delay := t.jitter(t.opts.backoff(s.retries))
	if err == nil {
		delay += min(retryAfterOf(res, now), t.opts.MaxWait)
	}
	at := now.Add(delay)
	if s.keyed && !at.Before(s.expires) {
		return 0, false
	}
	if deadline, ok := req.Context().Deadline(); ok && !at.Before(deadline) {
		return 0, false
	}
	return delay, true
}

// backoff is the limit of the random delay after this many retries.
func (o *ClientOptions) backoff(retries int) time.Duration {
	limit := o.Backoff
	for range retries {
		if limit > o.MaxBackoff/2 {
			return o.MaxBackoff
		}
		limit *= 2
	}
	return limit
}

// isHopeless reports whether the next attempt would get the same connection error: the
// peer has the wrong identity, or does not speak TLS.
func isHopeless(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &cert) || errors.As(err, &record)
}

// mayRepeat reports whether the request may be sent again after an answer. The problem's
// retryable member decides if there is one. A replay is the recorded outcome, so the next
// answer would be the same.
func (s *sending) mayRepeat(res *http.Response) bool {
	if s.keyed {
		if accepted, _ := isAccepted(res); accepted {
			return true
		}
	}
	if res.StatusCode < 400 || isReplay(res) {
		return false
	}
	switch res.Header.Get(HeaderShouldRetry) {
	case "true":
		return true
	case "false":
		return false
	}
	if p, ok := peek(res, ProblemMediaType); ok {
		return *p.Retryable
	}
	switch res.StatusCode {
	case http.StatusTooEarly, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// maxProblem is how many bytes of an answer are searched for a problem. The contract's
// problems have fewer than a thousand.
const maxProblem = 64 << 10

type verdict struct {
	Code      Code  `json:"code"`
	Retryable *bool `json:"retryable"`
	// unread says that the body did not arrive, or not in time.
	unread bool
}

// isUndecided reports whether an answer is not the request's outcome, or may not be.
func (s *sending) isUndecided(res *http.Response) bool {
	accepted, unread := isAccepted(res)
	return s.keyed && (accepted || unread)
}

// isAccepted reports whether an answer is the contract's 202 for a request that was accepted
// for later, without a Location to follow, and not the operation's own answer. An unread one may be either.
func isAccepted(res *http.Response) (accepted, unread bool) {
	if res.StatusCode != http.StatusAccepted || res.Header.Get("Location") != "" || isReplay(res) {
		return false, false
	}
	p, ok := peek(res, "application/json")
	return ok && *p.Retryable && p.Code == CodeAccepted, p.unread
}

func isReplay(res *http.Response) bool {
	return res.Header.Get(HeaderReplayed) == "true" || res.Header.Get(HeaderReplayedStripe) == "true" ||
		res.Header.Get(HeaderOriginalDate) != ""
}

// peek reads whether the request is retryable from a body of this media type, and puts the
// body back.
func peek(res *http.Response, mediaType string) (verdict, bool) {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if media != mediaType || res.Header.Get("Content-Encoding") != "" {
		return verdict{}, false
	}
	rest := res.Body
	stop := limited(rest, peekTime)
	start, err := io.ReadAll(io.LimitReader(rest, maxProblem))
	stop()
	var tail io.Reader = rest
	if err != nil {
		tail = failing{err}
	}
	res.Body = &joined{io.MultiReader(bytes.NewReader(start), tail), rest}
	var p struct {
		verdict
		Error verdict `json:"error"` // in the Stripe profile
	}
	if json.Unmarshal(start, &p) != nil {
		return verdict{unread: err != nil}, false
	}
	if p.Retryable == nil {
		p.verdict = p.Error
	}
	return p.verdict, p.Retryable != nil
}

// failing is the end of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// note keeps the parts of an answer that later decisions need.
func (s *sending) note(res *http.Response, out *http.Request, now time.Time) {
	s.status = res.StatusCode
	if res.Request == nil || sendingOf(res.Request) == nil {
		res.Request = out // so that a redirect and KeyOf find the key
	}
	if until, ok := until(res, res.Header.Get(HeaderExpires), now); ok && s.keyed {
		if end := now.Add(until); end.Before(s.expires) {
			s.expires = end
		}
	}
}

// retryAfterOf is the delay that an answer asks for (RFC 9110 10.2.3): seconds or
// an HTTP date. Zero if it asks for none or cannot be read.
func retryAfterOf(res *http.Response, now time.Time) time.Duration {
	v := res.Header.Get("Retry-After")
	// A number that is out of range is returned as the greatest one.
	if n, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		const most = uint64(1<<63-1) / uint64(time.Second)
		return time.Duration(min(n, most)) * time.Second
	}
	d, _ := until(res, v, now)
	return max(d, 0)
}

// until is the time from now to an HTTP date in an answer. It counts from the answer's own
// date if there is one, since clocks differ.
func until(res *http.Response, date string, now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(date)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		now = sent
	}
	return at.Sub(now), true
}
