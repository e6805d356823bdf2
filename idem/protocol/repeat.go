package protocol

// Repeat is what an operation says about itself: may its handler run again
// after an attempt whose outcome is not known? Everything that happens after an
// error, a panic, a lapsed lease or a killed process follows from it.
type Repeat uint8

const (
	// NotRepeatable is the zero value: running again after an uncertain attempt
	// could do harm. Such an attempt is parked as [Unknown] and stays there until
	// it is resolved.
	//
	// Over HTTP the statuses 401, 403, 425 and 429 release it all the same while the
	// attempt has shown no sign of an effect, see idem.ClassRejected. An effect that does
	// not carry the token and is in no step shows none: a handler that may pass on
	// another service's 429 after such an effect answers with another status.
	NotRepeatable Repeat = iota
	// Repeatable says that every effect of the handler carries the token, is
	// naturally idempotent, or commits together with the record. An uncertain
	// attempt may be followed by another one.
	Repeatable
)

// String returns the name under which the declaration is stored.
func (r Repeat) String() string {
	if r == Repeatable {
		return "repeatable"
	}
	return "not_repeatable"
}

// Stricter is what holds when a deployed declaration differs from the stored one.
func Stricter(a, b Repeat) Repeat {
	if a == Repeatable && b == Repeatable {
		return Repeatable
	}
	return NotRepeatable
}
