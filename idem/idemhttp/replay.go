package idemhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// replay returns the recorded response with the headers of a replay.
func (c *Contract) replay(ctx context.Context, r *Request, out *idem.Outcome) (*Response, error) {
	res, err := decode(out.Body)
	if err != nil && json.Valid(out.Body) && !bytes.HasPrefix(out.Body, []byte(headBegins)) {
		// It is a result in JSON, of when the route still accepted work for later.
		return nil, &situation{code: CodeVersionMismatch, after: retryAfter(maxRetryAfter)}
	}
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
	if r.Fits != nil && !r.Fits(res) {
		return nil, &situation{code: CodeOutcomeUnavailable, status: res.Status}
	}
	c.addReplayHeaders(res, out)
	return res, nil
}

func (c *Contract) addReplayHeaders(res *Response, out *idem.Outcome) {
	res.replaceHeader(c.opts.Profile.replayedHeader(), "true")
	res.addDates(out)
}

// addDates says when the outcome was recorded and until when it is kept.
func (r *Response) addDates(out *idem.Outcome) {
	r.replaceHeader(HeaderOriginalDate, out.RecordedAt.UTC().Format(http.TimeFormat))
	if !out.ExpiresAt.IsZero() {
		r.replaceHeader(HeaderExpires, out.ExpiresAt.UTC().Format(http.TimeFormat))
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

// keep turns the handler's response into the caller's response and the recorded one. The
// live response goes through the codec too, so that it equals its replay.
func (c *Contract) keep(r *Request, given *Response, err error) (live *Response, ans idem.Answer) {
	ans.Err = err
	if given == nil {
		if err == nil {
			ans.Err = errNoResponse
		}
		return nil, ans
	}
	ans.Value, ans.Summary, ans.ResponseVersion = given, kept(given.Status), c.opts.ResponseVersion
	if err == nil {
		ans.Class = c.classOf(given.Status)
		ans.Cause = statusError(given.Status)
	}
	if r.Fits != nil && given.unrecordable == nil && !r.Fits(given) {
		own := *given // the handler's may be shared
		own.unrecordable, given = ErrResponseTooLarge, &own
	}
	body, invalid := encode(given)
	if invalid == nil {
		live, invalid = decode(body)
	}
	if invalid != nil {
		// Not a final HTTP response: the gateway answers in its own way.
		if err == nil {
			ans.Omitted = invalid
		}
		return given, ans
	}
	live.addWithheld(given)
	if c.opts.Redact != nil {
		if body, invalid = c.redacted(given); invalid != nil {
			ans.Omitted = invalid
			return live, ans
		}
	}
	ans.Body = body
	return live, ans
}

// refused makes an answer of the service's response to a refused unit of work.
func (c *Contract) refused(ctx context.Context, r *Request, reason error) (live *Response, ans idem.Answer) {
	given, err := c.opts.OnUnitRefused(ctx, reason)
	if given == nil && err == nil {
		err = reason
	}
	return c.keep(r, given, err)
}

// redacted returns the stored form after Redact. If Redact fails, only the fact that there
// was a response is stored.
func (c *Contract) redacted(given *Response) (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			body, err = nil, protocol.RedactPanic("idemhttp: Redact", p)
		}
	}()
	r := given.clone()
	c.opts.Redact(r)
	if r.Status != given.Status {
		return nil, fmt.Errorf("idemhttp: Redact changed the status from %d to %d: leave Response.Status as it is in Redact",
			given.Status, r.Status)
	}
	r.dropStale(given)
	return encode(r)
}

// statusError is the failure of an operation that answers with a refusal.
type statusError int

func (e statusError) ErrorCode() string { return strconv.Itoa(int(e)) }

func (e statusError) Error() string { return fmt.Sprintf("the response's status is %d", int(e)) }

var errNoResponse = errors.New("idemhttp: the handler returned neither a response nor an error")
