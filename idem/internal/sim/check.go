package sim

import (
	"fmt"
	"slices"

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
	}
	var got *Answer
	for i, a := range w.answers {
		switch {
		case a.Err != nil:
		case got == nil:
			got = &w.answers[i]
		case a.Value != got.Value && a.Delivery > got.Delivery: // others were under way when the caller got it
			add("a caller got %s, and a later one %s", got, a)
		}
	}
	ended, failed, open := true, false, false
	for _, rec := range w.Store.Records() {
		ended = ended && (rec.State == protocol.Completed || rec.State == protocol.Failed)
		failed = failed || rec.State == protocol.Failed
		open = open || rec.State == protocol.Unknown
	}
	last := w.answers[len(w.answers)-1]
	switch {
	case last.Err == nil && !failed: // a message is acknowledged when its operation has failed
		for name, n := range expected {
			if stands[name] < n {
				add("the caller got %s, and %s has not taken place", last, name)
			}
		}
	case ended:
		if got != nil && last.Err != nil {
			add("a caller got %s, and the last one %s", got, last)
		}
		for name := range stands {
			add("the operation failed, and %s stands", name)
		}
	case open && got != nil && len(w.plan) < 2:
		// With two faults the store does not take the outcome in time, and then the process dies.
		add("a caller got %s, and the last one %s", got, last)
	case !open:
		add("no caller gets an outcome: %s", last)
	}
	slices.Sort(found)
	return found
}
