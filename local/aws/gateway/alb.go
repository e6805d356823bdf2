package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// albEvent does not decode path and query, like the balancer. Without multi-value headers
// the last value wins.
func (h *Handler) albEvent(in Request) (any, string) {
	r, body := in.Request, in.body
	event := events.ALBTargetGroupRequest{
		RequestContext: events.ALBTargetGroupRequestContext{ELB: events.ELBContext{
			TargetGroupArn: iam.ARN("elasticloadbalancing", "targetgroup/local/0123456789abcdef"),
		}},
		HTTPMethod: r.Method, Path: r.URL.EscapedPath(),
	}
	query := map[string][]string{}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(pair, "="); pair != "" {
			query[name] = append(query[name], value)
		}
	}
	lines := headerLines(in, strings.ToLower)
	if h.options.MultiValueHeaders {
		event.MultiValueHeaders, event.MultiValueQueryStringParameters = lines, query
	} else {
		event.Headers, event.QueryStringParameters = last(lines), last(query)
	}
	event.Body, event.IsBase64Encoded = encodeBody(body, r.Header.Get("Content-Type"))
	if r.Header.Get("Content-Encoding") != "" && !event.IsBase64Encoded {
		event.Body, event.IsBase64Encoded = encodeBody(body, "")
	}
	return event, requestID()
}

// headerLines are the headers with all their values, under the names that spell gives.
func headerLines(in Request, spell func(string) string) map[string][]string {
	lines := map[string][]string{}
	for name, value := range headers(in.Request, sourceOf(in.Request), len(in.body), in.at) {
		lines[spell(name)] = []string{value}
		if values := in.Header.Values(name); len(values) > 1 && name != "x-forwarded-for" {
			lines[spell(name)] = values
		}
	}
	if cookies := in.Header.Values("Cookie"); len(cookies) > 0 {
		lines[spell("cookie")] = cookies
	}
	return lines
}

func last(values map[string][]string) map[string]string {
	single := make(map[string]string, len(values))
	for name, list := range values {
		single[name] = list[len(list)-1]
	}
	return single
}

// parseALB reads a function's answer. The balancer requires the status and the header map
// of the target group's mode, and reads no other map.
func (h *Handler) parseALB(_ Request, answer []byte) (response, error) {
	members, err := membersOf(answer)
	if err != nil {
		return response{}, err
	}
	unread, read := "multiValueHeaders", "headers"
	if h.options.MultiValueHeaders {
		unread, read = read, unread
	}
	if raw := members[read]; raw == nil || string(raw) == "null" {
		return response{}, errors.New("gateway: the function's response has no " + read +
			", which the target group's mode requires")
	}
	delete(members, unread)
	delete(members, "cookies")
	r, err := parseMembers(members)
	var lines bytes.Buffer
	if _ = r.header.Write(&lines); err == nil && lines.Len() > maxALBHeader {
		err = fmt.Errorf("gateway: the headers of the function's response have %d bytes, the balancer takes at most %d",
			lines.Len(), maxALBHeader)
	}
	return r, err
}

// maxALBHeader is the balancer's limit on all headers of a target's response.
const maxALBHeader = 32 << 10
