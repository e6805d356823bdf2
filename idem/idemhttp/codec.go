package idemhttp

import (
	"bytes"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// codecVersion is the version of the stored form: the head, which is one line of JSON,
// then the unchanged body. A response of a higher version is never interpreted.
const codecVersion = 1

// codecName is the name of the stored form in a record.
const codecName = "http"

// encode returns the stored form of a response, without the headers that are not
// stored. Equal responses give equal bytes.
func encode(r *Response) ([]byte, error) {
	if !r.final() {
		return nil, fmt.Errorf("idemhttp: the handler's status %d is not a final HTTP status (200 to 599)", r.Status)
	}
	if r.unrecordable != nil {
		return nil, r.unrecordable
	}
	b := r.appendHead(make([]byte, 0, r.room()), r.keeps())
	return append(b, r.Body...), nil
}

// room is the approximate size of the stored form.
func (r *Response) room() int {
	n := 64 + len(r.Body)
	for k, v := range r.Headers {
		n += len(k) + len(v) + 6
	}
	for k, vs := range r.MultiHeaders {
		n += len(k) + 6
		for _, v := range vs {
			n += len(v) + 3
		}
	}
	return n
}

// kept is the stored form of a response that cannot be stored: only its status.
func kept(status int) []byte {
	return (&Response{Status: status}).appendHead(nil, everyHeader)
}

func everyHeader(string) bool { return true }

// decode reads a stored response. It accepts only what encode writes; anything else is an
// error that matches [idem.ErrRecordUnreadable]. The body shares the stored bytes.
func decode(stored []byte) (*Response, error) {
	invalid := func(why string) (*Response, error) {
		return nil, fmt.Errorf("%w: the stored response %s", idem.ErrRecordUnreadable, why)
	}
	end := bytes.IndexByte(stored, '\n')
	if end < 0 {
		return invalid("is cut short")
	}
	line := headReader{rest: string(stored[:end])}
	if v := line.version(); !line.invalid && v != codecVersion {
		return invalid(fmt.Sprintf("has version %d, this code reads %d", v, codecVersion))
	}
	r := line.response()
	// A head has one form. A head in another form was not written by this code.
	var again [512]byte
	if line.invalid || !bytes.Equal(r.appendHead(again[:0], everyHeader), stored[:end+1]) {
		return invalid("has a damaged head")
	}
	if !r.final() {
		return invalid("has no HTTP status")
	}
	r.Body = stored[end+1:]
	return r, nil
}

// Encode encodes a response as it is recorded, to resolve a request whose outcome is
// unknown: later callers get it. The response is kept like the handler's own: without the
// headers that are not stored, after [Options.Redact], and with
// [Options.ResponseVersion]. A response that cannot be kept is an error. One whose status would
// undo the steps of a handler that answers with it, by default 400 or more, is Failed.
func (c *Contract) Encode(res *Response) (protocol.Encoded, error) {
	if res == nil {
		return protocol.Encoded{},
			mistake("the response is nil: give the one that later callers are to get, or resolve without a Result")
	}
	store := encode
	if c.opts.Redact != nil {
		store = c.redacted
	}
	body, err := store(res)
	if err != nil {
		return protocol.Encoded{}, err
	}
	return protocol.Encoded{
		Body: body, Codec: codecName, ResponseVersion: c.opts.ResponseVersion,
		Failed: c.classOf(res.Status) != idem.ClassCompleted,
		Check: func(b []byte) error {
			_, err := decode(b)
			return err
		},
	}, nil
}

// Encode is [Contract.Encode] of a contract without options, for tools that do not have the service's.
func Encode(res *Response) (protocol.Encoded, error) { return new(Contract).Encode(res) }

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
