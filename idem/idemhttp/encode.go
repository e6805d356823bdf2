package idemhttp

import (
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Encode encodes a response as it is recorded, to resolve a request whose outcome is
// unknown: later callers get it. The response is kept like the handler's own: without the
// headers that are not stored, after [Options.Redact], and with
// [Options.ResponseVersion]. A response that cannot be kept is an error. One whose status would
// undo the steps of a handler that answers with it, by default 400 or more, is Failed.
func (c *Contract) Encode(res *Response) (protocol.Encoded, error) {
	if res == nil {
		return protocol.Encoded{}, mistake("the response is nil: give the one that later callers are to get, or resolve without a Result")
	}
	store := func() ([]byte, error) { return encode(res) }
	if c.opts.Redact != nil {
		store = func() ([]byte, error) { return c.redacted(res) }
	}
	body, err := store()
	if err != nil {
		return protocol.Encoded{}, err
	}
	return protocol.Encoded{
		Body: body, Codec: codecName, ResponseVersion: c.opts.ResponseVersion, Failed: c.classOf(res.Status) != idem.ClassCompleted,
		Check: func(b []byte) error {
			_, err := decode(b)
			return err
		},
	}, nil
}

// Decode decodes a response as it is recorded, with the codec's name of its record, to show it
// to operators: it is what later callers get, without the headers of a replay. A result of another
// codec is an [*idem.ConfigError]. One that is damaged, or of a newer version, matches
// [idem.ErrRecordUnreadable]. The response's body shares the memory of the encoded one.
func Decode(e protocol.Encoded) (*Response, error) {
	if e.Codec != codecName {
		return nil, mistake("the result is encoded as %q: only that of an HTTP request is a response", e.Codec)
	}
	return decode(e.Body)
}
