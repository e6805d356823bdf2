package idemhttp

import (
	"context"
	"net/http"

	"github.com/idem-go/idempotency/idem"
)

// replay returns the recorded response with the headers of a replay.
func (c *Contract) replay(ctx context.Context, r *Request, out *idem.Outcome) (*Response, error) {
	res, err := decode(out.Body)
	if err != nil {
		return nil, err
	}
	// Headers that must not be stored now are not replayed either.
	res.dropHeaders(func(name string) bool { return !neverStored.has(name) })
	if other := out.ResponseVersion != c.opts.ResponseVersion; other || c.opts.Refresh != nil {
		stored := res
		res = stored.clone()
		ok := safely(func() bool {
			if other && (c.opts.Migrate == nil || c.opts.Migrate(out.ResponseVersion, res) != nil) {
				return false
			}
			if c.opts.Refresh != nil {
				c.opts.Refresh(ctx, r, res)
			}
			return res.final()
		})
		if !ok {
			return nil, &situation{code: CodeVersionMismatch, after: retryAfter(maxRetryAfter)}
		}
		res.dropStale(stored)
	}
	c.addReplayHeaders(res, out)
	return res, nil
}

func (c *Contract) addReplayHeaders(res *Response, out *idem.Outcome) {
	res.replaceHeader(c.opts.Profile.replayedHeader(), "true")
	res.replaceHeader(HeaderOriginalDate, out.RecordedAt.UTC().Format(http.TimeFormat))
	if !out.ExpiresAt.IsZero() {
		res.replaceHeader(HeaderExpires, out.ExpiresAt.UTC().Format(http.TimeFormat))
	}
}

// safely calls a hook of the service that shapes an answer. A panic must not end the process
// at every replay: it counts as the result false.
func safely(hook func() bool) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return hook()
}
