package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// findings says what is wrong with a world after [World.Play]. Expected is how often each effect stands in
// the world without faults, and once how often it does there when each request has come once.
func (w *World) findings(expected, once map[string]int) (found []string) {
	report := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	for _, check := range checks {
		check(w, expected, once, report)
	}
	if w.chance.crowd {
		for _, check := range crowdChecks {
			check(w, report)
		}
	}
	slices.Sort(found)
	return found
}

// bound is how often an effect may stand.
func (w *World) bound(effect string, once map[string]int) int {
	if n, stated := w.most[effect]; stated {
		return n
	}
	return max(1, once[effect])
}

// counts are of the world's operations. Open questions wait for an answer or a call; those ahead are the ones of them
// that the next call goes on with.
type counts struct{ all, completed, failed, open, ahead int }

// ended reports whether all of them have an outcome.
func (c counts) ended() bool { return c.all > 0 && c.completed+c.failed == c.all }

// records counts the world's operations.
func (w *World) records() (c counts) {
	for _, rec := range w.Store.Records() {
		c.all++
		switch {
		case rec.State == protocol.Completed:
			c.completed++
		case rec.State == protocol.Failed:
			c.failed++
		case rec.State == protocol.Unknown:
			c.open++
		case rec.State == protocol.Released && len(rec.Steps) > 0: // a sweep finds them: they are continued or undone
			if c.open++; !rec.Undoing() { // what cannot be undone a person answers
				c.ahead++
			}
		}
	}
	return c
}

// report gets what is found.
type report func(format string, args ...any)

// checks are the invariants that each run is held to, by their headings in DESIGN.md.
var checks = map[string]func(w *World, expected, once map[string]int, found report){
	"The promise": func(w *World, expected, once map[string]int, found report) {
		most := w.stands()
		for name, e := range w.effects {
			most[name] = max(most[name], e.most)
		}
		for name, n := range most {
			if n > w.bound(name, once) {
				found("%s took place more than once", name)
			}
		}
		w.end(expected, found)
	},
	"A failed operation is undone": func(w *World, _, _ map[string]int, found report) {
		for name, e := range w.effects {
			if e.undone > e.made && e.made > 0 {
				found("%s was undone more than once", name)
			}
		}
	},
	"A replay is the result, byte for byte": func(w *World, _, _ map[string]int, found report) {
		got := w.got()
		for _, a := range w.answers {
			// Others were under way when the caller got it.
			if a.Err == nil && a.Value != got.Value && a.Delivery > got.Delivery {
				found("a caller got a result, and a later one another result%s", a.advice())
			}
		}
	},
	"A lost claim changes nothing": func(w *World, _, _ map[string]int, found report) {
		w.history.changes(func(a, b version) {
			switch {
			case !a.outcome(b.at):
			case b.Record == nil:
				found("an outcome was deleted while it was kept")
			case b.State != a.State || b.Attempt != a.Attempt || !a.Omitted && !bytes.Equal(b.Body.Data, a.Body.Data),
				!reflect.DeepEqual(b.Failure, a.Failure):
				found("an outcome was recorded in place of another one")
			}
		})
	},
}

// crowdChecks are for events that differ in their times, and for operations that are watched by default, and whose
// sweep gets an answer in the end: users' scenarios may be others.
var crowdChecks = map[string]func(w *World, found report){
	"An extension only raises the expiry": func(w *World, found report) {
		w.history.changes(func(a, b version) {
			if a.outcome(b.at) && b.outcome(b.at) && b.ExpiresAt.Before(a.ExpiresAt) {
				found("an outcome is kept for less long than before")
			}
		})
	},
	"Expiry is decided in code": func(w *World, found report) {
		w.history.changes(func(_, b version) {
			if b.Record != nil && !b.ExpiresAt.IsZero() && (b.Open() || b.watched()) {
				found("an open question expires")
			}
		})
	},
	"The index has what is due": func(w *World, found report) {
		w.history.changes(func(_, b version) {
			switch {
			case b.Record == nil:
			case b.State != protocol.InProgress && b.Open() == b.Due.IsZero():
				found("the index has not exactly what is due")
			case b.watched() && b.Due.IsZero():
				found("a claim is not watched")
			}
		})
	},
	"The lease covers the handler": func(w *World, found report) {
		w.history.pairs(func(a, b *run) {
			if b.from.Before(a.until()) && !a.p.froze {
				found("two handlers run at the same time")
			}
		})
	},
	"One declaration": func(w *World, found report) {
		w.history.pairs(func(a, b *run) {
			if min(a.repeat, b.repeat) == idem.NotRepeatable && a.class != idem.ClassNotExecuted && !w.history.answered(a, b) {
				found("an operation that is not repeatable runs again after an uncertain attempt")
			}
		})
	},
	"A claim in doubt is taken back": func(w *World, found report) {
		excused := w.swept != nil || w.history.died ||
			slices.ContainsFunc(w.processes, func(p *process) bool { return p.doubtful(time.Now()) })
		w.history.changes(func(_, b version) {
			excused = excused || b.Record == nil // one that comes after its record was deleted ends as a lapsed one
		})
		uncertain := func(r *run) bool { return !r.recorded() && r.class != idem.ClassNotExecuted }
		for _, rec := range w.Store.Records() {
			if rec.State == protocol.Unknown && len(w.history.runs) > 0 && !excused &&
				!slices.ContainsFunc(w.history.runs, uncertain) {
				found("an operation is unknown, and no run of it was uncertain")
			}
		}
	},
	"An outcome is written before its key is claimed": func(w *World, found report) {
		w.history.pairs(func(a, b *run) {
			if a.p == b.p && a.recorded() && !a.p.doubtful(b.from) && !w.history.answered(a, b) {
				found("a handler runs again in the process that has its outcome")
			}
		})
	},
	"Expiry first, then the fingerprint": func(w *World, found report) {
		for _, r := range w.history.runs {
			if w.history.at(r.id, r.from).outcome(r.from) {
				found("a handler runs under a key whose outcome is kept")
			}
		}
	},
	"A key that the process runs is in flight": func(w *World, found report) {
		for id := range w.history.versions {
			for _, a := range w.answers {
				v := w.history.at(id, a.From)
				flight, ok := errors.AsType[*idem.InFlightError](a.Err)
				if ok && !flight.Lost && len(w.history.versions) == 1 && v.outcome(a.To) {
					found("a call is in flight to its caller after the outcome was recorded")
				}
			}
		}
	},
	"A transaction commits with the outcome": func(w *World, found report) {
		for _, u := range w.Store.Units() {
			if w.history.refused[u] {
				found("a transaction commits, and its caller was answered that it does not")
			}
		}
	},
	"What is due is looked at until it is settled": func(w *World, found report) {
		for _, rec := range w.Store.Records() {
			if w.swept != nil && !rec.Due.IsZero() && (rec.EscalatedAt.IsZero() || !w.history.escalated) {
				found("a question stays open that no operator has: " + string(rec.State))
			}
		}
	},
}

// end says what is wrong with what the last caller got, the first one that got a result, and what stands.
func (w *World) end(expected map[string]int, found report) {
	stands, got := w.stands(), w.got()
	optional := func(name string) bool {
		system, _, _ := strings.Cut(name, ": ")
		return w.systems[system]
	}
	last := w.answers[len(w.answers)-1]
	r := w.records()
	switch {
	case last.Err == nil && r.failed == 0: // a message is acknowledged when its operation has failed
		for name, n := range expected {
			if stands[name] < n && !optional(name) {
				found("the caller got a result, and %s has not taken place%s", name, last.advice())
			}
		}
	case r.ended() && (got == nil || last.Err == nil):
		for name := range stands {
			// Of several operations any may have the effect, and what was accepted has a transaction.
			if !optional(name) && (r.all == 1 || r.failed == r.all) && (w.effects[name] != nil || len(w.workers) == 0) {
				found("the operation failed, and %s stands", name)
			}
		}
	case got != nil && (r.open == 0 || len(w.plan) < 2):
		// With two faults the store does not take the outcome in time, and then the process dies.
		found("a caller got a result, and a later one gets none: %s", last.Kind())
	case r.open == 0:
		found("no outcome is recorded: each call ends with: %s", last)
	case r.open == r.ahead && w.stays && last.Kind() == "error" && got == nil:
		runs := "runs the handler and "
		if slices.ContainsFunc(w.Store.Records(), (*protocol.Record).Accepted) {
			runs = "" // a worker does
		}
		found("no outcome is recorded: each call %sends with: %s", runs, last)
	}
}

// advice says what a scenario returns in place of a response of HTTP.
func (a Answer) advice() string {
	var response struct{ StatusCode *int }
	if json.Unmarshal([]byte(a.Value), &response) != nil || response.StatusCode == nil {
		return ""
	}
	return " (the result is a response of HTTP: let the scenario return its body, and an error if its status is " +
		"no success)"
}

// got is the first answer that is a result, if there is one.
func (w *World) got() *Answer {
	i := slices.IndexFunc(w.answers, func(a Answer) bool { return a.Err == nil })
	if i < 0 {
		return nil
	}
	return &w.answers[i]
}

// watched reports whether a claim is in the index, as that of an operation is that is not repeatable or has an
// at-most-once step.
func (v version) watched() bool {
	return v.State == protocol.InProgress && (v.Repeat == idem.NotRepeatable || v.Interrupted())
}

// changes are those of records, from one version to the next.
func (h *history) changes(do func(before, after version)) {
	for _, all := range h.versions {
		var before version
		for _, v := range all {
			do(before, v)
			before = v
		}
	}
}

// pairs are runs under the same key, in their order.
func (h *history) pairs(do func(a, b *run)) {
	for i, b := range h.runs {
		for _, a := range h.runs[:i] {
			if a.id == b.id {
				do(a, b)
			}
		}
	}
}

// answered reports whether an outcome, or an answer from outside, was recorded after a run and before another one.
func (h *history) answered(a, b *run) bool {
	return slices.ContainsFunc(h.versions[a.id], func(v version) bool {
		return v.at.After(a.from) && v.at.Before(b.from) && v.Record != nil &&
			(v.State == protocol.Completed || v.State == protocol.Failed || v.Resolved)
	})
}
