package protocol

import (
	"fmt"
	"strings"
)

// Lapse parks what an attempt has left, as the machine has said to the event of a later call or a
// sweep, which by names. The record's failure says that, and why. It takes a claim from no attempt, so
// it needs no [Audit] and no transaction.
func Lapse(rec *Record, ev Event, write, by string) Settlement {
	why := fmt.Sprintf("attempt %d left no outcome", rec.Attempt)
	if rec.Failure != nil {
		why = rec.Failure.Message
	}
	if rec.Exhausted(ev) {
		why = LastAttempt(rec.unsettled(), rec.Failure).Message
	}
	f := Failure{}
	if rec.Failure != nil {
		f = *rec.Failure
	}
	f.Message = FailureText("parked by " + by + ": " + why)
	return Settlement{
		ID: rec.ID, Kind: EventLapse, Seen: rec.Write, Write: write,
		Ending: Ending{State: Unknown, Failure: &f, Uncertain: true,
			Stricter: Stricter(rec.Repeat, ev.Repeat) == NotRepeatable},
	}
}

// LastAttempt is the failure of an attempt after which there is no other one: it tells the person who
// resolves the operation why it is parked although it is repeatable. A nil failure is
// that of an attempt without a known error.
func LastAttempt(attempts int, f *Failure) *Failure {
	if f == nil {
		return &Failure{Message: fmt.Sprintf("the last of %d attempts left no outcome", attempts)}
	}
	last := *f
	last.Message = FailureText(fmt.Sprintf("the last of %d attempts: %s", attempts, f.Message))
	return &last
}

// Exhausted reports whether the record has had as many attempts without outcome as the
// event's operation may have, which is repeatable.
func (r *Record) Exhausted(ev Event) bool {
	return Stricter(r.Repeat, ev.Repeat) == Repeatable && ev.MaxAttempts > 0 && r.unsettled() >= ev.MaxAttempts
}

// unsettled counts the attempts that may have taken effect and left no outcome.
func (r *Record) unsettled() int {
	if r.State == InProgress || r.State == Unknown {
		return r.Unsettled + 1 // with the lapsed one, or the one that was parked
	}
	return max(r.Unsettled, 1) // the one that has left an uncertain record, at least
}

// MaxFailureText bounds a recorded error in bytes: a failed condition is
// billed by the record's size.
const MaxFailureText = 2048

// FailureText is the text at a length that a record's failure may have.
func FailureText(text string) string {
	if len(text) <= MaxFailureText {
		return text
	}
	return strings.ToValidUTF8(text[:MaxFailureText], "") + "…"
}

// ShortFailure is what is kept of an error where there is room for no more.
func ShortFailure(f *Failure) *Failure {
	const message, other = 64, 32 // bytes
	cut := func(s string, n int) string {
		if len(s) <= n {
			return s
		}
		return strings.ToValidUTF8(s[:n], "")
	}
	return &Failure{Message: cut(f.Message, message), Type: cut(f.Type, other), Code: cut(f.Code, other)}
}
