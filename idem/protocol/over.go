package protocol

import "time"

// Watch says which claims the sweep of package reconcile finds once their lease is over.
// Of others a killed process is noticed when the key is used again, or never.
type Watch uint8

const (
	// WatchNotRepeatable is the zero value: those of operations that are not repeatable, and
	// any other from its first step of idem.AtMostOnce on.
	WatchNotRepeatable Watch = iota
	// WatchAlways is for work that no caller asks for again, such as a webhook's.
	WatchAlways
	// WatchNever is none, interrupted steps included, for two write units less.
	WatchNever
)

// Watches reports whether a claim of the declaration is watched.
func (w Watch) Watches(r Repeat) bool {
	return w == WatchAlways || w == WatchNotRepeatable && r == NotRepeatable
}

// Claims reports whether the action claims the record.
func (a Action) Claims() bool { return a == DoCreate || a == DoReplace || a == DoTakeOver }

// Over makes the claim that writes rec, a first claim, over the record that was seen, as the action
// says. Observers add the margin to its lease.
func (rec Record) Over(seen *Record, do Action, w Watch, margin time.Duration) Claim {
	c := Claim{Replace: do == DoReplace}
	if seen != nil {
		c.Seen = seen.Write
		rec.Attempt = seen.Attempt + 1
	}
	if do == DoTakeOver {
		rec.Repeat = Stricter(rec.Repeat, seen.Repeat)
		rec.Value, rec.Codec, rec.CreatedAt, rec.Ticket, rec.Steps = seen.Value, seen.Codec, seen.CreatedAt,
			seen.Ticket, seen.Steps
		rec.Sealed = seen.Sealed
		// A lapsed attempt may have taken effect, whatever this one will say.
		rec.Uncertain = seen.Uncertain || seen.State == InProgress
		if rec.Uncertain || len(seen.Steps) > 0 {
			rec.Ref = seen.Ref
		}
		if rec.Uncertain {
			rec.Unsettled = seen.Unsettled
		}
		if seen.State == InProgress {
			rec.Unsettled++
		}
	}
	rec.ExpiresAt, rec.Due = time.Time{}, time.Time{}
	// Observers respect the lease until then.
	lapses := rec.LeaseUntil.Add(margin)
	switch {
	case w.Watches(rec.Repeat):
		rec.Due = lapses
	case (w != WatchNever || rec.Accepted()) && len(rec.Steps) > 0 && !seen.Due.IsZero():
		// Work that is half done stays in the index, at its place: moving it costs a write unit
		// more than that a sweep now and then meets the claim.
		if rec.Due = lapses; seen.Due.Before(lapses) {
			rec.Due = seen.Due
		}
	case rec.Repeat == Repeatable && len(rec.Steps) == 0:
		rec.ExpiresAt = RoundUp(rec.LeaseUntil.Add(rec.Retention), time.Second)
	}
	c.Record = rec
	return c
}

// RoundUp rounds a time up to what a store keeps, so that nothing ends earlier than promised.
func RoundUp(t time.Time, to time.Duration) time.Time {
	if r := t.Truncate(to); r.Before(t) {
		return r.Add(to)
	} else {
		return r
	}
}
