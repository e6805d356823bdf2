package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// DefaultTimeout is the longest that an HTTP API waits for a function.
	DefaultTimeout = 30 * time.Second
	// MaxRequestBytes is the service's limit on a request's body.
	MaxRequestBytes = 10 << 20
	// MaxResponseBytes is Lambda's limit on a function's answer.
	MaxResponseBytes = 6<<20 + 100
)

// Invoke runs a function with a JSON event and returns its JSON answer. An error
// is a function that failed; its text goes to Options.Report only. The context
// does not end with the client's connection.
type Invoke func(ctx context.Context, event []byte) ([]byte, error)

// Options of a front; nil and zero values mean the defaults.
type Options struct {
	// Flavour is the service that the front stands for. Default: HTTPAPI.
	Flavour Flavour
	// MultiValueHeaders is the attribute of an ALB's target group.
	MultiValueHeaders bool
	// Claims stands for a JWT authorizer: it returns the claims of the caller,
	// or false to answer 401. No claims and true: no authorizer in the event.
	Claims func(*http.Request) (claims map[string]string, ok bool)
	// Timeout is how long the client waits for the function. Default, and at
	// most: HTTPAPI 30 s, RESTAPI 29 s, ALB 60 s, FunctionURL 15 min.
	Timeout time.Duration
	// AccountID, APIID and DomainName are told to the function. Defaults:
	// 123456789012, local, local.execute-api.us-east-1.amazonaws.com.
	AccountID, APIID, DomainName string
	// Report, if set, is told what is behind a 500 or a 503: with a 500 the
	// function's error or what is wrong with its response, with a 503
	// context.DeadlineExceeded. It may be called concurrently.
	Report func(requestID string, err error)
}

// Handler is the front as an http.Handler; see New.
type Handler struct {
	table   table
	options Options
	service service
}

// New makes a front for a table of routes: "METHOD /path", where a segment may be
// a parameter ({id}), the last one a greedy parameter ({proxy+}), the method
// ANY, and "$default" stands for everything else. As in the service, the most
// specific path wins, then the method over ANY.
func New(routes map[string]Invoke, options *Options) (*Handler, error) {
	t, err := newTable(routes)
	if err != nil {
		return nil, err
	}
	h := &Handler{table: t}
	if options != nil {
		h.options = *options
	}
	var known bool
	if h.service, known = services[h.options.Flavour]; !known {
		return nil, fmt.Errorf("front: Options.Flavour %d is none of HTTPAPI, RESTAPI, FunctionURL, ALB", h.options.Flavour)
	}
	if h.options.Timeout == 0 {
		h.options.Timeout = h.service.timeout
	}
	if h.options.Timeout < 0 || h.options.Timeout > h.service.timeout {
		return nil, fmt.Errorf("front: Options.Timeout %v is not in (0, %v]", h.options.Timeout, h.service.timeout)
	}
	if h.options.Flavour == RESTAPI && t.fallback != nil {
		return nil, errors.New(`front: a REST API has no route $default; give it "ANY /{proxy+}" and "ANY /"`)
	}
	if h.options.MultiValueHeaders && h.options.Flavour != ALB {
		return nil, errors.New("front: Options.MultiValueHeaders is of flavour ALB only; leave it out")
	}
	if h.options.Flavour == FunctionURL && (h.options.Claims != nil || t.fallback == nil || len(t.routes) > 0) {
		return nil, errors.New(`front: a function URL has one function and no claims: give it the route "$default" alone, and no Options.Claims`)
	}
	if h.options.AccountID == "" {
		h.options.AccountID = "123456789012"
	}
	if h.options.APIID == "" {
		h.options.APIID = "local"
	}
	if h.options.DomainName == "" {
		h.options.DomainName = h.options.APIID + ".execute-api.us-east-1.amazonaws.com"
		if h.options.Flavour == FunctionURL {
			h.options.DomainName = h.options.APIID + ".lambda-url.us-east-1.on.aws"
		}
	}
	return h, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, deployed := r.URL.EscapedPath(), true
	if h.options.Flavour == RESTAPI {
		path, deployed = strings.CutPrefix(path, "/"+stage)
		deployed = deployed && strings.HasPrefix(path, "/")
	}
	match, parameters := h.table.match(r.Method, path)
	if !deployed {
		match = nil
	}
	if match == nil {
		h.refuse(w, noRoute)
		return
	}
	var claims map[string]string
	if h.options.Claims != nil {
		var ok bool
		if claims, ok = h.options.Claims(r); !ok {
			h.refuse(w, unauthorized)
			return
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.service.request))
	var overLimit *http.MaxBytesError
	switch {
	case errors.As(err, &overLimit):
		h.refuse(w, tooLarge)
		return
	case err != nil: // the client went away or broke the framing
		h.refuse(w, badRequest)
		return
	}
	event, id := h.newEvent(r, match, parameters, claims, path, body, time.Now())
	payload, err := json.Marshal(event)
	if err != nil {
		h.fail(id, fmt.Errorf("front: encode the event: %w", err)).write(w, h.service.idHeader, id)
		return
	}
	if response, ok := h.answer(r.Context(), match.invoke, payload, id); ok {
		response.write(w, h.service.idHeader, id)
	}
}

// answer invokes the function and waits as long as the service would. It reports
// false if nobody waits for the answer any more.
func (h *Handler) answer(client context.Context, invoke Invoke, event []byte, id string) (response, bool) {
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1) // the function may end after everybody has left
	go func() {
		answer, err := call(context.WithoutCancel(client), invoke, event)
		done <- outcome{answer, err}
	}()
	patience := time.NewTimer(h.options.Timeout)
	defer patience.Stop()
	select {
	case <-client.Done():
		return response{}, false
	case <-patience.C:
		h.report(id, context.DeadlineExceeded)
		return h.service.refusals[timedOut], true
	case out := <-done:
		if out.err != nil {
			return h.fail(id, out.err), true
		}
		response, err := h.parse(out.answer)
		if err != nil {
			return h.fail(id, err), true
		}
		return response, true
	}
}

func (h *Handler) fail(id string, err error) response {
	h.report(id, err)
	return h.service.refusals[failed]
}

func (h *Handler) report(id string, err error) {
	if h.options.Report != nil {
		h.options.Report(id, err)
	}
}

func call(ctx context.Context, invoke Invoke, event []byte) (answer []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("front: the function panicked: %v", v)
		}
	}()
	return invoke(ctx, event)
}

func (h *Handler) refuse(w http.ResponseWriter, why refusal) {
	h.service.refusals[why].write(w, "", "")
}

// newEvent is the flavour's event and the request's id.
func (h *Handler) newEvent(r *http.Request, match *route, parameters, claims map[string]string, path string, body []byte, now time.Time) (any, string) {
	if h.options.Flavour == ALB {
		return h.albEvent(r, body, now), requestID()
	}
	if h.options.Flavour == RESTAPI {
		event := h.restEvent(r, match, parameters, claims, path, body, now)
		return event, event.RequestContext.RequestID
	}
	event := h.event(r, match, parameters, claims, body, now)
	if h.options.Flavour == FunctionURL {
		event.RequestContext.AccountID = "anonymous" // AuthType NONE
	}
	return event, event.RequestContext.RequestID
}

func (h *Handler) parse(answer []byte) (response, error) {
	if len(answer) > h.service.answer {
		return response{}, fmt.Errorf("front: the function's response has %d bytes, the service takes at most %d", len(answer), h.service.answer)
	}
	if h.options.Flavour == ALB {
		return parseALB(answer, h.options.MultiValueHeaders)
	}
	if h.options.Flavour == RESTAPI {
		return parseREST(answer)
	}
	return parseResponse(answer)
}
