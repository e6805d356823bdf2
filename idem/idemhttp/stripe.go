package idemhttp

import "encoding/json"

// HeaderShouldRetry tells Stripe's own client libraries whether to send a request
// again. Refusals have it in the Stripe profile, and [Transport] follows it.
const HeaderShouldRetry = "Stripe-Should-Retry"

// StripeError is the body of a refusal in the Stripe profile, as of
// https://docs.stripe.com/api/errors, with the additional members that this contract's
// clients use.
type StripeError struct {
	Error StripeErrorDetail `json:"error"`
}

// StripeErrorDetail says what was wrong.
type StripeErrorDetail struct {
	// Type is idempotency_error if the key is wrong, invalid_request_error if the rest of
	// the request is wrong, and api_error if the service has failed.
	Type string `json:"type"`
	// Code is the kind of problem for programs, the same as in [Problem].
	Code Code `json:"code"`
	// Message is this problem for people.
	Message string `json:"message"`
	// DocURL is [Options.Documentation].
	DocURL string `json:"doc_url,omitempty"`
	// Retryable and RecordedStatus are as in [Problem].
	Retryable      bool `json:"retryable"`
	RecordedStatus int  `json:"recorded_status,omitempty"`
}

// stripeNames are the members that the contract sets.
var stripeNames = []string{"type", "code", "message", "doc_url", "retryable", "recorded_status"}

// stripe gives a refusal its form in the Stripe profile. Members are inside error.
func (c *Contract) stripe(res *Response, p *Problem, more map[string]any) {
	detail, _ := json.Marshal(StripeErrorDetail{
		Type: stripeType(p), Code: p.Code, Message: p.Detail, DocURL: c.opts.Documentation,
		Retryable: p.Retryable, RecordedStatus: p.RecordedStatus,
	})
	body := append([]byte(`{"error":`), withMembers(detail, stripeNames, more)...)
	res.Body = append(body, '}')
	res.Headers["Content-Type"] = "application/json"
	if res.Headers[HeaderShouldRetry] = "false"; p.Retryable {
		res.Headers[HeaderShouldRetry] = "true"
	}
}

func stripeType(p *Problem) string {
	switch p.Code {
	case CodeKeyMissing, CodeKeyInvalid, CodeKeyReused, CodeKeyTooOld, CodeInProgress, CodeNotYetKnown, CodeOutcomeUnknown, CodeOutcomeUnavailable:
		return "idempotency_error"
	case CodeUndeclared, CodeVersionMismatch, CodeRecordUnreadable, CodeStoreUnavailable, CodeOutOfTime, CodeAccepted, CodeUnclaimed, CodeFailed:
		return "api_error"
	}
	return "invalid_request_error"
}
