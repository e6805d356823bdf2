package idemhttp

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Refusal is the answer to a refused request, for [Options.OnRefusal] to change. Status, Type,
// Title and Detail may have other values: a Status from 400 to 599, for [CodeAccepted] also from
// 200 to 299; any other one is ignored. The Stripe profile sends no Type and no Title. Changes of
// Code, Retryable and RecordedStatus are ignored, because clients act on them.
type Refusal struct {
	Problem
	// Members are added to the problem, such as a trace id. Members that the contract sets are
	// left out. All are left out if they cannot be encoded as JSON.
	Members map[string]any
	// Headers are added, such as the CORS headers without which a browser's script cannot read
	// the refusal. They may override Cache-Control, which is no-store. Other headers that the
	// contract sets, and invalid headers, are left out.
	Headers map[string]string
}

// situation is why a request is refused. The engine returns it as an error instead of a claim.
type situation struct {
	code Code
	// why is added to the row's detail.
	why string
	// after is when to send the request again; zero leaves the header out.
	after time.Duration
	// status of an outcome whose response is not returned.
	status int
}

func (s *situation) Error() string { return string(s.code) }

// refusal answers the request with a situation.
func (c *Contract) refusal(ctx context.Context, r *Request, s *situation) *Response {
	row := c.rows[s.code]
	p := Problem{
		Type: problemType + string(s.code), Title: row.title, Status: row.status, Code: s.code,
		Retryable: row.retryable, Detail: row.detail, RecordedStatus: s.status,
	}
	if s.why != "" {
		p.Detail = strings.TrimSuffix(p.Detail, ".") + ": " + s.why + "."
	}
	f := c.onRefusal(ctx, r, p)
	res := &Response{Status: f.Status, Headers: map[string]string{"Cache-Control": "no-store"}}
	if c.opts.Profile == Stripe {
		stripe(res, f)
	} else {
		body, _ := json.Marshal(f.Problem) // strings, numbers and a bool can always be encoded
		res.Body = withMembers(body, problemNames, f.Members)
		if res.Headers["Content-Type"] = ProblemMediaType; f.Status < 400 {
			res.Headers["Content-Type"] = "application/json"
		}
	}
	res.addHeaders(f.Headers)
	if s.after > 0 {
		res.Headers["Retry-After"] = strconv.Itoa(int((s.after + time.Second - 1) / time.Second))
	}
	return res
}

// onRefusal lets the service change a refusal. A hook that panics changes nothing.
func (c *Contract) onRefusal(ctx context.Context, r *Request, p Problem) *Refusal {
	f := &Refusal{Problem: p}
	if c.opts.OnRefusal == nil {
		return f
	}
	if !safely(func() bool { c.opts.OnRefusal(ctx, r, f); return true }) {
		return &Refusal{Problem: p}
	}
	f.Code, f.Retryable, f.RecordedStatus = p.Code, p.Retryable, p.RecordedStatus
	if !(f.Status >= 400 && f.Status <= 599 || f.Code == CodeAccepted && f.Status >= 200 && f.Status <= 299) {
		f.Status = p.Status
	}
	return f
}

// fixedHeaders of a refusal are set only by the contract.
var fixedHeaders = headerSet{
	"content-type": true, "content-length": true, "content-encoding": true, "transfer-encoding": true,
	"connection": true, "retry-after": true, "location": true, "stripe-should-retry": true,
}

// addHeaders adds the service's headers.
func (r *Response) addHeaders(more map[string]string) {
	for name, value := range more {
		if isToken(name) && !fixedHeaders.has(name) && !replayHeaders.has(name) && !strings.ContainsAny(value, "\r\n\x00") {
			r.replaceHeader(name, value)
		}
	}
}

// problemNames are the members that the contract sets.
var problemNames = []string{"type", "title", "status", "code", "retryable", "detail", "recorded_status"}

// withMembers appends members to those of an object, except names that it has already.
func withMembers(body []byte, own []string, members map[string]any) []byte {
	members = maps.Clone(members)
	for _, name := range own {
		delete(members, name)
	}
	if len(members) == 0 {
		return body
	}
	more, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return append(append(body[:len(body)-1], ','), more[1:]...)
}
