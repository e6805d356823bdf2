package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
)

// record is a record as it is written as JSON, with its result if that is asked for.
type record struct {
	view.Record
	Result   string    `json:"result,omitempty"`
	Binary   []byte    `json:"result_base64,omitempty"` // a result that is no text
	Response *response `json:"response,omitempty"`      // instead of both, for an HTTP request
}

// response is a recorded response as it is written as JSON.
type response struct {
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers,omitempty"`
	Body    string              `json:"body,omitempty"`
	Binary  []byte              `json:"body_base64,omitempty"` // a body that is no text
}

// reveal puts in the result: a response as its callers get it, anything else as it is stored.
func (d *record) reveal(result []byte) {
	if res, err := idemhttp.Decode(protocol.Encoded{Body: result, Codec: d.Codec}); err == nil {
		d.Response = describeResponse(res)
	} else {
		d.Result, d.Binary = textOr(result)
	}
}

func describeResponse(res *idemhttp.Response) *response {
	d := &response{Status: res.Status, Headers: map[string][]string{}}
	for name, value := range res.Headers {
		d.Headers[name] = []string{value}
	}
	for name, values := range res.MultiHeaders {
		d.Headers[name] = append(d.Headers[name], values...)
	}
	body := res.Body
	if res.Base64 {
		if decoded, err := base64.StdEncoding.DecodeString(string(body)); err == nil {
			body = decoded
		}
	}
	d.Body, d.Binary = textOr(body)
	return d
}

// textOr is what is text, or else the bytes.
func textOr(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
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
func (s *session) showResponse(r *response) {
	fmt.Fprintln(s.out, line(fmt.Sprintf("HTTP %d %s", r.Status, http.StatusText(r.Status))))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			fmt.Fprintln(s.out, line(name+": "+value))
		}
	}
	switch {
	case r.Binary != nil:
		fmt.Fprintf(s.out, "\n(a body of %s that is no text: read it with -o json)\n", plural(len(r.Binary), "byte"))
	case r.Body != "":
		fmt.Fprintln(s.out, "\n"+view.Plain(r.Body))
	}
}
