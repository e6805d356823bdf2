package idemhttp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/idem-go/idempotency/idem"
)

// codecVersion is the version of the stored form: one line of JSON, the head,
// then the body as it is. A response of a higher version is never interpreted.
const codecVersion = 1

// head is all of a stored response but its body.
type head struct {
	Version int                 `json:"v"`
	Status  int                 `json:"status"`
	Headers map[string]string   `json:"headers,omitempty"`
	Multi   map[string][]string `json:"multi,omitempty"`
	Base64  bool                `json:"base64,omitempty"`
}

// encode gives the stored form of a response, without the headers that are not
// stored. Equal responses give equal bytes.
func encode(r *Response, never headerSet) ([]byte, error) {
	if !r.final() {
		return nil, fmt.Errorf("idemhttp: the handler's status %d is not a final HTTP status (200 to 599)", r.Status)
	}
	if r.cut != nil {
		return nil, r.cut
	}
	h := head{Version: codecVersion, Status: r.Status, Base64: r.Base64}
	keep := r.keeps(never)
	for k, v := range r.Headers {
		if keep(k) {
			if h.Headers == nil {
				h.Headers = make(map[string]string, len(r.Headers))
			}
			h.Headers[toLatin1(k)] = toLatin1(v)
		}
	}
	for k, vs := range r.MultiHeaders {
		if keep(k) {
			if h.Multi == nil {
				h.Multi = make(map[string][]string, len(r.MultiHeaders))
			}
			stored := make([]string, len(vs))
			for i, v := range vs {
				stored[i] = toLatin1(v)
			}
			h.Multi[toLatin1(k)] = stored
		}
	}
	return h.append(r.Body)
}

// append gives the head's line and the body behind it.
func (h *head) append(body []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(256 + len(body))
	e := json.NewEncoder(&b) // ends the line
	e.SetEscapeHTML(false)
	if err := e.Encode(h); err != nil {
		return nil, err
	}
	b.Write(body)
	return b.Bytes(), nil
}

// kept is what survives of a response that cannot be stored: its status.
func kept(status int) []byte {
	h := head{Version: codecVersion, Status: status}
	b, _ := h.append(nil) // two integers can always be encoded
	return b
}

// decode reads a stored response. It accepts nothing but what encode gives; all
// else is an error that matches [idem.ErrRecordUnreadable]. The body shares the
// stored bytes.
func decode(stored []byte) (*Response, error) {
	bad := func(why string) (*Response, error) {
		return nil, fmt.Errorf("%w: the stored response %s", idem.ErrRecordUnreadable, why)
	}
	line, body, ok := bytes.Cut(stored, []byte{'\n'})
	if !ok {
		return bad("is cut short")
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return bad("has a damaged head")
	}
	if h.Version != codecVersion {
		return bad(fmt.Sprintf("has version %d, this code reads %d", h.Version, codecVersion))
	}
	// JSON has many forms, encode has one: whatever differs was not written by it.
	again, err := h.append(nil)
	if err != nil || !bytes.Equal(again, stored[:len(line)+1]) {
		return bad("has a damaged head")
	}
	r := &Response{Status: h.Status, Headers: h.Headers, MultiHeaders: h.Multi, Body: body, Base64: h.Base64}
	if !r.final() {
		return bad("has no HTTP status")
	}
	if !isASCII(string(line)) && !r.fromLatin1() {
		return bad("has a damaged head")
	}
	return r, nil
}

// fromLatin1 turns the names and values of the headers back.
func (r *Response) fromLatin1() bool {
	ok := true
	back := func(s string) string {
		t, good := fromLatin1(s)
		ok = ok && good
		return t
	}
	var headers map[string]string
	if r.Headers != nil {
		headers = make(map[string]string, len(r.Headers))
	}
	for k, v := range r.Headers {
		headers[back(k)] = back(v)
	}
	for _, vs := range r.MultiHeaders {
		for i, v := range vs {
			vs[i] = back(v)
		}
	}
	var multi map[string][]string
	if r.MultiHeaders != nil {
		multi = make(map[string][]string, len(r.MultiHeaders))
	}
	for k, vs := range r.MultiHeaders {
		multi[back(k)] = vs
	}
	r.Headers, r.MultiHeaders = headers, multi
	return ok
}
