package idemhttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"regexp"

	"github.com/idem-go/idempotency/idem/protocol"
)

// shadow serves a net/http request in shadow: the handler gets the writer, the client's cancellation
// and the body as without the middleware.
func (o *MiddlewareOptions) shadow(c *Contract, d *declared, next http.Handler, inside string, w http.ResponseWriter,
	r *http.Request) {
	inner := r.WithContext(r.Context())
	build := func() (*Request, *situation, error) {
		if r.ContentLength < 0 && r.ProtoMajor >= 2 {
			return o.request(r, inside), nil, errConversation
		}
		req := o.request(r, inside)
		req.load = func() (*situation, error) {
			body, no := peekBody(inner, o.MaxRequest)
			req.setBody(r, body)
			if no == nil && wasRead(r, len(body)) {
				return nil, errBodyRead
			}
			return no, nil
		}
		return req, nil, nil
	}
	_, _ = c.observe(r.Context(), d, build, func(ctx context.Context) (*Response, error) {
		s := &observedWriter{ResponseWriter: w, keep: d.op.Classify != nil, limit: o.MaxResponse}
		given := inner.WithContext(ctx)
		// The server, and middlewares outside, read of the request afterwards what the handler
		// found in it: such as its form, its pattern and path values.
		defer func() { passBack(r, inner, given) }()
		next.ServeHTTP(s, given)
		return s.response(), nil
	})
}

// passBack writes into the request what a handler has changed in its copy, and nothing else:
// a log or a watchdog outside may read the request while the handler runs. Of path values it
// finds those that the pattern names. The body is left out: a server closes its own.
func passBack(to, was, now *http.Request) {
	outer, before, after := reflect.ValueOf(to).Elem(), reflect.ValueOf(was).Elem(), reflect.ValueOf(now).Elem()
	for _, f := range reflect.VisibleFields(after.Type()) {
		if a, b := after.FieldByIndex(f.Index), before.FieldByIndex(f.Index); f.IsExported() &&
			f.Name != "Body" && !sameField(a, b) {
			outer.FieldByIndex(f.Index).Set(a)
		}
	}
	for _, name := range wildcard.FindAllStringSubmatch(now.Pattern, -1) {
		if value := now.PathValue(name[1]); value != was.PathValue(name[1]) {
			to.SetPathValue(name[1], value)
		}
	}
}

// wildcard finds the names in a pattern such as "GET /files/{id}/{path...}".
var wildcard = regexp.MustCompile(`\{([\pL_][\pL\pN_]*)`)

func sameField(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func, reflect.Map, reflect.Slice:
		return a.UnsafePointer() == b.UnsafePointer()
	}
	return a.Equal(b)
}

// errConversation is reported for a request that may be a half of a conversation, such as a stream
// of gRPC: its client may send the rest only after the beginning of an answer, and a reader of the
// whole body would wait for ever.
var errConversation = &protocol.UnobservedError{
	Err: errors.New("idemhttp: a body over HTTP/2 without a length is left to the handler unread, since its client " +
		"may send the rest only after the beginning of an answer"),
}

// peekBody reads the request's body and puts it back, with what is left of a body that is
// larger than the limit, or breaks off.
func peekBody(r *http.Request, limit int64) ([]byte, *situation) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	rest, no := io.Reader(r.Body), (*situation)(nil)
	switch {
	case err != nil:
		rest, no = failing{err}, &situation{code: CodeRequestIncomplete}
	case int64(len(body)) > limit:
		no = &situation{code: CodeRequestTooLarge}
	}
	r.Body = &joined{io.MultiReader(bytes.NewReader(body), rest), r.Body}
	return body, no
}

// observedWriter is a writer that notes the status, and the body for the operation's own rule.
type observedWriter struct {
	http.ResponseWriter
	status int
	keep   bool
	body   bytes.Buffer
	limit  int
}

// Unwrap is for [http.ResponseController].
func (s *observedWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *observedWriter) WriteHeader(status int) {
	if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *observedWriter) Write(p []byte) (int, error) {
	s.status = cmp.Or(s.status, http.StatusOK)
	if s.keep && len(p) <= s.limit-s.body.Len() {
		s.body.Write(p)
	}
	return s.ResponseWriter.Write(p)
}

// WriteString passes a string on, to be written without a copy where the writer can.
func (s *observedWriter) WriteString(text string) (int, error) {
	w, ok := s.ResponseWriter.(io.StringWriter)
	if !ok || s.keep {
		return s.Write([]byte(text))
	}
	s.status = cmp.Or(s.status, http.StatusOK)
	return w.WriteString(text)
}

// ReadFrom passes a reader on: the server's writer lets the kernel send a file.
func (s *observedWriter) ReadFrom(r io.Reader) (int64, error) {
	w, ok := s.ResponseWriter.(io.ReaderFrom)
	if !ok || s.keep {
		return io.Copy(struct{ io.Writer }{s}, r)
	}
	n, err := w.ReadFrom(r)
	if n > 0 && s.status == 0 {
		s.status = http.StatusOK
	}
	return n, err
}

// Flush is that of [http.Flusher]. This and the next methods are for handlers that ask a writer for
// them by type, some of them without a check. Where the writer has none, they do nothing or return
// [http.ErrNotSupported].
func (s *observedWriter) Flush() { _ = s.FlushError() }

// FlushError is for [http.ResponseController].
func (s *observedWriter) FlushError() error {
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Hijack is that of [http.Hijacker].
func (s *observedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(s.ResponseWriter).Hijack()
}

// Push is that of [http.Pusher].
func (s *observedWriter) Push(target string, o *http.PushOptions) error {
	if w, ok := s.ResponseWriter.(http.Pusher); ok {
		return w.Push(target, o)
	}
	return http.ErrNotSupported
}

// CloseNotify returns nil, a channel without events, where the writer has none.
func (s *observedWriter) CloseNotify() <-chan bool {
	if w, ok := s.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return w.CloseNotify()
	}
	return nil
}

// response is what the operation's rules judge.
func (s *observedWriter) response() *Response {
	res := &Response{Status: cmp.Or(s.status, http.StatusOK), Body: s.body.Bytes()} // as net/http sends
	if s.keep {
		for name, values := range s.Header() {
			if len(values) == 1 {
				res.setHeader(name, values[0])
			}
		}
	}
	return res
}
