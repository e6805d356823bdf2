package idem

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Call is one request to run an operation, in bytes, for wrappers.
type Call struct {
	// Key of the record, Fingerprint of the input, and Run, which executes the handler at most
	// once, on the caller's goroutine, are required.
	Key         Key
	Fingerprint Fingerprint
	Run         func(context.Context) Answer
	// Codec names how results are encoded where that is not JSON. It is recorded.
	Codec string
	// WaitUntil ends the waiting for another call, by time.Now. Zero: only the deadline does.
	WaitUntil time.Time
	// Later is what is accepted for a worker, and Accepted the record that a worker runs: see package later.
	Later    *protocol.Later
	Accepted *Record
	// NoClaim, if set, is returned where the call would claim: nothing runs, and the record answers.
	NoClaim error
	// Keyless is set where the request has no key, and Key is a random one: it is reported.
	Keyless bool
}

// Answer is what a handler gave.
type Answer struct {
	// Body is the encoded result. It is recorded with ClassCompleted alone.
	Body []byte
	// Summary is recorded in place of a Body that cannot be stored. More than 1 KiB is dropped.
	Summary []byte
	// Omitted is why there is no Body although the handler succeeded.
	Omitted error
	// Err is the handler's error.
	Err error
	// Class is the caller's own rule; ClassDefault uses Err.
	Class Class
	// Cause is why an answer without Err fails: steps are undone for it, and the record of no outcome has it.
	Cause error
	// Value is what the handler returned, for [Operation.Classify].
	Value any
	// ResponseVersion of the Body's schema; zero for none, as for what is less or more than 2^31-1.
	ResponseVersion int
	// OnRefused makes the answer of an attempt whose [Unit] of work the store refused. Nil means
	// that the reason is the handler's error.
	OnRefused func(reason error) Answer
}

// Outcome is what a call reports of its outcome, in addition to the result.
type Outcome struct {
	// Body is the encoded result, the same bytes live and on replay.
	Body []byte
	// Executed is set if the outcome is that of this call's own attempt, written or not. Replayed is set if it is a
	// recorded one: the handler did not run, or its attempt lost the claim to the one whose outcome this is.
	Executed, Replayed bool
	// RecordState of the record as far as this call knows.
	RecordState State
	// AttemptState is the state in which this call's own attempt ended, and Class what that end means under all
	// rules. Both are zero without Executed.
	AttemptState State
	Class        Class
	// StopCause is why this call's own attempt got no outcome, whatever its handler returned: a step could not be
	// recorded or read, or a [*StepInterruptedError].
	StopCause error
	// Failure of an attempt that did not complete, as it is or will be recorded.
	Failure *Failure
	// Ref is what the provider calls the effect, if that is known: see [SetReference].
	Ref string
	// Attempt that the outcome belongs to; ResponseVersion of the Body's schema.
	Attempt, ResponseVersion int
	// CreatedAt is when the first attempt claimed, RecordedAt when the outcome was
	// recorded, or would have been, ExpiresAt until when it is replayed at least.
	CreatedAt, RecordedAt, ExpiresAt time.Time
	// Queued is set if the outcome is not written yet, or, in RecordState Completed, if its
	// result is not. An outcome that could not even be queued leaves InProgress without it.
	Queued bool
	// Omitted is set if the result could not be kept: Body is then what the handler gave, if anything. UnitRefused is
	// set if the outcome is that of a refusal of the unit of work.
	Omitted, UnitRefused bool
	// StatusID is by what a client asks for what was accepted for later.
	StatusID string
}

func (c *Call) check(over protocol.Traits) error {
	switch {
	case c.Key.Err() != nil:
		return c.Key.Err()
	case c.Fingerprint.Compare(c.Fingerprint.Recorded()) != protocol.MatchSame:
		return configError("call", "Fingerprint is %q, which is none of this release: make it with fingerprint.JSON, "+
			"fingerprint.Bytes or a fingerprint.Builder", c.Fingerprint)
	case c.Run == nil:
		return configError("call", "the handler is nil")
	}
	return cmp.Or(over.Refuses(c.Key.op.Mode == Atomic, c.Key.op.Repeat, c.Later != nil), c.checkLater())
}

func (c *Call) checkLater() error {
	l := c.Later
	if l == nil {
		return nil
	}
	what := fmt.Sprintf("operation %q, accepted for later", c.Key.op.Name)
	switch {
	case c.Key.op.Shadow:
		return configError(what, "Shadow records nothing that a worker could run: set it to false")
	case l.StartWithin < 0 || l.StartWithin != 0 && l.StartWithin < time.Second:
		return configError(what, "StartWithin is %v: use at least one second, or zero for %v", l.StartWithin,
			protocol.DefaultStartWithin)
	}
	return nil
}
