package idemhttp

import (
	"maps"
	"net/url"
	"slices"
)

// Profile is a set of answers: which status each situation has, and which header
// marks a replay. Codes and their meaning are the same in all.
type Profile uint8

const (
	// IETF follows draft-ietf-httpapi-idempotency-key-header, which has expired and is
	// the de facto contract, where that speaks. It is the zero value.
	IETF Profile = iota
	// Stripe answers as clients of Stripe's API know it: a reused key is 400, and
	// [HeaderReplayedStripe] marks a replay.
	Stripe
)

// Row is what a service overrides of an answer. Empty fields keep the profile's.
// Whether a request may be sent again cannot be overridden: clients act on it.
type Row struct {
	// Status is the HTTP status: 400 to 599, for [CodeAccepted] also 200 to 299.
	Status int
	// Type is the URI reference that identifies the problem's type (RFC 9457 3.1.1).
	Type string
	// Title and Detail are for people. A reason, where there is one, follows Detail.
	Title, Detail string
}

// row is what a situation is answered with.
type row struct {
	status    int
	retryable bool // the same request with the same key may be sent again
	title     string
	detail    string
	kind      string // overrides the type
}

// marker is the header that marks a replay.
func (p Profile) marker() string {
	if p == Stripe {
		return HeaderReplayedStripe
	}
	return HeaderReplayed
}

// rows makes the answers of a contract: the profile's, with what a service
// overrides.
func (p Profile) rows(own map[Code]Row) (map[Code]row, error) {
	if p > Stripe {
		return nil, mistake("Profile is %d: use idemhttp.IETF or idemhttp.Stripe", p)
	}
	rows := maps.Clone(ietf)
	if p == Stripe {
		reused := rows[CodeKeyReused]
		reused.status = 400
		rows[CodeKeyReused] = reused
	}
	for _, code := range slices.Sorted(maps.Keys(own)) {
		o := own[code]
		r, ok := rows[code]
		if !ok {
			return nil, mistake("Rows has the code %q, which the contract does not know", code)
		}
		if o.Status != 0 {
			if !(o.Status >= 400 && o.Status <= 599 || code == CodeAccepted && o.Status >= 200 && o.Status <= 299) {
				return nil, mistake("Rows gives %s the status %d, which does not say that the request was refused: use 400 to 599", code, o.Status)
			}
			r.status = o.Status
		}
		if o.Type != "" {
			if _, err := url.Parse(o.Type); err != nil {
				return nil, mistake("Rows gives %s the type %q, which is no URI reference", code, o.Type)
			}
			r.kind = o.Type
		}
		if o.Title != "" {
			r.title = o.Title
		}
		if o.Detail != "" {
			r.detail = o.Detail
		}
		rows[code] = r
	}
	return rows, nil
}
