package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Handler is the gateway as an http.Handler; see New.
type Handler struct {
	table   table
	options Options
	service service
}

// New makes a gateway for a table of routes: "METHOD /path", where a segment may be
// a parameter ({id}), the last one a greedy parameter ({proxy+}), the method
// ANY, and "$default" stands for everything else. As in the service, the most
// specific path wins, then the method over ANY.
func New(routes map[string]Invoke, options *Options) (*Handler, error) {
	t, err := newTable(routes)
	if err != nil {
		return nil, err
	}
	o, err := cmp.Or(options, &Options{}).withDefaults(t)
	if err != nil {
		return nil, err
	}
	return &Handler{table: t, options: o, service: services[o.Flavour]}, nil
}

// Request is one that has a route.
type Request struct {
	*http.Request
	Route string // its key

	handler    *Handler
	path       string // escaped, without the stage
	match      *route
	parameters map[string]string
	caller     Caller
	body       []byte
	at         time.Time
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in, why, ok := h.admit(w, r)
	if !ok {
		h.refuse(why).write(w, "", "")
		return
	}
	event, id := h.service.event(h, in)
	payload, err := json.Marshal(event)
	switch {
	case err != nil:
		h.fail(id, fmt.Errorf("gateway: encode the event: %w", err)).write(w, h.service.idHeader, id)
	case len(payload) > MaxEventBytes:
		h.service.refusals[eventTooLarge].write(w, h.service.idHeader, id)
	default:
		if response, ok := h.answer(in, payload, id); ok {
			response.write(w, h.service.idHeader, id)
		}
	}
}

// admit checks limits, routes and authorizers before the function is invoked.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (in Request, why refusal, ok bool) {
	if headSize(r) > h.service.head {
		return in, headTooLarge, false
	}
	in = Request{Request: r, handler: h, at: time.Now()}
	if in.path, ok = h.options.deployed(r.URL.EscapedPath()); !ok {
		return in, noRoute, false
	}
	if in.match, in.parameters = h.table.match(r.Method, in.path); in.match == nil {
		return in, noRoute, false
	}
	in.Route = in.match.key
	var err error
	in.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, h.service.request))
	if _, overLimit := errors.AsType[*http.MaxBytesError](err); overLimit {
		return in, tooLarge, false
	}
	if err != nil { // the client went away or broke the framing
		return in, badRequest, false
	}
	if h.options.Authorize != nil {
		r.Body = io.NopCloser(bytes.NewReader(in.body))
		if in.caller, err = h.options.Authorize(in); err != nil {
			h.report("", err)
			return in, refusalOf(err), false
		}
	}
	return in, 0, true
}

// refuse is the service's own answer.
func (h *Handler) refuse(why refusal) response {
	if answer, ok := h.service.refusals[why]; ok {
		return answer
	}
	return h.service.refusals[failed]
}

// answer invokes the function and waits as long as the service would. It reports
// false if the client has left.
func (h *Handler) answer(in Request, event []byte, id string) (response, bool) {
	client := in.Context()
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1) // the function may end after everybody has left
	go func() {
		answer, err := in.match.invoke(context.WithoutCancel(client), event)
		done <- outcome{answer, err}
	}()
	select {
	case <-client.Done():
		return response{}, false
	case <-time.After(h.options.Timeout):
		h.report(id, context.DeadlineExceeded)
		return h.service.refusals[timedOut], true
	case out := <-done:
		var r response
		if out.err == nil && len(out.answer) > h.service.answer {
			out.err = fmt.Errorf("gateway: the function's response has %d bytes, the service takes at most %d",
				len(out.answer), h.service.answer)
		}
		if out.err == nil {
			r, out.err = h.service.parse(h, in, out.answer)
		}
		if out.err != nil {
			return h.fail(id, out.err), true
		}
		return r, true
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
