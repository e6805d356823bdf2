package idemhttp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ErrResponseTooLarge is the error of a handler's writes beyond
// [MiddlewareOptions.MaxResponse].
var ErrResponseTooLarge = errors.New("idemhttp: the response is larger than what can be returned")

// recorder is the handler's [http.ResponseWriter]: it keeps what the handler
// writes until the record is written. Like every such writer it is for one
// goroutine at a time.
type recorder struct {
	w      http.ResponseWriter // for informational responses, and for all that is written after a panic
	left   bool                // the handler has panicked
	head   bool                // the request's method is HEAD
	limit  int
	before http.Header // headers that were in the writer
	header http.Header
	status int // zero until the handler has decided
	sent   http.Header
	body   bytes.Buffer
	over   bool
}

func newRecorder(w http.ResponseWriter, r *http.Request, limit int) *recorder {
	before := w.Header().Clone()
	header := before.Clone()
	if header == nil {
		header = http.Header{}
	}
	return &recorder{w: w, head: r.Method == http.MethodHead, limit: limit, before: before, header: header}
}

// abandon is for a panic that continues: what was written is not the answer, and what a framework
// writes from now on is, as it recovers. echo writes it to the handler's writer. Such a framework writes
// nothing if the handler has begun an answer, since it takes that for sent, and net/http would send an
// empty 200. Without a framework the connection is closed before the status is sent.
func (c *recorder) abandon() {
	c.left = true
	if c.status != 0 {
		c.w.WriteHeader(http.StatusInternalServerError)
	}
}

// Header is the map of the response's headers.
func (c *recorder) Header() http.Header {
	if c.left {
		return c.w.Header()
	}
	return c.header
}

// WriteHeader decides the status, once. Informational ones are sent and do not
// count.
func (c *recorder) WriteHeader(status int) {
	switch {
	case c.left:
		c.w.WriteHeader(status)
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case c.status != 0:
	case status < 200 && status != http.StatusSwitchingProtocols:
		c.inform(status)
	default:
		c.status, c.sent = status, c.header.Clone()
	}
}

// inform sends an informational response with the headers as they are now.
func (c *recorder) inform(status int) {
	h := c.w.Header()
	clear(h)
	maps.Copy(h, c.header)
	c.w.WriteHeader(status)
	clear(h)
	maps.Copy(h, c.before)
}

// Write keeps a part of the body.
func (c *recorder) Write(p []byte) (int, error) {
	if c.left {
		return c.w.Write(p)
	}
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if !hasBody(c.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if c.over || len(p) > c.limit-c.body.Len() {
		c.over, c.body = true, bytes.Buffer{}
		return 0, ErrResponseTooLarge
	}
	return c.body.Write(p)
}

// Flush decides the status, as it does in net/http, and sends nothing yet.
func (c *recorder) Flush() {
	if c.status == 0 && !c.left {
		c.WriteHeader(http.StatusOK)
	}
}

// errUnanswered is about a handler whose answer the middleware has not seen. A framework may write it
// later, such as that to an error, so that an empty 200 would be recorded for a payment that was declined.
var errUnanswered = errors.New("idemhttp: the handler returned without an answer: call WriteHeader or Write in it, " +
	"or mount Contract.Middleware around the framework that writes answers after its handlers have returned")

// response is the handler's response. Framing belongs to the connection: Content-Length is
// kept only if it is about a body that is not sent.
func (c *recorder) response() (*Response, error) {
	if c.status == 0 {
		return nil, errUnanswered
	}
	res := &Response{Status: c.status, Body: c.body.Bytes()}
	if c.over {
		res.unrecordable = ErrResponseTooLarge
	}
	for name, values := range c.sent {
		old, stood := c.before[name]
		switch {
		case name == "Content-Length" && !c.head && c.status != http.StatusNotModified,
			name == "Trailer", strings.HasPrefix(name, http.TrailerPrefix),
			stood && slices.Equal(values, old):
		case len(values) == 1:
			res.setHeader(name, values[0])
		default:
			if res.MultiHeaders == nil {
				res.MultiHeaders = map[string][]string{}
			}
			res.MultiHeaders[name] = values
		}
	}
	return res, nil
}

// writeTo sends the response, which may be one that another gateway recorded.
func (r *Response) writeTo(w http.ResponseWriter, to *http.Request) {
	h := w.Header()
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	for name, values := range r.MultiHeaders {
		h[http.CanonicalHeaderKey(name)] = values
	}
	for _, cookie := range r.Cookies {
		h.Add("Set-Cookie", cookie)
	}
	body := r.Body
	if r.Base64 {
		if raw, err := base64.StdEncoding.DecodeString(string(body)); err == nil {
			body = raw
		}
	}
	bodiless := to.Method == http.MethodHead || !hasBody(r.Status)
	if !bodiless && h["Transfer-Encoding"] == nil {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(r.Status)
	if !bodiless {
		_, _ = w.Write(body) // the client has disconnected; its retry gets the same
	}
}

// hasBody reports whether responses of the status can have a body (RFC 9110 6.4.1).
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
