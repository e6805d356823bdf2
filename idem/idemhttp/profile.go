package idemhttp

import (
	"fmt"
	"maps"
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

// rows makes the answers of a contract from the profile's and the place of the key.
func (p Profile) rows(where string) (map[Code]row, error) {
	if p > Stripe {
		return nil, mistake("Profile is %d: use idemhttp.IETF or idemhttp.Stripe", p)
	}
	rows := maps.Clone(ietf)
	for _, code := range []Code{CodeKeyMissing, CodeKeyInvalid} {
		r := rows[code]
		r.detail = fmt.Sprintf(r.detail, where)
		rows[code] = r
	}
	if p == Stripe {
		reused := rows[CodeKeyReused]
		reused.status = 400
		rows[CodeKeyReused] = reused
	}
	return rows, nil
}
