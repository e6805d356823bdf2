package idemhttp

import "time"

// DefaultTolerance is how far the clocks of clients may be off.
const DefaultTolerance = 5 * time.Minute

// TooOld says how a request tells when it was first sent, and how old it may be.
// A request that is older is answered from its record if there is one; where it
// would be executed it is refused with 412 idempotency_key_too_old, and nothing
// is executed or claimed. That closes the gap which retention leaves: a retry
// that comes when its record is gone.
//
// The time is the key's own if the key is a UUIDv7 (RFC 9562) or a ULID (26
// characters of Crockford's alphabet), or comes in a header. A time that lies in
// the future beyond the tolerance is refused with 400, since nothing is known
// about the age then.
type TooOld struct {
	// Header is the name of a header that says when the request was first sent, the
	// same on every retry: an HTTP date (RFC 9110 5.6.7) or RFC 3339. Empty means
	// the key's own time.
	Header string

	// After is the age beyond which a request is too old. Zero means the operation's
	// retention, which it cannot exceed.
	After time.Duration

	// Tolerance is how far the client's clock may be off; requests are refused that
	// much earlier. Zero means [DefaultTolerance]; it must be less than After.
	Tolerance time.Duration

	// Require refuses, with 400, requests that do not tell their age. Without it they
	// are served as if TooOld were nil.
	Require bool
}
