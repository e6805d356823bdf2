package idemhttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"slices"

	"github.com/idem-go/idempotency/idem"
)

// Defaults of [MiddlewareOptions].
const (
	// DefaultMaxRequest is API Gateway's limit, 10 MiB.
	DefaultMaxRequest = 10 << 20
	// DefaultMaxResponse is the limit of a Lambda function's response, 6 MiB.
	DefaultMaxResponse = 6 << 20
)

// MiddlewareOptions say how net/http requests are served. Zero fields mean the
// defaults. Functions must be safe for concurrent use.
type MiddlewareOptions struct {
	// Identity returns what an authenticating middleware outside has verified, so that
	// [Claim] and similar functions work. Nil means no identity. See also [FromRequest].
	Identity func(*http.Request) Identity

	// Route returns the path template that a router matched, such as "/payments/{id}",
	// or "" if there is none. Nil means the request's Pattern, which [http.ServeMux]
	// sets.
	Route func(*http.Request) string

	// MaxRequest is the largest request body in bytes; a larger one is answered with
	// 413. Zero means [DefaultMaxRequest].
	MaxRequest int64

	// MaxResponse is the largest response body in bytes. The handler's writes beyond
	// it fail with [ErrResponseTooLarge]. The first caller and later ones get 409
	// outcome_unavailable, since a part of a response is no response. A larger response
	// whose status is not recorded, such as 500, loses its body. Zero means
	// [DefaultMaxResponse].
	MaxResponse int

	// Error answers a request that ended in an error: a fault of a tenant or key
	// function, or a handler that has not answered. The response is not yet
	// written. The URL of a request for a status is the template of its path. Nil means that the error
	// goes to the server's log and the client gets 500.
	Error func(http.ResponseWriter, *http.Request, error)
}

// Middleware puts a handler under the contract, for containers and local use.
// Requests with methods that need no key, and those of routes that are [Unprotected], reach the
// handler unchanged. The rest applies to all other requests.
//
// A replay does not reach the handler. What authenticates must therefore be outside of the middleware, where
// [FromRequest] and [MiddlewareOptions.Identity] find what it has verified, and so must CORS, the access log
// and recovery from panics.
//
// The handler is detached from its client: the request's context keeps its values, but not
// its deadline and cancellation. A client that disconnects therefore causes no failure, and
// its retry gets the response. The context ends with the claim.
//
// The middleware reads the request's whole body before the handler runs, once operation, tenant and
// the key of a header are known: the functions for these find no body. Set [http.Server.ReadTimeout],
// which limits how long a client may take to send it. Mount other readers of the body inside, or let
// them put it back with its ContentLength. A body that was read before is refused if the middleware
// can see it; it cannot if only a part was read and there is no Content-Length. The response is
// buffered until its record is written: Flush sends nothing, hijacking and the other methods of
// [http.ResponseController] return [http.ErrNotSupported], and trailers are dropped. Informational
// responses (1xx) are sent at once and not recorded. Headers that are in the writer when the
// middleware begins belong to the middleware that set them: they are recorded only if the handler
// changes them, and the handler cannot delete them.
//
// Mount a middleware that changes the method by a header (X-HTTP-Method-Override) outside.
// If a mux or [http.StripPrefix] has removed a part of the path, the path that the client
// sent counts too. The host counts if the request's Pattern, or that of a mux inside, names
// one. Otherwise all hosts of a service are the same, even if a mux further outside tells
// them apart.
//
// Mount the middleware inside the mux, around the routes' handlers, where the route is
// known:
//
//	mux.Handle("POST /payments/{id}", contract.Middleware(handler, nil))
//
// Around a mux or another router it works by the path, see [Routes]. Requests for which an
// [http.ServeMux] has no handler are then passed to it unchanged.
//
// A handler must answer: call WriteHeader or Write. net/http takes a return without either for an empty
// 200, but a framework may answer afterwards, as echo does to a handler's error. Such an attempt ends as
// after an error: nothing is recorded as its outcome, and the client gets 500. Mount the middleware around
// such a framework as a whole.
//
// In shadow ([idem.Operation.Shadow]) a request is served as without the middleware, only that
// its body is read first, up to MaxRequest: nothing is buffered, dropped or detached. A body
// over HTTP/2 without a length is left to the handler unread, and the request reported as not
// observed, since its client may wait for the answer before it sends the rest. Its token is that
// of the key in the header; only a key from the body or from a [KeyFunc] is then not known. Over
// HTTP/1 such a handler ([http.ResponseController.EnableFullDuplex]) would wait for ever: leave it
// outside.
//
// A panic of the handler, even [http.ErrAbortHandler], is recorded and continues. What a framework outside
// writes afterwards, even to the handler's writer, is the answer. It is an empty 500 if the handler had
// begun one. A mistake in the set-up (a nil handler, a negative limit) panics with a
// [*idem.ConfigError].
func (c *Contract) Middleware(next http.Handler, o *MiddlewareOptions) http.Handler {
	opts := o.withDefaults()
	if next == nil {
		panic(&idem.ConfigError{What: "idemhttp.Middleware", Problem: "the handler is nil"})
	}
	if opts.MaxRequest < 0 || opts.MaxResponse < 0 {
		panic(&idem.ConfigError{What: "idemhttp.Middleware", Problem: fmt.Sprintf(
			"MaxRequest is %d and MaxResponse %d: use bytes, or zero for the defaults", opts.MaxRequest, opts.MaxResponse)})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.later != nil && slices.Contains(statusMethods, r.Method) {
			req := opts.request(r, "")
			if template := c.later.asks(req); template != "" {
				res, err := c.later.status(r.Context(), req)
				opts.answer(w, withPath(r, template), res, err)
				return
			}
		}
		if !c.enforces(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		d := c.declaration(opts.located(r))
		inside, routed := within(next, r)
		if d.passes() || !routed {
			next.ServeHTTP(w, r)
			return
		}
		if in := c.inShadow(d); in != nil {
			opts.shadow(c, in, next, inside, w, r)
			return
		}
		rec, answered := newRecorder(w, r, opts.MaxResponse), false
		defer func() {
			if !answered {
				rec.abandon()
			}
		}()
		req := opts.request(r, inside)
		req.load = func() (*situation, error) {
			body, no := readBody(w, r, opts.MaxRequest)
			req.setBody(r, body)
			if no == nil && wasRead(r, len(body)) {
				return nil, errBodyRead
			}
			return no, nil
		}
		res, err := c.protect(context.WithoutCancel(r.Context()), req, d, func(ctx context.Context) (*Response, error) {
			next.ServeHTTP(rec, withBody(r.WithContext(ctx), req.Body))
			return rec.response()
		})
		opts.answer(w, r, res, err)
		answered = true
	})
}

// withPath is the request for [MiddlewareOptions.Error] under its template: the id in the path of a
// status is enough to see the result, and must not be in a log.
func withPath(r *http.Request, template string) *http.Request {
	r = r.WithContext(r.Context())
	r.URL, r.RequestURI = &url.URL{Path: template}, template
	return r
}

func (o *MiddlewareOptions) answer(w http.ResponseWriter, r *http.Request, res *Response, err error) {
	if err != nil {
		o.Error(w, r, err)
		return
	}
	res.writeTo(w, r)
}

func (o *MiddlewareOptions) withDefaults() MiddlewareOptions {
	var out MiddlewareOptions
	if o != nil {
		out = *o
	}
	out.MaxRequest = cmp.Or(out.MaxRequest, DefaultMaxRequest)
	out.MaxResponse = cmp.Or(out.MaxResponse, DefaultMaxResponse)
	if out.Error == nil {
		out.Error = logged
	}
	return out
}

// logged writes the error to the server's log, as net/http does with a panic. The client
// does not get it.
func logged(w http.ResponseWriter, r *http.Request, err error) {
	printf := log.Printf
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.ErrorLog != nil {
		printf = s.ErrorLog.Printf
	}
	// The text is quoted, since the client chose the path and perhaps a part of the error:
	// an entry must stay one line.
	printf("idemhttp: %q %q: %q", r.Method, r.URL.Path, err.Error())
	(&Response{
		Status:  http.StatusInternalServerError,
		Headers: map[string]string{"Content-Type": ProblemMediaType},
		Body:    []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"retryable":false}`),
	}).writeTo(w, r)
}

// readBody reads the request's body, or says why it cannot be.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *situation) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &situation{code: CodeRequestTooLarge, why: fmt.Sprintf("it has more than %d bytes", limit)}
	case err != nil:
		return nil, &situation{code: CodeRequestIncomplete, after: minRetryAfter}
	}
	return body, nil
}

// wasRead reports whether the body, or a part of it, was read before: the rest would make
// different requests look the same. net/http gives as many bytes as Content-Length says, or
// an error. Without a length only an empty body is a sign, since no client sends one.
func wasRead(r *http.Request, left int) bool {
	if left > 0 {
		return int64(left) < r.ContentLength
	}
	return r.ContentLength != 0 || len(r.PostForm) > 0 || r.MultipartForm != nil
}

var errBodyRead = mistake("the request's body was read before Contract.Middleware, or a part of it, which must " +
	"see all of it: mount what reads it inside, or have it put the body back with its ContentLength; nothing was executed")

// withBody gives the handler the body that was read.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}
