package protocol

import "time"

// EventKind is what happens to a record.
type EventKind uint8

const (
	// EventClaim: a call wants to run. Uses Fingerprint, Repeat and Margin.
	EventClaim EventKind = iota
	// EventWork: the worker wants to run what was accepted for later. Like EventClaim, but
	// it gets the claim of nothing else.
	EventWork
	// EventExtend: the holder renews its lease, parked or not. Uses Owner and LeaseUntil.
	EventExtend
	// EventBegin: the holder begins an at-most-once step. Uses Owner.
	EventBegin
	// EventStep: the holder records how a step ended, or whether it could read what a resolution
	// has said of it. Uses Owner.
	EventStep
	// EventComplete: the holder records its outcome. Uses Owner.
	EventComplete
	// EventFail: the holder records a terminal failure. Uses Owner.
	EventFail
	// EventRelease: the holder ends without outcome, safe to run again. Uses Owner
	// and Uncertain.
	EventRelease
	// EventPark: the holder ends, and the outcome is not known. Uses Owner.
	EventPark
	// EventLapse: another call or a sweep parks a claim that ended or lapsed without outcome.
	// Uses Seen.
	EventLapse
	// EventResolve: a resolver or an operator resolves an unknown, a lapsed claim that
	// would be parked, or what waits for a worker. Uses Seen, To and Margin.
	EventResolve
	// EventWithdraw: the claimer takes back a claim whose reply never came. Uses
	// Owner, Seen and Uncertain.
	EventWithdraw
	// EventCommit: an attempt in atomic mode, which took no claim, records how it
	// ended, or a call that its operation is accepted for later. Uses Seen and To.
	EventCommit
	// EventAddResult: the attempt whose completion was recorded without its result, in
	// the write Seen, adds the result. Uses Owner and Seen.
	EventAddResult
	// EventReference: the holder records what the provider calls the effect. Uses Owner.
	EventReference
	// EventPostpone: a sweep says when it looks at the record next. Uses Seen and Sweep.
	EventPostpone
	// EventForget: an operator removes a record that is no open question. Uses Seen.
	EventForget
	// EventProlong: an operator keeps a record that has ended for longer. Uses Seen and
	// ExpiresAt.
	EventProlong
)

// Event is one thing that happens to a record, with what its cell needs to know.
type Event struct {
	// Kind says which fields count.
	Kind EventKind
	// Owner is the token of the attempt that speaks. Seen is the write, and Sweep the latest
	// postponement, that the speaker has read.
	Owner, Seen, Sweep string
	// Fingerprint of the call's input, and Repeat, its declaration.
	Fingerprint Fingerprint
	Repeat      Repeat
	// LeaseUntil is the lease, ExpiresAt the expiry asked for.
	LeaseUntil, ExpiresAt time.Time
	// Uncertain says that the ended attempt may have taken effect.
	Uncertain bool
	// To is the state that a resolution, or an outcome in atomic mode, leads to. Again says that
	// the resolution may replace an earlier one.
	To    State
	Again bool
	// Atomic says that the caller takes no claim, and cannot skip steps that are recorded.
	Atomic bool
	// Ticket of the accepted work whose input the worker has read; empty for any.
	Ticket string
	// MaxAttempts bounds the attempts that leave a record Unsettled; zero for no bound.
	MaxAttempts int
	// Margin is the observer's allowance for clock skew.
	Margin time.Duration
}

// Action is what the machine says to do about an event.
type Action uint8

const (
	// DoRefuse: the event changes nothing; its speaker has lost the claim, or the
	// record is not where the speaker takes it to be.
	DoRefuse Action = iota
	// DoApply: write the change; the record goes to Decision.To.
	DoApply
	// DoNothing: what the event wants already holds.
	DoNothing
	// DoCreate: claim by creating the record.
	DoCreate
	// DoReplace: claim by replacing the whole expired record.
	DoReplace
	// DoTakeOver: claim, keeping the record's identity and steps.
	DoTakeOver
	// DoPark: write EventLapse first, then answer "outcome unknown".
	DoPark
	// DoReplay: answer with the recorded outcome or failure.
	DoReplay
	// DoAccepted: answer that the work is accepted for later.
	DoAccepted
	// DoInFlight: answer that another attempt runs, and when to try again.
	DoInFlight
	// DoUnknown: answer that the outcome is not known.
	DoUnknown
	// DoReused: answer that the key was used with another input.
	DoReused
	// DoUnreadable: fail closed.
	DoUnreadable
	// DoTooEarly: a resolution of a claim, and one to released, must wait for the end of
	// the lease.
	DoTooEarly
)

// Decision is the machine's answer: what to do, and the state that it leads to
// (the state as it is if nothing changes).
type Decision struct {
	Do Action
	To State
}

// Next is the state machine: what an event means for a record at an instant. A
// nil record is one that does not exist. It is pure; the package documentation
// has its picture. What it allows by Owner and Seen is what the stores enforce
// as conditions of their writes.
func Next(rec *Record, ev Event, now time.Time) Decision {
	switch ev.Kind {
	case EventClaim, EventWork:
		return nextClaim(rec, ev, now)
	case EventLapse, EventResolve, EventPostpone, EventForget, EventProlong:
		return nextSettle(rec, ev, now)
	case EventWithdraw:
		// As in EventRelease, a question that a stricter call has opened stays open.
		reopens := rec != nil && rec.State == Unknown && ev.Uncertain
		if free(rec, ev.Seen) || rec.HeldBy(ev.Owner) && !reopens {
			return Decision{DoApply, Released}
		}
		return refuse(rec)
	case EventCommit:
		if free(rec, ev.Seen) && (ev.To == Completed || ev.To == Failed || ev.To == Pending) {
			return Decision{DoApply, ev.To}
		}
		return refuse(rec)
	}
	return nextOwner(rec, ev)
}

func nextClaim(rec *Record, ev Event, now time.Time) Decision {
	d := claimed(rec, ev, now)
	if d.Do == DoTakeOver && ev.Atomic && rec.Progressed() {
		return Decision{DoPark, Unknown} // left by the reserved mode
	}
	return d
}

func claimed(rec *Record, ev Event, now time.Time) Decision {
	work := ev.Kind == EventWork
	absent := rec == nil || rec.Expired(now.Add(-ev.Margin))
	switch {
	case absent && work:
		return refuse(rec)
	case rec == nil:
		return Decision{DoCreate, InProgress}
	case absent:
		return Decision{DoReplace, InProgress}
	case work && ev.Ticket != "" && rec.Ticket != ev.Ticket:
		return Decision{DoInFlight, rec.State} // accepted again since the worker has read the input
	}
	switch ev.Fingerprint.Compare(rec.Fingerprint) {
	case MatchSame:
	case MatchDifferent:
		if rec.Unexecuted() {
			return Decision{DoReplace, InProgress}
		}
		return Decision{DoReused, rec.State}
	default:
		return Decision{DoUnreadable, rec.State}
	}
	// An interrupted step parks an operation that is not repeatable. A repeatable one
	// is taken over, the step is not: its handler may know how to close it.
	repeatable := Stricter(rec.Repeat, ev.Repeat) == Repeatable
	if rec.Exhausted(ev) {
		repeatable = false // every attempt fails
	}
	switch accepted := rec.Accepted(); rec.State {
	case Pending, InProgress, Released:
		switch {
		case work && !accepted:
			return refuse(rec)
		case !work && (accepted || rec.State == Pending):
			return Decision{DoAccepted, rec.State}
		}
	}
	switch rec.State {
	case Pending:
		// Accepted over an attempt that may have taken effect, it is no safer than that.
		if repeatable || !rec.Uncertain {
			return Decision{DoTakeOver, InProgress}
		}
		return Decision{DoPark, Unknown}
	case InProgress:
		if !rec.Lapsed(now, ev.Margin) {
			return Decision{DoInFlight, InProgress}
		}
		if repeatable {
			return Decision{DoTakeOver, InProgress}
		}
		return Decision{DoPark, Unknown}
	case Completed, Failed:
		return Decision{DoReplay, rec.State}
	case Released:
		if repeatable || !rec.Uncertain && !rec.Interrupted() {
			return Decision{DoTakeOver, InProgress}
		}
		return Decision{DoPark, Unknown}
	case Unknown:
		return Decision{DoUnknown, Unknown}
	}
	return Decision{DoUnreadable, rec.State}
}

func nextSettle(rec *Record, ev Event, now time.Time) Decision {
	if rec == nil || rec.Write != ev.Seen {
		return refuse(rec)
	}
	switch ev.Kind {
	case EventLapse:
		if rec.State == InProgress || rec.State == Released || rec.State == Pending {
			return Decision{DoApply, Unknown}
		}
		return refuse(rec)
	case EventPostpone:
		if !rec.Due.IsZero() && rec.Sweep == ev.Sweep {
			return Decision{DoApply, rec.State}
		}
		return refuse(rec)
	case EventForget:
		if rec.Ended() {
			return Decision{DoApply, Absent}
		}
		return refuse(rec)
	case EventProlong:
		// What has expired counts as absent, and a call may be about to replace it.
		switch {
		case !rec.Ended() || rec.Expired(now):
			return refuse(rec)
		case rec.ExpiresAt.IsZero() || !rec.ExpiresAt.Before(ev.ExpiresAt):
			return Decision{DoNothing, rec.State}
		}
		return Decision{DoApply, rec.State}
	}
	waits := (rec.State == Pending || rec.State == Released && rec.Accepted()) && ev.To != Released
	switch {
	case rec.State != Unknown && rec.State != InProgress && !waits && !(ev.Again && rec.Resolved):
		return refuse(rec)
	case (ev.To == Released || rec.State == InProgress) && !rec.Lapsed(now, ev.Margin):
		// The attempt may still be running under the lease it was given.
		return Decision{DoTooEarly, rec.State}
	}
	return Decision{DoApply, ev.To}
}

// ends are the states in which an attempt that holds its record can end it.
var ends = map[EventKind]State{EventComplete: Completed, EventFail: Failed, EventPark: Unknown}

func nextOwner(rec *Record, ev Event) Decision {
	if rec == nil || ev.Owner == "" || rec.Owner != ev.Owner {
		return refuse(rec)
	}
	held, running := rec.HeldBy(ev.Owner), rec.State == InProgress
	switch ev.Kind {
	case EventExtend:
		// A parked attempt that still runs says so: who asks whether the operation may run
		// again uses its lease.
		switch {
		case !held:
		case rec.LeaseUntil.Before(ev.LeaseUntil):
			return Decision{DoApply, rec.State}
		default:
			return Decision{DoNothing, rec.State}
		}
	case EventBegin:
		if running {
			return Decision{DoApply, InProgress}
		}
	case EventStep, EventReference:
		// A parked attempt may record what it has done, which the resolver needs to
		// know. It may begin nothing new.
		if held {
			return Decision{DoApply, rec.State}
		}
	case EventComplete, EventFail, EventPark:
		if held {
			return Decision{DoApply, ends[ev.Kind]}
		}
	case EventRelease:
		// Parked by a stricter call, an attempt that may have taken effect must not
		// make itself repeatable again.
		if running || rec.State == Unknown && !ev.Uncertain {
			return Decision{DoApply, Released}
		}
	case EventAddResult:
		if rec.State == Completed && rec.Omitted && ev.Seen != "" && rec.Write == ev.Seen {
			return Decision{DoApply, Completed}
		}
	}
	return refuse(rec)
}

// HeldBy reports whether the owner's attempt may still end the record: it is
// in progress, or parked, and neither run nor resolved since.
func (r *Record) HeldBy(owner string) bool {
	return r != nil && owner != "" && r.Owner == owner && (r.State == InProgress || r.State == Unknown)
}

// free reports whether the record is as a claim has seen it: none if it saw none, else
// the one with that write. If the record that a claim has seen no longer exists, the claim
// does not create it again: what it has read belongs to a life of the key that is over.
func free(rec *Record, seen string) bool {
	if rec == nil || seen == "" {
		return rec == nil && seen == ""
	}
	return rec.Write == seen
}

func refuse(rec *Record) Decision {
	if rec == nil {
		return Decision{DoRefuse, Absent}
	}
	return Decision{DoRefuse, rec.State}
}
