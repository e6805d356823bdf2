package idemhttp

import (
	"context"
	"net/http"

	"github.com/idem-go/idempotency/idem"
)

// replay gives the recorded response with the marks of a replay.
func (c *Contract) replay(ctx context.Context, r *Request, out *idem.Outcome) (*Response, error) {
	res, err := decode(out.Body)
	if err != nil {
		return nil, err
	}
	// What must not be stored now is not replayed either.
	res.drop(c.never)
	other := out.ResponseVersion != c.opts.ResponseVersion
	if other || c.opts.Refresh != nil {
		res = res.clone()
	}
	if other {
		if c.opts.Migrate == nil || c.opts.Migrate(out.ResponseVersion, res) != nil {
			return nil, &refusal{code: CodeVersionMismatch, after: retryAfter(maxRetryAfter)}
		}
	}
	if c.opts.Refresh != nil {
		c.opts.Refresh(ctx, r, res)
	}
	if !res.final() {
		return nil, &refusal{code: CodeVersionMismatch, after: retryAfter(maxRetryAfter)}
	}
	res.mark(c.opts.Profile.marker(), "true")
	res.mark(HeaderOriginalDate, out.RecordedAt.UTC().Format(http.TimeFormat))
	if !out.ExpiresAt.IsZero() {
		res.mark(HeaderExpires, out.ExpiresAt.UTC().Format(http.TimeFormat))
	}
	return res, nil
}
