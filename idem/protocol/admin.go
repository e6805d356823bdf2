package protocol

import (
	"context"
	"time"
)

// AdminStore is what a store does for sweeps and operators: it lists what is due, postpones,
// forgets and prolongs records, and reads their audit. A [Store] need not have it. The rules of
// [Store] hold for its writes.
type AdminStore interface {
	// Due lists records of a shard that are due, the longest first. It may name some that
	// are no longer due or no longer exist; it misses none for long.
	Due(ctx context.Context, q DueQuery) (DuePage, error)

	// Postpone writes when the record is due next, on the condition that its write is
	// Seen, its latest postponement SeenSweep, and that it is due at some time. It
	// changes nothing else: writes that were under way land as before.
	Postpone(ctx context.Context, now time.Time, p Postponement) error

	// Forget removes a record that is no open question, and what is stored with it, on
	// the condition that its write is Seen. No record counts as removed.
	Forget(ctx context.Context, now time.Time, e Erasure) error

	// Prolong raises the expiry of a record that has ended, and of what is stored with it, on
	// the condition that its write is Seen and that it has not expired. One that is kept at
	// least so long stays as it is. What is stored with it never expires before it.
	Prolong(ctx context.Context, now time.Time, p Prolongation) error

	// AuditOf lists the changes of a record from outside its attempts, the earliest first. An
	// entry that cannot be read is a ChangeUnreadable and hides no other one.
	AuditOf(ctx context.Context, id string, page string) (AuditPage, error)

	// AuditBetween lists the changes of all records from a time up to another, each shard's
	// the earliest first.
	AuditBetween(ctx context.Context, shard int, from, to time.Time, page string) (AuditPage, error)
}

// Shards of the index, numbered from 0.
const (
	// Shards is how many there are for records.
	Shards = 64
	// QuestionShards is how many of these, from 0, have the open questions and what a sweep has postponed.
	// The others have watched claims, which are no open questions before they are due. Counting questions
	// therefore reads no claims that run, except those in a shard of questions.
	QuestionShards = 16
	// AuditShards is how many there are for changes.
	AuditShards = 16
)

// DueQuery asks for one page of what is due.
type DueQuery struct {
	Shard int
	// Until is the latest time at which what is listed is due.
	Until time.Time
	// Page is the Next of the page before; empty for the first one. What is none is a
	// *[ConfigError].
	Page string
	// Limit is how many records a page may have.
	Limit int
}

// DuePage is one page of what is due.
type DuePage struct {
	// IDs of the records.
	IDs []string
	// Due says when each of them is due, by place in IDs.
	Due []time.Time
	// Next is the next page; empty after the last one.
	Next string
}

// Postponement says when a sweep looks at a record next.
type Postponement struct {
	ID string
	// Seen is the write, SeenSweep the latest postponement that was read.
	Seen, SeenSweep string
	// Sweep is the id of this write.
	Sweep string
	// Due is when the record is due next.
	Due time.Time
	// Runs says that the record is a claim whose lease is not over before Due: it may stay among the
	// claims. Any other record is among the questions from now on.
	Runs bool
	// Probes and EscalatedAt of the record from now on.
	Probes      int
	EscalatedAt time.Time
	// Audit, if not nil, is written with it.
	Audit *Audit
}

// Erasure removes a record.
type Erasure struct {
	ID string
	// Seen is the write that was read.
	Seen string
	// Audit, if not nil, is written with it.
	Audit *Audit
}

// Prolongation keeps a record that has ended for longer: a call that has taken it for expired no
// longer replaces it, and the attempt no longer adds a result. UpdatedAt stays.
type Prolongation struct {
	ID string
	// Seen is the write that was read, Write the id of this one.
	Seen, Write string
	// ExpiresAt is until when the record is kept, in whole seconds.
	ExpiresAt time.Time
	// Audit, if not nil, is written with it.
	Audit *Audit
}

// Audit is a change of a record from outside its attempts, as it is kept next to the
// record. It says nothing of inputs and results.
type Audit struct {
	// ID of the record, and of this entry among its.
	ID    string `json:"id"`
	Entry string `json:"entry"`
	// At is when it was changed.
	At time.Time `json:"at"`
	// Who changed it, Why, and with which Tool.
	Who  string `json:"who,omitzero"`
	Why  string `json:"why,omitzero"`
	Tool string `json:"tool,omitzero"`
	// Change is what was done.
	Change Change `json:"change"`
	// From and To are the states before and after, Attempt the record's number.
	From    State `json:"from,omitzero"`
	To      State `json:"to,omitzero"`
	Attempt int   `json:"attempt,omitzero"`
	// Ref is the provider's reference that was given.
	Ref string `json:"ref,omitzero"`
	// Steps has the verdicts on steps of a ChangeResolved, by name.
	Steps map[string]StepVerdict `json:"steps,omitzero"`
	// Until is until when a ChangeExtended keeps the record, or a ChangePaused lasts, in whole seconds.
	Until time.Time `json:"until,omitzero"`
	// What was changed, where that is not the record's state: a message of the outbox.
	What string `json:"what,omitzero"`
	// Unconfirmed says that it is not known whether the change was made, as of a ChangeUnreadable: a
	// store without transactions writes its entry before the change and confirms it afterwards.
	Unconfirmed bool `json:"unconfirmed,omitzero"`
	// ExpiresAt is until when the entry is kept.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Change is a change of a record from outside its attempts.
type Change string

const (
	// ChangeParked: a sweep has parked what an attempt has left. A call that does so has no
	// entry, see [Lapse].
	ChangeParked Change = "parked"
	// ChangeResolved: an outcome was recorded, or that there was none.
	ChangeResolved Change = "resolved"
	// ChangeEscalated: the question was escalated.
	ChangeEscalated Change = "escalated"
	// ChangeExtended: the record is kept for longer.
	ChangeExtended Change = "extended"
	// ChangeForgotten: the record was removed.
	ChangeForgotten Change = "forgotten"
	// ChangeRequeued: a dead letter of the outbox, or a message that was sent, published by the record's
	// operation, is sent again. From and To are empty.
	ChangeRequeued Change = "requeued"
	// ChangePaused: calls were paused, until Until if that is set. The ID is that of the [Pause]. From and To
	// are empty.
	ChangePaused Change = "paused"
	// ChangeResumed: they were resumed.
	ChangeResumed Change = "resumed"
	// ChangeUnreadable: the entry is damaged, or a newer version has written it. Why says what is
	// wrong, the other fields have what could be read.
	ChangeUnreadable Change = "unreadable"
)

// StepVerdict is what a resolution records about a step.
type StepVerdict string

const (
	// StepTookEffect: it took effect, with a result that is recorded.
	StepTookEffect StepVerdict = "took_effect"
	// StepWithoutResult: it took effect, and its result is not known.
	StepWithoutResult StepVerdict = "took_effect_without_result"
	// StepFailed: it has failed for good.
	StepFailed StepVerdict = "failed"
	// StepNotExecuted: it had no effect, and runs again.
	StepNotExecuted StepVerdict = "not_executed"
	// StepUndone: what it did has been undone.
	StepUndone StepVerdict = "undone"
)

// Text is what operators read about a step with the verdict, after the step's name.
func (w StepVerdict) Text() string {
	switch w {
	case StepTookEffect:
		return "took effect"
	case StepWithoutResult:
		return "took effect, with a result that is not known"
	case StepFailed:
		return "failed"
	case StepNotExecuted:
		return "had no effect"
	case StepUndone:
		return "was undone"
	}
	return "is said to be " + string(w) // by a newer version
}

// AuditPage is one page of changes.
type AuditPage struct {
	Entries []Audit
	// Next is the next page; empty after the last one.
	Next string
}

// ExpiredQuery asks to remove what has expired from a part of a table.
type ExpiredQuery struct {
	// Segment is the part, of Segments equal ones, numbered from 0.
	Segment, Segments int
	// Before is the expiry up to which items go.
	Before time.Time
	// Page is the Next of the page before; empty for the first one.
	Page string
	// Limit is how many items are looked at.
	Limit int
}

// ExpiredPage says what became of a page of a [ExpiredQuery].
type ExpiredPage struct {
	// Looked at and Removed items.
	Looked, Removed int
	// Next is the next page; empty after the last one.
	Next string
	// Done says that nothing more has expired, in any segment.
	Done bool
}

// Scanner lists all records of a table, for what no index holds. A [Store] may be without it.
type Scanner interface {
	// Scan reads a page of a part of the table. All pages of all parts together have each record
	// that was there all the time, once; of one that is written meanwhile they have an earlier or a
	// later state, or both. It reads all that the table holds: see the store for what that costs.
	Scan(ctx context.Context, q ScanQuery) (ScanPage, error)
}

// ScanQuery asks for one page of a part of a table.
type ScanQuery struct {
	// Segment is the part, of Segments equal ones, numbered from 0.
	Segment, Segments int
	// Page is the Next of the page before; empty for the first one.
	Page string
	// Limit is how many items are looked at; zero for as many as the store likes.
	Limit int
	// Results asks for the records as [Store.Get] gives them, with the results that lie in them. It costs the
	// store nothing more.
	Results bool
}

// ScanPage is one page of all records.
type ScanPage struct {
	// Records as [Record.WithoutResults] gives them, unless the query asks for results. They may be some seconds
	// old: read one with [Store.Get] before you decide about it.
	Records []*Record
	// Unreadable records, by their IDs: see [ErrRecordUnreadable].
	Unreadable []string
	// Looked is how many items were looked at, Units what that cost in the store's units, as
	// far as it says so.
	Looked int
	Units  float64
	// Next is the next page; empty after the last one. A page may have no record and a next one.
	Next string
}
