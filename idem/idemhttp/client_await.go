package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Await follows a request that a service has accepted for later ([Options.Later]), from its 202
// to the outcome. It asks the answer's Location, with the request's headers and Host if that is on
// the same host, and waits in between for as long as Retry-After says, a second at least and
// [ClientOptions.MaxWait] at most, and for a random time that grows. An answer that is not a 202
// with a Location is returned unchanged, so that Await can be given every answer:
//
//	res, err := client.Do(req)
//	if err == nil {
//		res, err = transport.Await(ctx, res)
//	}
//
// The answer that Await returns is the outcome: a 2xx that is not 202, also behind redirects, or an
// answer that the contract marks as one, whatever its status. Each question is sent again as any GET
// of the Transport. Await asks again after 202, after answers with which a request may be sent again
// and after 5xx, until the context's deadline. After [ClientOptions.Retention], or the end of the
// key that the service has named, the outcome may be forgotten, and Await ends too. The error is then
// a [*SendError] with [ErrStillRunning] and the last answer's Status. Other answers, such as 401 and
// 404, are about the question alone: the error is a SendError with [ErrNotAnswered]. To continue
// later, ask the error's Location, or send the same request under its Key.
//
// Redirects are followed. Another host, or another scheme, gets none of the request's headers. Await
// closes res.Body unless it returns res.
func (t *Transport) Await(ctx context.Context, res *http.Response) (*http.Response, error) {
	if res == nil || res.StatusCode != http.StatusAccepted || res.Header.Get("Location") == "" || res.Request == nil {
		return res, nil // it has no URL of its outcome
	}
	drain(res.Body)
	e := &SendError{Key: KeyOf(res), Attempts: 1, Status: res.StatusCode}
	end := t.now().Add(t.opts.Retention)
	if s := sendingOf(res.Request); s != nil {
		e.FirstSent, e.Attempts = s.firstSent, s.attempts
		if s.keyed {
			end = s.expires
		}
	}
	failed := func(err error) (*http.Response, error) { e.Err = err; return nil, e }
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	at, err := res.Location()
	if err != nil {
		return failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return failed(err)
	}
	at.User = nil // the error's Location may be logged, and the headers have it
	e.Location = at.String()
	if first := res.Request; isSameHost(first.URL, at) {
		req.Header, req.Host = t.forQuestions(first.Header), first.Host
	}
	client := &http.Client{Transport: t, CheckRedirect: withoutHeadersElsewhere}
	for asked := 0; ; asked++ {
		now := t.now()
		delay := min(max(retryAfterOf(res, now), minRetryAfter), t.opts.MaxWait) + t.jitter(t.opts.backoff(asked))
		if !now.Add(delay).Before(end) {
			return failed(ErrStillRunning)
		}
		if err := t.wait(ctx, delay); err != nil {
			return failed(err)
		}
		if res, err = client.Do(req); err != nil {
			return failed(err)
		}
		e.Status = res.StatusCode
		again := res.StatusCode == http.StatusAccepted || res.StatusCode >= 500 || new(sending).mayRepeat(res)
		switch {
		case isOutcome(res):
			return res, nil
		case !again:
			drain(res.Body)
			return failed(ErrNotAnswered)
		}
		drain(res.Body)
	}
}

// ErrNotAnswered says that a service has refused the question of [Transport.Await], as it does when
// the credentials have expired: the request may be running, may take effect, or have ended. Ask again.
var ErrNotAnswered = errors.New("idemhttp: the question about the request was refused")

// isOutcome reports whether an answer about accepted work is its outcome. Others may come from a
// gateway, or be about the question. The mark may be on the redirect to the outcome's own resource; a 302
// without it may lead to a login.
func isOutcome(res *http.Response) bool {
	found := false
	for r := res; r != nil && r.Request != nil; r = r.Request.Response {
		if r.Header.Get(HeaderOriginalDate) != "" {
			return true
		}
		found = found || r.StatusCode == http.StatusFound
	}
	if res.StatusCode/100 == 2 {
		return res.StatusCode != http.StatusAccepted && !found
	}
	p, ok := peek(res, ProblemMediaType)
	if !ok {
		p, ok = peek(res, "application/json") // the Stripe profile
	}
	return ok && slices.Contains([]Code{CodeOutcomeUnknown, CodeOutcomeUnavailable, CodeExpired}, p.Code)
}

// withoutHeadersElsewhere is a CheckRedirect: net/http drops only those headers that it knows.
func withoutHeadersElsewhere(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 { // net/http's own limit
		return errors.New("stopped after 10 redirects")
	}
	if !isSameHost(via[0].URL, req.URL) {
		req.Header = http.Header{}
	}
	return nil
}

// isSameHost reports whether two URLs have the same scheme, host and port, spelled out or not.
func isSameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// forQuestions are a request's headers but for those of its body, its key and its conditions.
func (t *Transport) forQuestions(h http.Header) http.Header {
	h = h.Clone()
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		lower := strings.ToLower(name)
		return strings.HasPrefix(lower, "content-") || strings.HasPrefix(lower, "if-") || lower == "expect" ||
			strings.EqualFold(name, t.opts.KeyHeader) || strings.EqualFold(name, t.opts.FirstSentHeader)
	})
	return h
}
