package idemhttp

import (
	"encoding/json"
	"maps"
	"strconv"
)

// Profile is a set of answers: which status each situation has, and which header
// marks a replay. Codes and their meaning are the same in all.
type Profile uint8

const (
	// IETF follows draft-ietf-httpapi-idempotency-key-header
	// (https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)
	// as far as that goes. The draft has expired and did not become a standard, but many
	// services follow it. IETF is the zero value.
	IETF Profile = iota
	// Stripe answers like Stripe's API (version 1,
	// https://docs.stripe.com/api/idempotent_requests), with one exception: a 500 is not
	// replayed. After a status from 500 on it is open whether something was executed, and
	// the operation's declaration decides what the next request gets.
	//
	// Refusals have Stripe's body, {"error":{"type":"idempotency_error","code":…,
	// "message":…}} with the contract's codes and its retryable, as application/json. The
	// header [HeaderShouldRetry] says the same to Stripe's own libraries. A reused key is
	// 400, and [HeaderReplayedStripe] marks a replay. A key is any text of printable ASCII
	// from 1 to [MaxKey] characters, unchanged, even with quotes and commas.
	//
	// A response of status 400 is not recorded and leaves the key free for a corrected
	// body, unless the attempt has shown a sign of an effect before ([idem.ClassRefused]).
	// If a handler may answer 400 after an effect without token and outside a step, set
	// another class in [Options.Status]. Stripe's keys are optional: set
	// [Options.KeyOptional] for that.
	Stripe
)

// row is the answer to a situation.
type row struct {
	status    int
	retryable bool // the same request with the same key may be sent again
	title     string
	detail    string
}

// replayedHeader is the header that says that a response is a replay.
func (p Profile) replayedHeader() string {
	if p == Stripe {
		return HeaderReplayedStripe
	}
	return HeaderReplayed
}

// rows are the answers of the profile.
func (p Profile) rows() (map[Code]row, error) {
	if p > Stripe {
		return nil, mistake("Profile is %d: use idemhttp.IETF or idemhttp.Stripe", p)
	}
	rows := maps.Clone(ietf)
	if p == Stripe {
		reused := rows[CodeKeyReused]
		reused.status = 400
		rows[CodeKeyReused] = reused
	}
	return rows, nil
}

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
	case CodeKeyMissing, CodeKeyInvalid, CodeKeyReused, CodeKeyTooOld, CodeInProgress, CodeNotYetKnown, CodeOutcomeUnknown,
		CodeOutcomeUnavailable:
		return "idempotency_error"
	case CodeUndeclared, CodeVersionMismatch, CodeRecordUnreadable, CodeStoreUnavailable, CodeOutOfTime, CodeAccepted,
		CodeNotStarted, CodeFailed, CodeUnavailable, CodePaused:
		return "api_error"
	}
	return "invalid_request_error"
}
