package main

import (
	"cmp"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
)

// record is a record as it is written as JSON, with its result if that is asked for.
type record struct {
	view.Record
	Result   string         `json:"result,omitempty"`
	Binary   []byte         `json:"result_base64,omitempty"` // a result that is no text
	Response *view.Response `json:"response,omitempty"`      // instead of both, for an HTTP request
}

// reveal puts in the result: a response as its callers get it, anything else as it is stored.
func (d *record) reveal(result []byte) {
	if res, err := idemhttp.Decode(protocol.Encoded{Body: result, Codec: d.Codec}); err == nil {
		d.Response = view.ResponseOf(res)
	} else {
		d.Result, d.Binary = view.TextOr(result)
	}
}

// showResult writes a record's result for operators.
func (s *session) showResult(d record) {
	codec := cmp.Or(d.Codec, "JSON")
	switch {
	case d.Omitted:
		s.field("Result", "none recorded")
	case d.Response != nil:
		s.field("Result", "an HTTP response, stored in %s:", plural(d.Size, "byte"))
		s.showResponse(d.Response)
	case d.Binary != nil:
		s.field("Result", "%s, encoded as %s, and no text: read it with -o json", plural(d.Size, "byte"), codec)
	case d.Result != "":
		s.field("Result", "%s, encoded as %s:", plural(d.Size, "byte"), codec)
		fmt.Fprintln(s.out, view.Plain(d.Result))
	case d.State == idem.Completed && d.Sealed && len(s.globals.KMSKey) == 0:
		s.field("Result", "%s, encoded as %s, encrypted: name the KMS key with --kms-key to read it",
			plural(d.Size, "byte"), codec)
	case d.State == idem.Completed:
		s.field("Result", "%s, encoded as %s", plural(d.Size, "byte"), codec)
	}
}

// showResponse writes a response as it is on the wire.
func (s *session) showResponse(r *view.Response) {
	for _, line := range r.Head() {
		fmt.Fprintln(s.out, line)
	}
	switch {
	case r.Binary != nil:
		fmt.Fprintf(s.out, "\n(a body of %s that is no text: read it with -o json)\n", plural(len(r.Binary), "byte"))
	case r.Body != "":
		fmt.Fprintln(s.out, "\n"+view.Plain(r.Body))
	}
}
