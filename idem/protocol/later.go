package protocol

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"
)

// Later makes a call accept its operation for a worker instead of running it: what its
// handler adds to the unit of work, such as a message with the record's id, commits together
// with the record, or not at all. An error of the handler accepts nothing.
type Later struct {
	// Input is what the worker gets.
	Input []byte
	// StartWithin is how long the work may wait for its worker before a sweep ends it; zero means
	// [DefaultStartWithin].
	StartWithin time.Duration
}

// DefaultStartWithin is how long accepted work may wait for its worker.
const DefaultStartWithin = time.Hour

// ErrNotAccepted: nothing that was accepted for later waits or has ended under the id: it has
// expired, or there never was any.
var ErrNotAccepted = errors.New("idem: no accepted work has this id; there is nothing to run")

// AcceptedStep is the name of the entry whose result is the input of an operation that was
// accepted for later. Like any step it goes with the outcome.
const AcceptedStep = "idem:accepted"

// Codes of the failures of accepted work that no attempt was made at.
const (
	CodeNotStarted = "idem:not_started" // no worker started it in time
	CodeCancelled  = "idem:cancelled"   // its client took it back
)

// OfAttempt returns the failure as one of an attempt: without a code by which no attempt was made.
func (f *Failure) OfAttempt() *Failure {
	if f == nil || f.Code != CodeNotStarted && f.Code != CodeCancelled {
		return f
	}
	return &Failure{Message: f.Message, Type: f.Type}
}

// Accepted reports whether a worker runs the operation, with the input that is recorded. It
// holds until there is an outcome.
func (r *Record) Accepted() bool {
	_, ok := r.Steps[AcceptedStep]
	return ok
}

// Progressed reports whether an attempt has recorded steps.
func (r *Record) Progressed() bool {
	if r.Accepted() {
		return len(r.Steps) > 1
	}
	return len(r.Steps) > 0
}

// ticketSize is that of [Record.Ticket], in bytes.
const ticketSize = 16

// StatusID is the digest in the record's id with the record's ticket: by it a client asks for
// what was accepted for later. It is empty for anything else.
func (r *Record) StatusID() string {
	digest, err := base64.RawURLEncoding.DecodeString(r.ID[strings.LastIndexByte(r.ID, '#')+1:])
	ticket, tErr := base64.RawURLEncoding.DecodeString(r.Ticket)
	if err != nil || tErr != nil || len(ticket) != ticketSize {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(digest, ticket...))
}

// ParseStatusID takes a [Record.StatusID] apart: the digest as the record's id has it, and the
// ticket.
func ParseStatusID(id string) (digest, ticket string, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(raw) <= ticketSize {
		return "", "", false
	}
	n := len(raw) - ticketSize
	return base64.RawURLEncoding.EncodeToString(raw[:n]), base64.RawURLEncoding.EncodeToString(raw[n:]), true
}
