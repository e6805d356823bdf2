package idemhttp

import (
	"encoding/json"
	"strconv"
)

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
	// Message describes this problem to readers.
	Message string `json:"message"`
	// Retryable and RecordedStatus are as in [Problem].
	Retryable      bool `json:"retryable"`
	RecordedStatus int  `json:"recorded_status,omitempty"`
}

// stripeNames are the members that the contract sets.
var stripeNames = []string{"type", "code", "message", "retryable", "recorded_status"}

// stripe gives a refusal its form in the Stripe profile. Members are inside error.
func stripe(res *Response, f *Refusal) {
	detail, _ := json.Marshal(StripeErrorDetail{
		Type: stripeType(f.Code), Code: f.Code, Message: f.Detail, Retryable: f.Retryable, RecordedStatus: f.RecordedStatus,
	})
	body := append([]byte(`{"error":`), withMembers(detail, stripeNames, f.Members)...)
	res.Body = append(body, '}')
	res.Headers["Content-Type"] = "application/json"
	res.Headers[HeaderShouldRetry] = strconv.FormatBool(f.Retryable)
}

func stripeType(code Code) string {
	switch code {
	case CodeKeyMissing, CodeKeyInvalid, CodeKeyReused, CodeKeyTooOld, CodeInProgress, CodeNotYetKnown, CodeOutcomeUnknown, CodeOutcomeUnavailable:
		return "idempotency_error"
	case CodeUndeclared, CodeVersionMismatch, CodeRecordUnreadable, CodeStoreUnavailable, CodeOutOfTime, CodeAccepted, CodeNotStarted, CodeFailed:
		return "api_error"
	}
	return "invalid_request_error"
}
