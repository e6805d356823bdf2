package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// findings says what is wrong with a world after [World.Play]. Expected is how often each effect stands in
// the world without faults.
func (w *World) findings(expected map[string]int) (found []string) {
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	stands := w.stands()
	for name, n := range stands {
		if n > max(1, expected[name]) {
			add("%s took place more than once", name)
		}
	}
	for name, e := range w.effects {
		if e.most > max(1, expected[name]) {
			add("%s took place more than once", name)
		}
		if e.undone > e.made && e.made > 0 {
			add("%s was undone more than once", name)
		}
	}
	if w.replaced {
		add("an outcome was recorded in place of another one")
	}
	optional := func(name string) bool {
		system, _, _ := strings.Cut(name, ": ")
		return w.systems[system]
	}
	var got *Answer
	for i, a := range w.answers {
		switch {
		case a.Err != nil:
		case got == nil:
			got = &w.answers[i]
		case a.Value != got.Value && a.Delivery > got.Delivery: // others were under way when the caller got it
			add("a caller got a result, and a later one another result")
		}
	}
	last := w.answers[len(w.answers)-1]
	r := w.records()
	switch {
	case last.Err == nil && r.failed == 0: // a message is acknowledged when its operation has failed
		for name, n := range expected {
			if stands[name] < n && !optional(name) {
				add("the caller got a result, and %s has not taken place", name)
			}
		}
	case r.ended() && (got == nil || last.Err == nil):
		for name := range stands {
			// Of several operations any may have the effect, and what was accepted has a transaction.
			if !optional(name) && (r.all == 1 || r.failed == r.all) && (w.effects[name] != nil || len(w.workers) == 0) {
				add("the operation failed, and %s stands", name)
			}
		}
	case got != nil && (r.open == 0 || len(w.plan) < 2):
		// With two faults the store does not take the outcome in time, and then the process dies.
		add("a caller got a result, and a later one gets none: %s", last.Kind())
	case r.open == 0:
		add("no outcome is recorded: each call ends with: %s", last)
	}
	slices.Sort(found)
	return found
}

// counts are of the world's operations.
type counts struct{ all, completed, failed, open int }

// ended reports whether all of them have an outcome.
func (c counts) ended() bool { return c.all > 0 && c.completed+c.failed == c.all }

// records counts the world's operations, and notes which of them had another outcome before.
func (w *World) records() (c counts) {
	for _, rec := range w.Store.Records() {
		c.all++
		switch {
		case rec.State == protocol.Completed:
			c.completed++
		case rec.State == protocol.Failed:
			c.failed++
		case rec.State == protocol.Unknown,
			rec.State == protocol.Released && len(rec.Steps) > 0: // a sweep finds them: they are continued or undone
			c.open++
		}
		first := w.ended[rec.ID]
		switch {
		case first == nil && (rec.State == protocol.Completed || rec.State == protocol.Failed):
			w.ended[rec.ID] = rec
		case first != nil && (rec.State != first.State || rec.Attempt != first.Attempt):
			w.replaced = true
		}
	}
	return c
}
