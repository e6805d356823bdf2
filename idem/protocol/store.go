package protocol

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Store keeps records. Every write is one atomic conditional change, idempotent
// by its write id: a method returns nil if and only if this write has been
// applied, by this call or an earlier one with the same id. Otherwise it returns
//
//   - a [*ConflictError] with the conflicting record, if the condition
//     did not hold and the record does not bear the write's id, as its Write, in the
//     entry of a step or, but for claims, extensions and steps, as its Seen;
//   - an error that matches [ErrRecordUnreadable], if that record cannot be read;
//   - a [*RefusedError] if writes that should commit with it were refused, with
//     nothing written;
//   - a [*TooLargeError] if the result does not fit, with nothing written;
//   - a [*LimitExceededError] if a limit refuses to make the record, with nothing written, of
//     Acquire and of an [Atomic] attempt's Finish alone;
//   - a [*StoreError] for everything else; Ambiguous says whether the write may have
//     been applied or may still be, and Down whether the store could not work, as
//     opposed to having answered or not having been asked.
//
// A store that can replace a row on the condition that it is as it was read, as SQL and Redis can, needs no
// conditions of its own: it reads the record, calls the write's Apply, and replaces the record by what this returns,
// together with the unit of work or the audit, or begins again. If the reply is lost, it does that again too: Apply
// of a write that has landed returns the very record that it was given. Package casstore does this over a small
// driver.
//
// A store sends a failed write again, unchanged, while its context allows. It may ration that
// for Acquire and for reads, unless [WithoutRetryQuota] marks their context.
// It reads no clock: now is an argument, for UpdatedAt and the index. It keeps no
// reference to what it is given and hands out copies. All methods are safe for
// concurrent use. The conformance suite is package storetest.
type Store interface {
	// Acquire writes a claim. With an empty Seen it creates the record, on the
	// condition that there is none; otherwise it replaces or takes over the record
	// whose write is Seen.
	Acquire(ctx context.Context, now time.Time, c Claim) error

	// Withdraw takes back a claim whose reply never came, so that it cannot land
	// any more: it leaves the record Released with a new owner and write. Its
	// condition: what the claim had seen, which is no record or that write, or the
	// claim's own owner in InProgress or, unless it is uncertain, Unknown.
	Withdraw(ctx context.Context, now time.Time, w Withdrawal) error

	// Extend raises the lease of the owner's InProgress or Unknown record. Such a
	// record with a lease at least as late counts as applied. The expiry of one that is
	// InProgress moves along while it has no steps.
	Extend(ctx context.Context, now time.Time, e Extension) error

	// RecordStep writes a step of the owner's record and removes the record's expiry.
	// A begin mark takes an InProgress record and is conditional on the
	// step's absence or on its being NotExecuted by the write Seen; it counts as applied
	// by an earlier call only while the owner's record still is InProgress, since it is
	// leave to run. NotExecuted is conditional on the step's absence or on its begin mark
	// of the write Seen. An outcome takes an InProgress or Unknown record and is conditional on the
	// step's not being done. Read and Unread take one too, conditional on the step's being
	// FromResolution, not Begun, and of the write Seen. A result too large for the record is stored outside it
	// first. The record takes steps up to [StepRoom], and in addition the ending of an
	// attempt and a mark with an error of 6 KiB each. A begin mark's BegunAt is now.
	RecordStep(ctx context.Context, now time.Time, s StepWrite) error

	// Finish ends the owner's attempt: complete, fail, release or park, as
	// [EventComplete] to [EventPark] of the machine allow. A result too large for
	// the record is stored outside it first. If that fails, or takes so long that the
	// context would have no time left for the record, the error is a [*StoreError]
	// with ResultNotStored set: the same end without the result can still be written. A store
	// that writes both in one change does so but for an end with a Unit and for an [Atomic] one.
	Finish(ctx context.Context, now time.Time, f Finish) error

	// RecordReference writes what the provider calls the effect to the owner's record,
	// in InProgress or Unknown, on the condition that its RefWrite is Seen. It counts as
	// applied by an earlier call while the record has it.
	RecordReference(ctx context.Context, now time.Time, r ReferenceWrite) error

	// Settle parks what an attempt left behind ([EventLapse]) or resolves an Unknown or
	// InProgress record ([EventResolve]), on the condition that its write is Seen, by which
	// the caller knows that the lease of the latter is over. Its
	// Audit is written with it or not at all; a store that keeps none refuses it with
	// errors.ErrUnsupported.
	Settle(ctx context.Context, now time.Time, s Settlement) error

	// Get reads a record consistently. It returns nil and no error if there is
	// none.
	Get(ctx context.Context, id string) (*Record, error)

	// Result reads the recorded result of a record that this store handed out, with
	// one more call if it lies in parts. Parts that are missing, cut short or
	// altered give an error that matches [ErrRecordUnreadable].
	Result(ctx context.Context, rec *Record) ([]byte, error)

	// StepResult does the same for the result of a record's step.
	StepResult(ctx context.Context, rec *Record, name string) ([]byte, error)

	// Traits are the same in every call.
	Traits() Traits
}

// StepRoom is what the steps of one operation may take in its record, in bytes, for which a store
// must have room, in addition to an ending and the mark that the operation is being undone. A step
// counts 192 bytes, its name, and what the record keeps of its result or error; with a compensation as
// much again. Results of up to 1 KiB are kept in the record while they take 64 KiB together, later
// ones only up to 128 bytes. So there is room for some 1,400 small steps, or 800 with compensations.
const StepRoom = 320 << 10

// Traits are what a caller must know of a [Store] before it runs anything.
type Traits struct {
	// StepExtra is by how many bytes more than [StepRoom] says each step counts, for example
	// because its result is encrypted.
	StepExtra int
	// NoUnits is why the store commits no [Unit], with what to do instead; nil if it commits units.
	NoUnits error
	// Lossy is why a record may be lost that the store has confirmed, with what to do: a handler may then run
	// again. Nil if none is.
	Lossy error
}

// Refuses is why no call may run an operation over the store, or accept it for later; nil if calls may.
func (t Traits) Refuses(atomic bool, r Repeat, later bool) error {
	switch {
	case atomic && t.NoUnits != nil:
		return t.NoUnits
	case r != Repeatable || later:
		return t.Lossy
	}
	return nil
}

// Claim is the right to run, as it is to be written.
type Claim struct {
	// Record is the InProgress record that results, in full. With Seen and without
	// Replace a store takes from it only State, Repeat, Owner, Attempt, Write,
	// LeaseUntil, ExpiresAt, Retention, Uncertain, Unsettled, Ref and Due; identity (ID,
	// Value, Fingerprint, Codec, CreatedAt, Ticket) and Steps stay as they are, all else goes.
	// A watched claim has Due, and no expiry.
	Record Record
	// Seen is the write of the record that is claimed; empty if there is none. It goes
	// into the record that results, see [Record], in place of what Record says.
	Seen string
	// Replace an expired record as a whole: nothing of it stays.
	Replace bool
}

// Withdrawal takes back a claim. The record that results is the claim's, in
// state Released, with this Owner and Write.
type Withdrawal struct {
	Claim Claim
	// Owner and Write replace the claim's.
	Owner, Write string
	// ExpiresAt of what is left; zero if the record has steps.
	ExpiresAt time.Time
	// Uncertain says that an attempt before the claim may have taken effect. If another
	// call has parked the record, it then stays parked.
	Uncertain bool
}

// Extension renews a lease.
type Extension struct {
	ID, Owner, Write string
	// LeaseUntil is the new end of the lease.
	LeaseUntil time.Time
	// ExpiresAt moves the expiry along; zero for a record that carries none.
	ExpiresAt time.Time
}

// StepWrite records one step.
type StepWrite struct {
	ID, Owner, Write string
	Name             string
	// Begin writes the begin mark of an at-most-once step, NotExecuted takes it back.
	Begin, NotExecuted bool
	// Read says that the attempt uses what a resolution has recorded of the step: the entry is no
	// longer FromResolution. Unread says that it cannot: the entry is Begun again. Both change an
	// entry that is FromResolution and not Begun, which keeps its Write and its BegunAt.
	Read, Unread bool
	// Spent of Unread is the entry's result, unless another step has it too: its parts expire.
	Spent Body
	// Seen is the write of the step's entry that Begin, NotExecuted, Read or Unread replaces; empty
	// if there is none. So none of them can land late over an entry that came after it.
	Seen string
	// Failure is the step's terminal error; it has no Result then. With Omitted
	// it says why a step that is done has none.
	Failure *Failure
	Omitted bool
	// Result is the step's encoded result.
	Result []byte
	// Compensates: see [RecordedStep].
	Compensates bool
	// Ref of a begin mark is written with it; empty leaves the record's as it is.
	Ref string
	// Due of a begin mark, and of Unread, makes the claim a watched one, unless it is that already.
	Due time.Time
	// InParts says that the record keeps at most 128 bytes of the Result, else 1 KiB: see [StepRoom].
	InParts bool
	// First says that the caller knows of no step of the record, by which a store may save a call.
	First bool
}

// Ending is what a record becomes when an attempt ends or is resolved.
type Ending struct {
	// State is Completed, Failed, Released or Unknown, of an [Atomic] attempt also Pending.
	State State
	// Due of a Pending record: when a sweep should look at it.
	Due time.Time
	// Result is the encoded result of a Completed record.
	Result []byte
	// Omitted says that Result is only what could be kept.
	Omitted bool
	// Failure of a Failed record, the error of others.
	Failure *Failure
	// Uncertain: see [Record].
	Uncertain bool
	// Unsettled of the record from now on; zero leaves it as it is.
	Unsettled int
	// Stricter stores NotRepeatable as the record's declaration.
	Stricter bool
	// ExpiresAt is the record's expiry; zero removes it.
	ExpiresAt time.Time
	// Ref is the provider's reference; empty leaves it as it is.
	Ref string
	// ResponseVersion of the result's schema; zero for none.
	ResponseVersion int
}

// Finish ends an attempt.
type Finish struct {
	ID, Owner, Write string
	// Created is the CreatedAt of the record: what commits with the outcome is of this life of the key.
	Created time.Time
	Ending  Ending
	// Attempt is how the attempt ran, if not under a claim of its own.
	Attempt AttemptKind
	// Watched says that the claim may be in the index, which it leaves with this write.
	Watched bool
	// LargeSteps says that results of steps may lie outside the record. They expire with an outcome.
	LargeSteps bool
	// Unit, if not nil, commits with this write, or not at all. A store that does not
	// commit units of its kind refuses the write with errors.ErrUnsupported.
	Unit Unit
	// NewOwner, if not empty, replaces the owner: no earlier write of the attempt can land any more.
	NewOwner string
	// Progress, if not nil, remembers what of the result is stored outside the record already.
	Progress *Progress
}

// AttemptKind is how an attempt ran, and thereby the condition and the effect of its
// end: [Atomic] or [WithoutResult]. Nil is an attempt under a claim of its own.
type AttemptKind interface{ attemptKind() }

// Atomic is an attempt in atomic mode: Claim was never written. The whole record is
// made of Claim.Record and the ending, whose State is Completed, Failed or Pending. A Pending
// one has [AcceptedStep], whose result may be of any size. The condition is that of [EventCommit]:
// what the claim has seen, which is no record or the one whose write is Claim.Seen.
type Atomic struct{ Claim Claim }

// WithoutResult is an attempt that is recorded as Completed without its result
// already, by Write. The ending's Result is added to that now: the record gets it, and
// the write of [Finish], and is not Omitted any more; everything else of it stays, its
// expiry and UpdatedAt too. The condition is that of [EventAddResult]: the owner's
// Completed and Omitted record whose write is Write.
type WithoutResult struct{ Write string }

func (Atomic) attemptKind()        {}
func (WithoutResult) attemptKind() {}

// Progress remembers which parts of a result a store has written outside its record, from one
// call to the next. The zero value is ready; it is safe for concurrent use.
type Progress struct {
	parts sync.Map // that are stored
	form  atomic.Value
}

// KeepForm keeps the stored form of the result, for a store that would make another one the next
// time. A nil Progress keeps nothing.
func (p *Progress) KeepForm(form any) {
	if p != nil {
		p.form.Store(form)
	}
}

// Form is what KeepForm has kept, else nil.
func (p *Progress) Form() any {
	if p == nil {
		return nil
	}
	return p.form.Load()
}

// Done reports whether the part was noted.
func (p *Progress) Done(part string) bool {
	if p == nil {
		return false
	}
	_, done := p.parts.Load(part)
	return done
}

// Note remembers a part that is stored.
func (p *Progress) Note(part string) {
	if p != nil {
		p.parts.Store(part, true)
	}
}

// Settlement parks or resolves a record from outside the attempt.
type Settlement struct {
	ID string
	// Kind is EventLapse or EventResolve.
	Kind EventKind
	// Seen is the write that was read.
	Seen string
	// Write is the id of this write.
	Write string
	// Owner replaces the record's; empty keeps it. A resolution's is its Write: so a later one knows
	// that the reference is the resolution's.
	Owner  string
	Ending Ending
	// ClearSteps names the steps to remove: begin marks, and with Again what the earlier
	// resolution has recorded.
	ClearSteps []string
	// Steps are the outcomes of steps that have a begin mark, or with Again are
	// [Record.StepResolved], which they replace. Name, Failure, Omitted, Result and Compensates
	// count. A step whose outcome [StepWrite.MustBeRead] is recorded as FromResolution. Any other
	// step stays as it is. If the Ending is Completed, the Omitted ones are all that stays of the
	// record's steps, see Left; of them Name, Failure and Compensates count.
	Steps []StepWrite
	// Again lets a resolution replace an earlier one, with its reference: see ClearsRef.
	Again bool
	// LargeSteps: see [Finish].
	LargeSteps bool
	// Sealed is that of the record which was read: a store that does not encrypt then refuses a
	// result.
	Sealed bool
	// Audit, if not nil, is written with it.
	Audit *Audit
}

// ReferenceWrite records what the provider calls the effect.
type ReferenceWrite struct {
	ID, Owner, Write string
	Ref              string
	// Seen is the RefWrite of the record that it changes. So it cannot land late over a
	// reference that came after it.
	Seen string
}

// Unit is a handler's unit of work: what it wants to be written together with its
// outcome, or not at all. It is of a kind that the store understands, which commits it
// with [Finish]. If it holds something until then, such as a connection, it has a method Drop, which the engine
// calls once the attempt has ended, whether the unit has committed or not.
type Unit interface {
	// Seal ends the collecting and reports whether there is anything to commit. The
	// engine calls it once the handler has returned.
	Seal() bool
	// Size is about how many bytes there are to commit, once it is sealed: the commit
	// gets time by it.
	Size() int
}

type retryQuotaKey struct{}

// WithoutRetryQuota marks a context for [Store.Get]: what is read decides what is recorded of an
// attempt that has run, or of a claim that may have landed. A store that rations its retries does
// not do so then.
func WithoutRetryQuota(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryQuotaKey{}, true)
}

// IgnoresRetryQuota reports whether the context is marked by [WithoutRetryQuota].
func IgnoresRetryQuota(ctx context.Context) bool { return ctx.Value(retryQuotaKey{}) != nil }
