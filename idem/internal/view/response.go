package view

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
)

// OverHTTP reports whether an HTTP request has made a record with the codec: its result is a response.
func OverHTTP(codec string) bool {
	e, err := idemhttp.Encode(&idemhttp.Response{Status: http.StatusOK})
	return err == nil && codec == e.Codec
}

// Response is a recorded response as operators read it.
type Response struct {
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers,omitempty"`
	Body    string              `json:"body,omitempty"`
	Binary  []byte              `json:"body_base64,omitempty"` // a body that is no text
}

// ResponseOf returns what may be shown of a response.
func ResponseOf(res *idemhttp.Response) *Response {
	d := &Response{Status: res.Status, Headers: map[string][]string{}}
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
	d.Body, d.Binary = TextOr(body)
	return d
}

// Kept is what a record keeps of a response, encoded as it is recorded, and which of its headers it does not.
func Kept(e protocol.Encoded, res *idemhttp.Response) (kept *Response, dropped []string, err error) {
	decoded, err := idemhttp.Decode(e)
	if err != nil {
		return nil, nil, err
	}
	kept = ResponseOf(decoded)
	for _, name := range slices.Sorted(maps.Keys(ResponseOf(res).Headers)) {
		if _, ok := kept.Headers[name]; !ok {
			dropped = append(dropped, name)
		}
	}
	return kept, dropped, nil
}

// Head is the response without its body, as it is on the wire, in lines.
func (r *Response) Head() []string {
	lines := []string{strings.TrimSpace(fmt.Sprintf("HTTP %d %s", r.Status, http.StatusText(r.Status)))}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			lines = append(lines, strings.Join(strings.Fields(Plain(name+": "+value)), " "))
		}
	}
	return lines
}

// TextOr is what is text, or else the bytes.
func TextOr(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// MistypedError is what is wrong with a typed response.
type MistypedError struct {
	Field   string // "status", "headers" or "result", which is the body
	Problem string
}

func (e *MistypedError) Error() string { return e.Problem }

func mistyped(field, format string, args ...any) error {
	return &MistypedError{field, fmt.Sprintf(format, args...)}
}

// TypedResponse is a response as an operator gives it, with lines such as "Content-Type: application/json".
// Errors are [*MistypedError].
func TypedResponse(status int, lines []string, body []byte) (*idemhttp.Response, error) {
	if status < 200 || status > 599 {
		return nil, mistyped("status", "the status is %d: a response that later calls get has 200 to 599", status)
	}
	headers := http.Header{}
	for _, line := range lines {
		in := bufio.NewReader(strings.NewReader(strings.TrimSpace(line) + "\n\n"))
		one, err := textproto.NewReader(in).ReadMIMEHeader()
		spaced := func(name string) bool { return strings.Contains(name, " ") }
		if err != nil || len(one) != 1 || slices.ContainsFunc(slices.Collect(maps.Keys(one)), spaced) {
			return nil, mistyped("headers", "%q is no header: use a form such as \"Content-Type: application/json\"", line)
		}
		if _, given := one["Content-Length"]; given {
			return nil, mistyped("headers", "%q follows from the body: leave it out", line) // a wrong one cuts replays off
		}
		for name, values := range one {
			headers[name] = append(headers[name], values...)
		}
	}
	if (status == http.StatusNoContent || status == http.StatusNotModified) && len(body) > 0 {
		return nil, mistyped("result", "a response with status %d has no body", status)
	}
	if declaredJSON(headers) && len(body) > 0 && !json.Valid(body) {
		return nil, mistyped("result", "the body is not JSON, and Content-Type says that it is")
	}
	res := &idemhttp.Response{Status: status, Body: body, MultiHeaders: headers, Headers: map[string]string{}}
	// Gateways that take one value a header ignore the other map.
	for name, values := range headers {
		if len(values) == 1 {
			res.Headers[name] = values[0]
			delete(headers, name)
		}
	}
	return res, nil
}

// declaredJSON reports whether the response's Content-Type is JSON.
func declaredJSON(headers http.Header) bool {
	kind, _, err := mime.ParseMediaType(headers.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// Doubt says what a typed response may lack; empty if there is nothing to say.
func (r *Response) Doubt() string {
	headers := http.Header(r.Headers)
	body := r.Body != "" || r.Binary != nil
	switch {
	case body && headers.Get("Content-Type") == "":
		return "The response has a body and no Content-Type: give the header that the handler sets."
	case !body && declaredJSON(headers):
		return "The response has no body, and Content-Type says that it is JSON: give the body that the handler returns."
	}
	return ""
}
