package idemhttp

import "github.com/idem-go/idempotency/idem"

// Resolution resolves a request whose outcome is unknown to completed, with the response
// for its later callers ([idem.Engine.Resolve]). The response is kept like the handler's
// own: without the headers that are not stored, after [Options.Redact], and with
// [Options.ResponseVersion]. A response that cannot be kept is an error.
func (c *Contract) Resolution(res *Response) (idem.Resolution, error) {
	if res == nil {
		return idem.Resolution{}, mistake("the response is nil: give the one that later callers are to get, or resolve without a Result")
	}
	store := func() ([]byte, error) { return encode(res, c.never) }
	if c.opts.Redact != nil {
		store = func() ([]byte, error) { return c.redacted(res) }
	}
	body, err := store()
	if err != nil {
		return idem.Resolution{}, err
	}
	return idem.Resolution{
		To: idem.Completed, Result: body, Codec: codecName, ResponseVersion: c.opts.ResponseVersion,
		Check: func(b []byte) error {
			_, err := decode(b)
			return err
		},
	}, nil
}
