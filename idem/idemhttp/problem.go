package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Code names a refusal for programs. It never changes its meaning.
type Code string

// The codes of the contract.
const (
	CodeUndeclared         Code = "operation_undeclared"
	CodeTenantMissing      Code = "tenant_missing"
	CodePrincipalMissing   Code = "principal_missing"
	CodeKeyMissing         Code = "idempotency_key_missing"
	CodeKeyInvalid         Code = "idempotency_key_invalid"
	CodeNotCanonical       Code = "request_not_canonical"
	CodeKeyReused          Code = "idempotency_key_reused"
	CodeKeyTooOld          Code = "idempotency_key_too_old"
	CodeInProgress         Code = "idempotency_key_in_progress"
	CodeNotYetKnown        Code = "outcome_not_yet_known"
	CodeOutcomeUnknown     Code = "outcome_unknown"
	CodeOutcomeUnavailable Code = "outcome_unavailable"
	CodeVersionMismatch    Code = "response_version_mismatch"
	CodeAccepted           Code = "request_accepted"
	CodeLimitExceeded      Code = "limit_exceeded"
	CodePaused             Code = "operation_paused"
	CodeRecordUnreadable   Code = "idempotency_record_unreadable"
	CodeStoreUnavailable   Code = "idempotency_store_unavailable"
	CodeOutOfTime          Code = "out_of_time"
	CodeNotStarted         Code = "request_not_started"
	CodeCancelled          Code = "request_cancelled"
	CodeBegun              Code = "request_begun"
	CodeFailed             Code = "operation_failed"
	CodeUnavailable        Code = "operation_unavailable"
	CodeStatusNotFound     Code = "status_not_found"
	CodeExpired            Code = "outcome_expired"
	CodeRequestTooLarge    Code = "request_too_large"
	CodeRequestIncomplete  Code = "request_incomplete"
)

// problemType starts the URI that identifies a problem's type; the code follows.
const problemType = "urn:idem-go:problem:"

// ProblemMediaType is the media type of a refusal (RFC 9457).
const ProblemMediaType = "application/problem+json"

// ietf follows draft-ietf-httpapi-idempotency-key-header as far as that goes. A refusal fills in
// the place of the key.
var ietf = map[Code]row{
	CodeUndeclared: {status: 500, title: "Operation not declared",
		detail: "This route is not set up for idempotent requests, and nothing was executed. The service must declare it " +
			"in idemhttp.Routes: its operation, or idemhttp.Unprotected."},
	CodeTenantMissing: {status: 403, title: "Tenant missing",
		detail: "The request has no usable tenant. Nothing was executed."},
	CodePrincipalMissing: {status: 403, title: "Principal missing",
		detail: "The request has no usable principal. Nothing was executed."},
	CodeKeyMissing: {status: 400, title: "Idempotency key missing",
		detail: "This request needs an idempotency key%s: a unique value that is sent again with every retry."},
	CodeKeyInvalid: {status: 400, title: "Idempotency key invalid",
		detail: "The idempotency key%s cannot be used."},
	CodeNotCanonical: {status: 400, title: "Request not canonical",
		detail: "The body is not JSON that has one meaning for every reader."},
	CodeKeyReused: {status: 422, title: "Idempotency key reused",
		detail: "Use a new key for a new request; the key was already used with a different one."},
	CodeKeyTooOld: {status: 412, title: "Idempotency key too old",
		detail: "The request was first sent so long ago that its outcome may be forgotten. It was not executed now; find " +
			"out whether it took effect before you use a new key."},
	CodeInProgress: {status: 409, retryable: true, title: "Request in progress",
		detail: "A request with this key is still running. Send it again later with the same key."},
	CodeNotYetKnown: {status: 409, retryable: true, title: "Outcome not yet known",
		detail: "An attempt with this key was interrupted and may yet take effect. Nothing runs now. Send the request " +
			"again with the same key after the time in Retry-After, and the service finds out."},
	CodeOutcomeUnknown: {status: 409, title: "Outcome unknown",
		detail: "A request with this key may have taken effect, and its outcome is not known. It is not executed again; " +
			"ask the service before you use another key."},
	CodeOutcomeUnavailable: {status: 409, title: "Outcome unavailable",
		detail: "The request with this key took effect once, and its response could not be kept."},
	CodeVersionMismatch: {status: 503, retryable: true, title: "Response version mismatch",
		detail: "The recorded response has a form that this version of the service cannot give. Nothing was executed " +
			"again; send the request again with the same key."},
	CodeAccepted: {status: 202, retryable: true, title: "Request accepted",
		detail: "The request is accepted and will be executed. Send it again with the same key for its outcome."},
	CodeNotStarted: {status: 408, title: "Request not begun in time",
		detail: "The request was accepted, and nothing has begun to execute it in time. It was not executed and will " +
			"not be; use a new key to ask for it again."},
	CodeCancelled: {status: 409, title: "Request cancelled",
		detail: "The request was accepted and then cancelled. It was not executed and will not be."},
	CodeBegun: {status: 409, title: "Request begun",
		detail: "The request cannot be cancelled any more: its execution has begun, or has ended."},
	CodeFailed: {status: 500, title: "Operation failed",
		detail: "The request was executed and has failed. It is not executed again under this key."},
	CodeUnavailable: {status: 503, retryable: true, title: "Operation unavailable",
		detail: "The service cannot execute the request now. Send the request again with the same key; do not use " +
			"another key."},
	CodeStatusNotFound: {status: 404, title: "Status not found",
		detail: "There is nothing here that can be followed."},
	CodeExpired: {status: 410, title: "Outcome expired",
		detail: "The outcome of this request is not kept any more."},
	CodeLimitExceeded: {status: 429, retryable: true, title: "Limit exceeded",
		detail: "You have sent too many new requests. Nothing has taken effect, and nothing is recorded under the key. " +
			"Send the request again with the same key after the time in Retry-After."},
	CodePaused: {status: 503, retryable: true, title: "Operation paused",
		detail: "The service has paused this operation for now. Nothing was executed. Send the request again with the " +
			"same key after the time in Retry-After."},
	CodeRecordUnreadable: {status: 503, title: "Idempotency record unreadable",
		detail: "What is recorded under this key cannot be read. The service has to look at it; sending the request " +
			"again does not help."},
	CodeStoreUnavailable: {status: 503, retryable: true, title: "Idempotency store unavailable",
		detail: "The key could not be reserved, or the outcome not be committed. Send the request again with the same key."},
	CodeOutOfTime: {status: 503, retryable: true, title: "Out of time",
		detail: "There was too little time left to begin. Send the request again with the same key."},
	CodeRequestTooLarge: {status: 413, title: "Request too large",
		detail: "Nothing was executed, since the body is larger than the service takes."},
	CodeRequestIncomplete: {status: 400, retryable: true, title: "Request incomplete",
		detail: "The body ended before its end. Nothing was executed. Send the request again with the same key."},
}

// Problem is the body of a refusal (RFC 9457).
type Problem struct {
	// Type identifies the kind of problem.
	Type string `json:"type"`
	// Title describes the kind of problem to readers.
	Title string `json:"title"`
	// Status is the response's.
	Status int `json:"status"`
	// Code is the kind of problem for programs.
	Code Code `json:"code"`
	// Retryable says that the same request with the same key may be sent again, after
	// the time in Retry-After.
	Retryable bool `json:"retryable"`
	// Detail describes this problem to readers.
	Detail string `json:"detail"`
	// RecordedStatus is the status of a response that could not be kept. For a reused key
	// it is that of the first request's response, if the same tenant sent that request.
	RecordedStatus int `json:"recorded_status,omitempty"`
}

// refuse finds the row for an error of the engine. It returns nil for an error
// that has none, such as a mistake in the set-up.
func refuse(err error) *situation {
	var own *situation
	var flight *idem.InFlightError
	var limited *idem.LimitExceededError
	var paused *idem.PausedError
	var unavailable *idem.OutcomeUnavailableError
	var failed *idem.RecordedError
	var reused *idem.ReusedError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, idem.ErrRecordUnreadable):
		return &situation{code: CodeRecordUnreadable}
	case errors.As(err, &reused):
		f := &situation{code: CodeKeyReused}
		if r, err := decode(reused.Result); err == nil {
			f.status, f.why = r.Status, fmt.Sprintf("that was answered with %d", r.Status)
		}
		return f
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return &situation{code: CodeOutcomeUnknown}
	case errors.As(err, &unavailable):
		f := &situation{code: CodeOutcomeUnavailable}
		if r, err := decode(unavailable.Summary); err == nil {
			f.status = r.Status
		}
		return f
	case errors.As(err, &failed):
		return &situation{code: codeOf(failed.Failure)}
	case errors.Is(err, idem.ErrAccepted):
		return &situation{code: CodeAccepted, after: retryAfter(maxRetryAfter)}
	case errors.As(err, &limited):
		return &situation{code: CodeLimitExceeded, after: max(limited.RetryAfter, retryAfter(maxRetryAfter))}
	case errors.As(err, &paused):
		return &situation{code: CodePaused, after: min(paused.RetryAfter, whilePaused/2+rand.N(whilePaused/2))}
	case errors.As(err, &flight):
		return &situation{code: CodeInProgress, after: retryAfter(flight.LeaseLeft)}
	case errors.Is(err, idem.ErrOutOfTime):
		return &situation{code: CodeOutOfTime, after: minRetryAfter}
	case errors.Is(err, idem.ErrNotCommitted), errors.Is(err, idem.ErrStoreUnavailable):
		return &situation{code: CodeStoreUnavailable, after: minRetryAfter}
	}
	return nil
}

// codeOf is the code of a recorded failure.
func codeOf(f idem.Failure) Code {
	switch f.Code {
	case protocol.CodeNotStarted:
		return CodeNotStarted
	case protocol.CodeCancelled:
		return CodeCancelled
	}
	return CodeFailed
}

// stopped finds the row for an attempt that the engine has ended, and not its handler. It
// returns nil if the error is the handler's own, which it is not if the handler has answered with
// a response: see [Contract.Serve].
func (c *Contract) stopped(out *idem.Outcome, answered bool) *situation {
	switch {
	case out.StopCause == nil && !answered:
		return nil
	case out.AttemptState == idem.Unknown, out.RecordState == idem.Unknown:
		return &situation{code: CodeOutcomeUnknown}
	case out.StopCause == nil, out.AttemptState != idem.Released:
		return nil
	}
	if open, ok := errors.AsType[*idem.StepInterruptedError](out.StopCause); ok {
		return &situation{code: CodeNotYetKnown, after: max(open.RetryAt.Sub(c.engine.Now()), minRetryAfter)}
	}
	return refuse(out.StopCause)
}

// marked finds the row for an error by which the handler has said what became of its attempt. It returns nil for other
// errors, and for an end that is not recorded yet: the next call may find a different one. In atomic mode an attempt
// without outcome has nothing to record.
func marked(out *idem.Outcome, mode idem.Mode) *situation {
	switch {
	case out.RecordState == idem.Failed:
		return &situation{code: CodeFailed}
	case out.Class != idem.ClassNotExecuted, out.RecordState == idem.InProgress && mode != idem.Atomic:
		return nil
	case out.RecordState == idem.Unknown: // another call has parked it
		return &situation{code: CodeOutcomeUnknown}
	}
	return &situation{code: CodeUnavailable, after: retryAfter(maxRetryAfter)}
}

const (
	minRetryAfter = time.Second
	maxRetryAfter = 5 * time.Second
	// whilePaused is more than what RetryAfter of a paused operation is: a pause may end at any time.
	whilePaused = time.Minute
)

// retryAfter spreads clients that collided over a few seconds, but not beyond the lease's
// end.
func retryAfter(left time.Duration) time.Duration {
	jitter := minRetryAfter + rand.N(maxRetryAfter-minRetryAfter+1)
	return max(min(jitter, left), minRetryAfter)
}

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
	switch s.code {
	case CodeUndeclared:
		slog.WarnContext(ctx, "idemhttp: a request was refused with 500, since its route has no operation: declare one in "+
			"idemhttp.Routes, or idemhttp.Unprotected", "method", r.Method, "route", r.Route)
	case CodeTenantMissing:
		slog.WarnContext(ctx, "idemhttp: a request was refused, since the tenant function found no usable tenant in it: "+
			"compare it with what the authorizer passes on", "method", r.Method, "route", r.Route)
	}
	row := c.rows[s.code]
	p := Problem{
		Type: problemType + string(s.code), Title: row.title, Status: row.status, Code: s.code,
		Retryable: row.retryable, Detail: row.detail, RecordedStatus: s.status,
	}
	if s.code == CodeKeyMissing || s.code == CodeKeyInvalid {
		p.Detail = fmt.Sprintf(row.detail, c.declaration(r).place())
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
