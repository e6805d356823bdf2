package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// StorePolicy says what happens when the store is down before the claim.
type StorePolicy uint8

const (
	// FailClosed is the zero value: without a claim the handler does not run and the caller gets [ErrStoreUnavailable].
	FailClosed StorePolicy = iota
	// FailOpen runs the handler without a claim when the store is down, as [StoreError].Down says.
	// Nothing of such a call is recorded: two may run at once, and a later call runs the handler
	// again, with the same [Token]. A step of [AtMostOnce] and a [Unit] of work get an error that
	// matches [ErrStoreUnavailable]. Only for repeatable operations.
	FailOpen
)

// Mode says when the key is reserved.
type Mode uint8

const (
	// Reserved is the zero value: a claim is written first, the handler runs under
	// it, and its outcome is written last. At most one attempt runs at a time.
	Reserved Mode = iota
	// Atomic takes no claim: two first calls at once both run the handler, one of them commits, and the other gets
	// its outcome. One write records the outcome together with its [Unit] of work, or nothing at all. It takes
	// repeatable operations only, and no steps. A result commits, and so does an error marked [Permanent], without
	// the unit. After any other error nothing is written. A commit that cannot be confirmed is a [*CommitError].
	Atomic
)

// Defaults and limits of an operation.
const (
	DefaultRetention = 24 * time.Hour
	DefaultMinTime   = 100 * time.Millisecond
	maxTenant        = 64
	maxOperation     = 128
	maxValue         = 1024
	// maxRetention keeps expiry within what DynamoDB's TTL deletes: it ignores
	// items whose expiry lies more than five years back, and no operation needs longer.
	maxRetention = 5 * 365 * 24 * time.Hour
)

// Operation names a unit of work and its policy. It is a plain value, declared once and copied freely:
//
//	var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
type Operation struct {
	// Name tells operations apart: the same caller's value under another name is
	// another record. Required; at most 128 bytes. Changing it forgets all records.
	Name string
	// Repeat is the operation's declaration. The zero value is NotRepeatable.
	Repeat Repeat
	// Mode is [Reserved] or [Atomic]. The zero value is Reserved.
	Mode Mode
	// Retention is how long an outcome is replayed, from when it is recorded: a second to five
	// years; zero means [DefaultRetention]. A retry that comes later runs the handler again.
	Retention time.Duration
	// MinTime is the least time the handler must have before the guard, at least a millisecond;
	// zero means [DefaultMinTime]. With less left the caller gets what is recorded, else [ErrOutOfTime].
	MinTime time.Duration
	// Classify decides what an attempt's end means, by what the handler returned (over HTTP an *idemhttp.Response)
	// and its error. [ClassDefault] leaves that to the default rules. It must be safe for concurrent use.
	Classify func(ctx context.Context, result any, err error) Class
	// OnStoreFailure says whether the handler may run without a claim. The zero value is FailClosed.
	OnStoreFailure StorePolicy
	// Watch says whether a claim is watched. The zero value is WatchNotRepeatable.
	Watch Watch
	// Shadow only observes: the handler always runs, and notices say what would have been answered.
	// None of its records counts once it is switched off. [UnitOf] fails, and Atomic is refused.
	Shadow bool
	// MaxAttempts is the number of attempts that may have taken effect and left no outcome
	// after which a repeatable operation is parked; a release resets it. Zero means no limit.
	MaxAttempts int
	// Values says how the values of the keys are stored: nil as a plain digest alone, [KeepValues]
	// also as they are, that of package secrets as a digest with a secret.
	Values protocol.Values
}

// KeepValues, as [Operation].Values, stores the caller's value in addition to its digest, for
// operators. Not for personal data.
const KeepValues keepValues = true

type keepValues bool

// Check implements [protocol.Values].
func (keepValues) Check() error { return nil }

// Check reports what is wrong with the declaration, as a [*ConfigError].
func (o Operation) Check() error {
	switch v := o.Values.(type) {
	case nil, keepValues:
	case protocol.KeyedDigest:
		if err := v.Check(); err != nil {
			return o.invalid("%v", err)
		}
	default:
		return o.invalid("Values is a %T: use idem.KeepValues or secrets.New", v)
	}
	switch {
	case o.Name == "":
		return o.invalid("Name is empty: give the operation a name that never changes, such as \"charge\"")
	case len(o.Name) > maxOperation:
		return o.invalid("Name has %d bytes: use at most %d", len(o.Name), maxOperation)
	case o.Repeat > Repeatable:
		return o.invalid("Repeat is %d: use idem.NotRepeatable or idem.Repeatable", o.Repeat)
	case o.Mode > Atomic:
		return o.invalid("Mode is %d: use idem.Reserved or idem.Atomic", o.Mode)
	case o.Mode == Atomic && o.Repeat != Repeatable:
		return o.invalid("idem.Atomic takes no claim, so that the handler may run twice, and the operation is not " +
			"repeatable: declare it idem.Repeatable if all its effects are in the transaction, or use idem.Reserved")
	case o.Mode == Atomic && o.OnStoreFailure != FailClosed:
		return o.invalid("OnStoreFailure has no meaning with idem.Atomic, which takes no claim to do without: " +
			"use idem.FailClosed")
	case o.Mode == Atomic && o.Shadow:
		return o.invalid("Shadow records no outcome that a transaction could commit with, and idem.Atomic is for that: " +
			"use idem.Reserved while the operation is in shadow, and a handler that commits its writes by itself")
	case o.Watch > WatchNever:
		return o.invalid("Watch is %d: use idem.WatchNotRepeatable, idem.WatchAlways or idem.WatchNever", o.Watch)
	case o.Mode == Atomic && o.Watch != WatchNotRepeatable:
		return o.invalid("Watch has no meaning with idem.Atomic, which takes no claim: leave it out")
	case o.MaxAttempts < 0:
		return o.invalid("MaxAttempts is %d: it cannot be negative", o.MaxAttempts)
	case o.MaxAttempts > 0 && o.Repeat != Repeatable:
		return o.invalid("MaxAttempts has no meaning for an operation that is not repeatable, which never runs again " +
			"after an uncertain attempt: leave it out")
	case o.MaxAttempts > 0 && o.Mode == Atomic:
		return o.invalid("MaxAttempts has no meaning with idem.Atomic, which counts no attempts: leave it out")
	case o.Retention != 0 && o.Retention < time.Second:
		return o.invalid("Retention is %v: use at least one second, or zero for %v", o.Retention, DefaultRetention)
	case o.Retention > maxRetention:
		return o.invalid("Retention is %v: use at most five years", o.Retention)
	case o.MinTime < 0:
		return o.invalid("MinTime is %v: it cannot be negative", o.MinTime)
	case o.MinTime != 0 && o.MinTime < time.Millisecond:
		return o.invalid("MinTime is %v: use at least a millisecond, with its unit, such as 2*time.Second", o.MinTime)
	case o.OnStoreFailure > FailOpen:
		return o.invalid("OnStoreFailure is %d: use idem.FailClosed or idem.FailOpen", o.OnStoreFailure)
	case o.OnStoreFailure == FailOpen && o.Repeat != Repeatable:
		return o.invalid("FailOpen may run the handler twice, and the operation is not repeatable: " +
			"declare it idem.Repeatable, or use FailClosed")
	}
	return nil
}

func (o Operation) invalid(format string, args ...any) error {
	return configError(fmt.Sprintf("operation %q", o.Name), format, args...)
}

func (o Operation) retention() time.Duration {
	if o.Retention == 0 {
		return DefaultRetention
	}
	return o.Retention
}

func (o Operation) minTime() time.Duration {
	if o.MinTime == 0 {
		return DefaultMinTime
	}
	return o.MinTime
}
