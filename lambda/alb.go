package idemlambda

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// albLimit is the balancer's default idle timeout. If a longer one is set, a wait ends
// earlier than necessary.
const albLimit = 60 * time.Second

// ALBHandler is a handler behind an Application Load Balancer.
type ALBHandler = func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error)

// ALB makes a handler behind an Application Load Balancer idempotent under the
// contract of package idemhttp. The balancer does not match routes: they are matched
// with the path, and [idemhttp.AnyRoute] gives only the operation. The event has no
// identity that the balancer has verified: the tenant is [idemhttp.SingleTenant] or a
// function of your own, which must verify what it uses.
//
// The event shows whether the target group has multi-value headers. The balancer reads
// only the header map of that mode, so the response's headers are put into that map. A
// target group without multi-value headers passes on only the last of repeated headers:
// a key that was sent twice with different values is not noticed. The handler's own
// status description is not recorded: a replay has the standard one.
//
// An error of the handler reaches the runtime as the handler gave it; the balancer then
// answers with 502.
// That of an interrupted or unreadable step does not: the client gets 409 or 503 with its code,
// as [idemhttp.Contract.Serve] says. A mistake in the set-up panics, see the package's
// documentation.
func ALB(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc, o *idemhttp.Options, handler ALBHandler) ALBHandler {
	return gateway[events.ALBTargetGroupRequest, events.ALBTargetGroupResponse]{
		name: "ALB", request: requestOfALB, from: fromALB, to: toALB, limit: albLimit,
	}.handler(engine, routes, tenant, o, handler)
}

func requestOfALB(e *events.ALBTargetGroupRequest) *idemhttp.Request {
	r := &idemhttp.Request{
		Method: e.HTTPMethod,
		Path:   e.Path,
		Query:  map[string][]string{},
		Header: e.MultiValueHeaders,
		Body:   bodyOf(e.Body, e.IsBase64Encoded),
		Source: e,
	}
	if !hasMultiValues(e) {
		r.Header = lines(e.Headers)
	}
	query := e.MultiValueQueryStringParameters
	if len(query) == 0 {
		query = lines(e.QueryStringParameters)
	}
	// In order: two spellings of a name make one parameter.
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			addDecoded(r, name, value)
		}
	}
	return r
}

// hasMultiValues reports the target group's mode.
func hasMultiValues(e *events.ALBTargetGroupRequest) bool { return e.MultiValueHeaders != nil }

// addDecoded decodes a query parameter, which the balancer does not. A parameter that is
// not well-formed counts as it is.
func addDecoded(r *idemhttp.Request, name, value string) {
	n, err1 := url.QueryUnescape(name)
	v, err2 := url.QueryUnescape(value)
	if err1 != nil || err2 != nil {
		r.RawQuery += "&" + name + "=" + value
		return
	}
	r.Query[n] = append(r.Query[n], v)
}

func fromALB(res *events.ALBTargetGroupResponse) *idemhttp.Response {
	return &idemhttp.Response{
		Status: res.StatusCode, Headers: res.Headers, MultiHeaders: res.MultiValueHeaders,
		Body: []byte(res.Body), Base64: res.IsBase64Encoded,
	}
}

// toALB sets the mode's map, even if it is empty, and the status description: if one is
// missing, the balancer answers with 502.
func toALB(e *events.ALBTargetGroupRequest, given *events.ALBTargetGroupResponse, res *idemhttp.Response) events.ALBTargetGroupResponse {
	out := events.ALBTargetGroupResponse{
		StatusCode: res.Status, Headers: map[string]string{}, MultiValueHeaders: map[string][]string{},
		Body: string(res.Body), IsBase64Encoded: res.Base64,
	}
	if hasMultiValues(e) {
		out.MultiValueHeaders = spread(res)
	} else if h := joined(res); h != nil {
		out.Headers = h
	}
	out.StatusDescription = strings.TrimSpace(fmt.Sprint(res.Status, " ", http.StatusText(res.Status)))
	if given.StatusCode == res.Status && given.StatusDescription != "" {
		out.StatusDescription = given.StatusDescription
	}
	return out
}
