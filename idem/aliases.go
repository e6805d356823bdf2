package idem

import "github.com/idem-go/idempotency/idem/protocol"

// The words of package protocol that handlers, operators and tests say too.
type (
	// Store keeps records; see [protocol.Store].
	Store = protocol.Store
	// StoreError says why a call of a store failed; see [protocol.StoreError].
	StoreError = protocol.StoreError
	// LimitExceededError says when a call that a limit refuses may be tried again.
	LimitExceededError = protocol.LimitExceededError
	// PausedError says when a call of a paused operation may be tried again.
	PausedError = protocol.PausedError
	// ConfigError is a mistake in how the library is set up.
	ConfigError = protocol.ConfigError
	// Record is what a store keeps of one key; see [protocol.Record].
	Record = protocol.Record
	// State is where a record stands.
	State = protocol.State
	// Repeat says whether a handler may run again after an uncertain attempt.
	Repeat = protocol.Repeat
	// Watch says which claims a sweep finds once their lease is over.
	Watch = protocol.Watch
	// Failure is a terminal error as it is recorded and replayed.
	Failure = protocol.Failure
	// Fingerprint is a digest of an operation's input.
	Fingerprint = protocol.Fingerprint
	// Unit is what a handler wants to be written with its outcome; see [UnitOf].
	Unit = protocol.Unit
)

// The states of a record, and the declarations of an operation.
const (
	Absent, Pending, InProgress = protocol.Absent, protocol.Pending, protocol.InProgress
	Completed, Failed, Released = protocol.Completed, protocol.Failed, protocol.Released
	Unknown                     = protocol.Unknown
	NotRepeatable, Repeatable   = protocol.NotRepeatable, protocol.Repeatable
	WatchNotRepeatable          = protocol.WatchNotRepeatable
	WatchAlways, WatchNever     = protocol.WatchAlways, protocol.WatchNever
)

// Errors of a store for a whole call.
var (
	// ErrStoreUnavailable: the store was not reached, or refused. The call's handler did not run.
	ErrStoreUnavailable = protocol.ErrStoreUnavailable
	// ErrLimitExceeded: a limit of package limit refuses the call; a [*LimitExceededError] says more.
	ErrLimitExceeded = protocol.ErrLimitExceeded
	// ErrPaused: the operation is paused, see package pause; a [*PausedError] says more.
	ErrPaused = protocol.ErrPaused
	// ErrRecordUnreadable: the record is damaged or of a newer version, and never taken for absent.
	ErrRecordUnreadable = protocol.ErrRecordUnreadable
)
