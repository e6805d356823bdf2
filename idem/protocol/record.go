package protocol

import (
	"maps"
	"slices"
	"time"
)

// State is where a record stands. The zero value is the state of no record.
type State string

const (
	// Absent is the state of a record that does not exist.
	Absent State = ""
	// Pending: accepted for later, never claimed.
	Pending State = "pending"
	// InProgress: claimed; its lease runs, or has lapsed unnoticed.
	InProgress State = "in_progress"
	// Completed: the outcome is recorded.
	Completed State = "completed"
	// Failed: a terminal failure is recorded.
	Failed State = "failed"
	// Released: ended, and safe to run again.
	Released State = "released"
	// Unknown: may have taken effect; parked until it is resolved.
	Unknown State = "unknown"
)

// Record is what a store keeps of one key. Times are UTC; LeaseUntil and the
// At fields but ExpiresAt have milliseconds, ExpiresAt has seconds. A record that
// a store hands out is the receiver's own.
type Record struct {
	// ID is the key's, as idem.Key.ID gives it; Value the caller's, if the operation keeps it.
	ID    string `json:"id"`
	Value string `json:"value,omitzero"`
	// State, see [Next] for what leads where.
	State State `json:"state"`
	// Repeat is the strictest declaration among the calls for this record.
	Repeat Repeat `json:"repeat,omitzero"`
	// Fingerprint of the input that the record belongs to.
	Fingerprint Fingerprint `json:"fingerprint,omitzero"`
	// Codec names how the record's results are encoded; empty for JSON.
	Codec string `json:"codec,omitzero"`
	// Owner is the random token of the attempt that holds, or last held, the claim.
	Owner string `json:"owner"`
	// Attempt counts the claims of this record, from 1. For operators and logs.
	Attempt int `json:"attempt"`
	// Write is the id of the write that produced this version of the record.
	Write string `json:"write"`
	// Seen is the write that the latest claim, or a [Prolongation] since, was made over; empty
	// for a first one. A retry of that write learns from it that it had landed.
	Seen string `json:"seen,omitzero"`
	// LeaseUntil is when the claim stops being respected, without the skew margin.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// ExpiresAt is the time until which the outcome is replayed at least; zero means forever.
	// Calls claim the key once the skew margin is over too.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Retention as the claim was given it.
	Retention time.Duration `json:"-"`
	// CreatedAt is when the first attempt claimed, UpdatedAt the last write.
	CreatedAt time.Time `json:"created_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// Uncertain says that an attempt that is over may have taken effect. A
	// Released record without it excludes execution.
	Uncertain bool `json:"uncertain,omitzero"`
	// Sealed says that the store of its claim encrypts results: a store that adds one does too.
	Sealed bool `json:"sealed,omitzero"`
	// Body describes the recorded result; read it with [Store.Result].
	Body Body `json:"body,omitzero"`
	// Omitted says that the outcome was recorded without its result.
	Omitted bool `json:"omitted,omitzero"`
	// Failure of a Failed record; of others the last attempt's error, for operators. Of a record
	// that another call or a sweep has parked it says which and why, see [Lapse].
	Failure *Failure `json:"failure,omitzero"`
	// Ref is what the provider calls the effect, as the attempt or a resolver said. RefWrite is the
	// id of the write that set it; empty if an earlier attempt's did.
	Ref      string `json:"ref,omitzero"`
	RefWrite string `json:"ref_write,omitzero"`
	// Resolved says that the outcome was recorded from outside, by [EventResolve].
	Resolved bool `json:"resolved,omitzero"`
	// Unsettled counts the attempts that are over, may have taken effect and left no outcome; a
	// lapsed one from the claim that takes it over. It counts only where the record is Uncertain.
	Unsettled int `json:"unsettled,omitzero"`
	// Due is when a sweep should look at the record next: of a watched claim after its
	// lease, of an open question from when it was opened. Zero if none needs to. Exactly
	// the records that have it are in the index.
	Due time.Time `json:"due,omitzero"`
	// OpenSince is when the record became an open question; zero if it is none.
	OpenSince time.Time `json:"open_since,omitzero"`
	// Sweep is the id of the latest [Postponement], Probes how often the answer was looked for,
	// EscalatedAt when that was escalated. They end with the question.
	Sweep       string    `json:"sweep,omitzero"`
	Probes      int       `json:"probes,omitzero"`
	EscalatedAt time.Time `json:"escalated_at,omitzero"`
	// ResponseVersion is the caller's version of the result's schema.
	ResponseVersion int `json:"response_version,omitzero"`
	// Ticket is a random part of the id by which a client asks for the state of what was
	// accepted for later; empty for anything else.
	Ticket string `json:"ticket,omitzero"`
	// Steps recorded so far, by name. A record that is Failed has none, and a Completed one those
	// without results that a resolution has left, for a later one that must know what to undo.
	Steps map[string]RecordedStep `json:"steps,omitzero"`
}

// Body describes a recorded result. Data holds it unless it lies in parts.
type Body struct {
	// Data is the stored form, encoded as Encoding says.
	Data []byte `json:"data,omitzero"`
	// Encoding is the name of the store's compression, empty for none.
	Encoding string `json:"encoding,omitzero"`
	// Parts is the number of parts outside the record, 0 for none.
	Parts int `json:"parts,omitzero"`
	// Size is the length of the result in bytes, Stored that of its stored form. Size is -1
	// where the result was not read, see [Record.WithoutResults].
	Size   int `json:"size,omitzero"`
	Stored int `json:"stored,omitzero"`
	// Digest is the SHA-256 of the stored form, if it lies in parts.
	Digest []byte `json:"digest,omitzero"`
}

// Failure is a terminal error as it is recorded and replayed.
type Failure struct {
	// Message is the error's text, Type its Go type without package path or the
	// type the error names itself, Code what it says of itself as a code.
	Message string `json:"message,omitzero"`
	Type    string `json:"type,omitzero"`
	Code    string `json:"code,omitzero"`
}

// RecordedStep is a recovery point inside an operation, as it is recorded: begun, not
// executed, failed, or done with a result.
type RecordedStep struct {
	// Begun is set while an at-most-once step has its begin mark and no outcome.
	Begun bool `json:"begun,omitzero"`
	// NotExecuted is set if an at-most-once step began and provably had no effect: it
	// may begin again.
	NotExecuted bool `json:"not_executed,omitzero"`
	// FromResolution is set from when a resolution has recorded the step's outcome until an attempt
	// uses that. With Begun, an attempt could not use it, and the step is interrupted again.
	FromResolution bool `json:"from_resolution,omitzero"`
	// BegunAt is when the begin mark was written, in milliseconds; zero without one. An outcome
	// that a resolution has recorded keeps it.
	BegunAt time.Time `json:"begun_at,omitzero"`
	// Failure is the step's terminal error, if it has one. Of an Omitted one it
	// says why its result could not be kept.
	Failure *Failure `json:"failure,omitzero"`
	// Omitted says that the step is done and that its result could not be kept.
	Omitted bool `json:"omitted,omitzero"`
	// Body describes what the step returned; read it with [Store.StepResult].
	Body Body `json:"body,omitzero"`
	// Compensates says that the step has a compensation, see [RecordedStep.NeedsCompensation].
	Compensates bool `json:"compensates,omitzero"`
	// Write is the id of the write that recorded the step.
	Write string `json:"write,omitzero"`
}

// Done reports whether the step has an outcome, which a later attempt gets.
func (s RecordedStep) Done() bool { return !s.Begun && !s.NotExecuted }

// NeedsCompensation reports whether the step's compensation must run before the operation may fail: it has
// one, and took effect or may have.
func (s RecordedStep) NeedsCompensation() bool {
	return s.Compensates && !s.NotExecuted && (s.Failure == nil || s.Omitted)
}

// Expired reports whether the recorded outcome is past its retention at now.
// Only outcomes and step-less released records expire; an open question never
// does, whatever it carries.
func (r *Record) Expired(now time.Time) bool {
	switch r.State {
	case Completed, Failed:
	case Released:
		if len(r.Steps) > 0 {
			return false
		}
	default:
		return false
	}
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// Bears reports whether the write has landed: it made this version of the record, or
// the one that the latest claim or prolongation was made over. A claim must not rely on it: one that was
// taken over is no leave to run.
func (r *Record) Bears(write string) bool {
	return r != nil && write != "" && (r.Write == write || r.Seen == write)
}

// Lapsed reports whether the lease and the observer's skew margin are over.
func (r *Record) Lapsed(now time.Time, margin time.Duration) bool {
	return now.After(r.LeaseUntil.Add(margin))
}

// Ended reports whether the record has an outcome, or was released without steps: it is kept for
// a time, and is no open question.
func (r *Record) Ended() bool {
	return (r.State == Completed || r.State == Failed || r.State == Released) && !r.Open()
}

// Open reports whether the record is an open question, which must be resolved. It
// must never carry an expiry, and is in the sparse index, as watched claims are.
func (r *Record) Open() bool {
	switch r.State {
	case Unknown, Pending:
		return true
	case Released:
		return len(r.Steps) > 0
	}
	return false
}

// Unexecuted reports whether the record is released and nothing was executed under it, as under
// a claim that was taken back: it belongs to no input yet.
func (r *Record) Unexecuted() bool {
	return r.State == Released && !r.Uncertain && len(r.Steps) == 0
}

// Interrupted reports whether an at-most-once step began and left no result.
func (r *Record) Interrupted() bool {
	for _, s := range r.Steps {
		if s.Begun {
			return true
		}
	}
	return false
}

// StepResolved reports whether the outcome of the step is what the latest resolution has recorded,
// and no attempt has claimed since.
func (r *Record) StepResolved(step string) bool {
	s, ok := r.Steps[step]
	// An attempt that completes leaves no steps: what is left then is of the resolution.
	return ok && r.Resolved && (s.Write == r.Write || r.State == Completed)
}

// CompensatingStep is the name of the mark that the operation has failed and is being
// undone: no attempt runs it forward any more.
const CompensatingStep = "idem:compensating"

// Undoing reports whether the operation has that mark.
func (r *Record) Undoing() bool {
	_, marked := r.Steps[CompensatingStep]
	return marked
}

// UndoingPrefix begins the name of the step that undoes another one.
const UndoingPrefix = "idem:undo:"

// Undone reports whether the compensation of the step has run.
func (r *Record) Undone(step string) bool {
	_, undone := r.Steps[UndoingPrefix+step]
	return undone
}

// Clone returns a deep copy.
func (r *Record) Clone() *Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Body.Data = slices.Clone(r.Body.Data)
	c.Body.Digest = slices.Clone(r.Body.Digest)
	if r.Failure != nil {
		f := *r.Failure
		c.Failure = &f
	}
	c.Steps = maps.Clone(r.Steps)
	for n, s := range c.Steps {
		s.Body.Data, s.Body.Digest = slices.Clone(s.Body.Data), slices.Clone(s.Body.Digest)
		if s.Failure != nil {
			f := *s.Failure
			s.Failure = &f
		}
		c.Steps[n] = s
	}
	return &c
}

// WithoutResults returns the record without the results that lie in it, also those of its
// steps, and without the sizes of these. [Store.Result] and [Store.StepResult] do not take them
// for empty: they give [ErrRecordUnreadable]. Results in parts are as they were.
func (r *Record) WithoutResults() *Record {
	c := *r
	if r.State == Completed && r.Body.Parts == 0 {
		c.Body = Body{Size: -1}
	}
	c.Steps = maps.Clone(r.Steps)
	for n, s := range c.Steps {
		if s.Done() && s.Failure == nil && s.Body.Parts == 0 {
			s.Body = Body{Size: -1}
			c.Steps[n] = s
		}
	}
	return &c
}

// Encoded is a result as later calls read it, for those who record one from outside.
type Encoded struct {
	// Body is the result, encoded; Codec names how, empty for JSON.
	Body  []byte
	Codec string
	// ResponseVersion is the caller's version of the result's schema, at most 2^31-1; zero for none.
	ResponseVersion int
	// Check shows that later calls can read Body. Nil stands for any JSON.
	Check func(body []byte) error
	// Failed says that a handler with this result fails, which undoes its steps: an HTTP refusal.
	Failed bool
}
