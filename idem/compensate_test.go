package idem_test

import (
	"slices"
	"testing"

	"github.com/idem-go/idempotency/idem"
)

const (
	booked = "flight, hotel, car"
	undone = ", undo car, undo hotel, undo flight"
)

// trip books three things that can be undone. The hotel's compensation ends so first.
func trip(undo ...error) []act {
	return []act{{name: "flight", undo: works}, {name: "hotel", undo: append(works, undo...)}, {name: "car", undo: works}}
}

func (e *effects) all(names ...string) (runs []int) {
	for _, n := range names {
		runs = append(runs, e.ran(n))
	}
	return runs
}

var (
	// declines is the failure of what cannot go on.
	declines         = idem.Permanent(declinedError{})
	recordedDeclined = &idem.RecordedError{
		Failure: idem.Failure{Message: "card declined", Type: "declinedError", Code: "card_declined"}}
	tripUndone = []string{"undo flight", "undo hotel", "undo car"}
)

// Compensations run in reverse, of a permanent failure alone. Once undoing has begun its cause is the outcome: a later
// attempt finishes undoing, each compensation that is recorded stays done, and fails with it, whatever its handler
// returns, unless that undoes by hand and answers in its own words. An attempt that ends before it has come by all
// that must be undone leaves that to the next one, and what cannot be undone is parked.
func TestWhatIsBeingUndoneFails(t *testing.T) {
	cutShort := tried{acts: trip(errPlain), end: declines, want: []any{declinedError{}, errPlain,
		`compensation of step "hotel"`}, log: booked + ", undo car, undo hotel", state: idem.Released}
	forward := append(trip(errPlain), act{name: "new", hidden: true}) // which runs no more
	excluded := idem.NotExecuted(errPlain)
	pay := []act{{name: "plain"}, {name: "pay", undo: works, errs: []error{declines}}}
	playAll(t,
		scenario{name: "a step fails", op: safe, attempts: []tried{
			{acts: slices.Concat(trip(), pay), own: true, want: declinedError{}, log: booked + ", plain, pay" + undone,
				state: idem.Failed},
			{want: recordedDeclined, state: idem.Failed},
		}},
		scenario{name: "plain error", op: safe, attempts: []tried{
			{acts: trip(), end: errPlain, want: errPlain, log: booked, state: idem.Released},
			{acts: trip(), state: idem.Completed},
		}},
		scenario{name: "not executed", op: safe, attempts: []tried{
			{acts: trip(), end: excluded, want: errPlain, log: booked, state: idem.Released},
		}},
		scenario{name: "a compensation fails for good", op: safe, attempts: []tried{
			{acts: trip(idem.Permanent(errPlain)), end: declines, want: errPlain, log: booked + ", undo car, undo hotel",
				state: idem.Unknown},
		}},
		scenario{name: "undone by hand in a later attempt", op: safe, attempts: []tried{cutShort,
			{acts: trip(errPlain), abort: errPlain, log: "undo hotel, undo flight", state: idem.Completed},
		}},
	)
	for name, end := range map[string]error{"success": nil, "plain": errPlain, "not executed": excluded,
		"another failure": idem.Permanent(errPlain)} {
		then := tried{acts: forward, end: end, want: recordedDeclined, log: "undo hotel, undo flight", state: idem.Failed}
		replay := tried{want: recordedDeclined, state: idem.Failed}
		scenario{name: "then " + name, op: safe, attempts: []tried{cutShort, then, replay}}.play(t)
	}
	for end, state := range map[error]idem.State{errPlain: idem.Released, excluded: idem.Released, declines: idem.Unknown} {
		scenario{name: "then too early " + string(state), op: safe, attempts: []tried{cutShort,
			{end: end, want: idem.Unmark(end), state: state},
		}}.play(t)
	}
}

// An attempt that does not come by a step cannot undo it, and must not pretend so.
func TestWhatAnAttemptDoesNotComeByParks(t *testing.T) {
	for name, then := range map[string]tried{"a failure": {end: declines}, "an abort": {abort: declinedError{}}} {
		then.want, then.state = "cannot be undone", idem.Unknown
		scenario{name: name, op: safe, attempts: []tried{
			{acts: trip(), end: errPlain, want: errPlain, log: booked, state: idem.Released}, then,
		}}.play(t)
	}
}
