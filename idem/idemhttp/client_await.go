package idemhttp

import (
	"context"
	"maps"
	"net/http"
	"strings"
)

// Await follows a request that a service has accepted for later ([Options.Later]), from its 202
// to the outcome. It asks the answer's Location, with the request's headers if that is on the
// same host, and waits in between for as long as Retry-After says, a second at least and
// [ClientOptions.MaxWait] at most, and for a random time that grows. An answer that is not a 202
// with a Location is returned unchanged, so that Await can be given every answer:
//
//	res, err := client.Do(req)
//	if err == nil {
//		res, err = transport.Await(ctx, res)
//	}
//
// The answer that Await returns is the outcome, whatever its status. Each question is sent again as
// any GET of the Transport, and redirects are followed. Without an outcome in time the error is a
// [*SendError]: with [ErrStillRunning] if the next question would come after the context's
// deadline. Without a deadline Await ends when the service answers with the outcome. To continue
// later, ask the error's Location, or send the same request under its Key. Await closes res.Body
// unless it returns res.
func (t *Transport) Await(ctx context.Context, res *http.Response) (*http.Response, error) {
	if res == nil || res.StatusCode != http.StatusAccepted || res.Header.Get("Location") == "" || res.Request == nil {
		return res, nil // it has no URL of its outcome
	}
	at, err := res.Location()
	failed := func(err error) error {
		e := &SendError{Key: KeyOf(res), Attempts: 1, Status: res.StatusCode, Err: err}
		if s := sendingOf(res.Request); s != nil {
			e.FirstSent, e.Attempts = s.firstSent, s.attempts
		}
		if at != nil {
			e.Location = at.String()
		}
		return e
	}
	drain(res.Body)
	if err != nil {
		return nil, failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, failed(err)
	}
	if first := res.Request; first.URL.Scheme == at.Scheme && first.URL.Host == at.Host {
		req.Header = t.forQuestions(first.Header)
	}
	client := &http.Client{Transport: t}
	for asked, last := 0, res; ; asked++ {
		now := t.now()
		delay := min(max(retryAfterOf(last, now), minRetryAfter), t.opts.MaxWait) + t.jitter(t.opts.backoff(asked))
		if deadline, ok := ctx.Deadline(); ok && !now.Add(delay).Before(deadline) {
			return nil, failed(ErrStillRunning)
		}
		if err := t.wait(ctx, delay); err != nil {
			return nil, failed(err)
		}
		last, err = client.Do(req)
		if err != nil {
			return nil, failed(err)
		}
		if last.StatusCode != http.StatusAccepted {
			return last, nil
		}
		drain(last.Body)
	}
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
