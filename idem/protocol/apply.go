package protocol

import (
	"slices"
	"time"
)

// The Apply methods are the effect of each write on a record: the reference that
// every store is compared with, and all that an in-memory store needs. A nil
// record does not exist. They return the record that results, which may share
// memory with their arguments, or a *ConflictError with the record as it was.

// Apply returns the record after the claim.
func (c Claim) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec != nil && rec.Write == c.Record.Write {
		return rec, nil
	}
	if !free(rec, c.Seen) {
		return nil, &ConflictError{Existing: rec}
	}
	next := c.Record.Clone()
	if rec == nil {
		next.Seen = ""
		return next, nil
	}
	next.UpdatedAt, next.Seen = now, c.Seen
	if !c.Replace {
		next.ID, next.Value, next.Codec = rec.ID, rec.Value, rec.Codec
		next.Fingerprint, next.CreatedAt, next.Ticket, next.Steps = rec.Fingerprint, rec.CreatedAt, rec.Ticket, rec.Steps
	}
	return next, nil
}

// Apply returns the record after the claim was taken back.
func (w Withdrawal) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec.Bears(w.Write) {
		return rec, nil
	}
	ev := Event{Kind: EventWithdraw, Owner: w.Claim.Record.Owner, Seen: w.Claim.Seen, Uncertain: w.Uncertain}
	if Next(rec, ev, now).Do != DoApply {
		return nil, &ConflictError{Existing: rec}
	}
	next := w.Claim.Record.Clone()
	next.State, next.Owner, next.Write = Released, w.Owner, w.Write
	next.ExpiresAt, next.Uncertain, next.UpdatedAt, next.Seen = w.ExpiresAt, w.Uncertain, now, w.Claim.Seen
	// Nothing of an expired record stays: its steps belong to effects of another life of
	// the key, and a later attempt must not skip its own steps for them.
	if rec != nil && !w.Claim.Replace {
		next.CreatedAt, next.Ticket, next.Steps = rec.CreatedAt, rec.Ticket, rec.Steps
	}
	next.question(now)
	return next, nil
}

// Apply returns the record after the lease was renewed.
func (e Extension) Apply(rec *Record, now time.Time) (*Record, error) {
	d := Next(rec, Event{Kind: EventExtend, Owner: e.Owner, LeaseUntil: e.LeaseUntil}, now)
	switch d.Do {
	case DoNothing:
		return rec, nil
	case DoApply:
		next := *rec
		next.LeaseUntil, next.Write, next.UpdatedAt = e.LeaseUntil, e.Write, now
		if rec.State == InProgress && len(rec.Steps) == 0 && !e.ExpiresAt.IsZero() {
			next.ExpiresAt = e.ExpiresAt
		}
		return &next, nil
	}
	return nil, &ConflictError{Existing: rec}
}

// Apply returns the record after the step was recorded.
func (s StepWrite) Apply(rec *Record, now time.Time) (*Record, error) {
	ev := Event{Kind: EventStep, Owner: s.Owner}
	if s.Begin {
		ev.Kind = EventBegin
	}
	holds := Next(rec, ev, now).Do == DoApply
	// A begin mark is leave to run: it holds only while the attempt does.
	if rec != nil && (holds || !s.Begin) {
		if old, ok := rec.Steps[s.Name]; ok && old.Write == s.Write {
			return rec, nil
		}
	}
	if !holds {
		return nil, &ConflictError{Existing: rec}
	}
	old, ok := rec.Steps[s.Name]
	switch {
	case ok && old.Write == s.Seen && (s.Read && !old.FromResolution || s.Unread && old.Begun):
		return rec, nil
	case (ok || s.Read || s.Unread) && !s.mayReplace(old):
		return nil, &ConflictError{Existing: rec}
	}
	next := rec.Clone()
	if next.Steps == nil {
		next.Steps = map[string]RecordedStep{}
	}
	next.Steps[s.Name] = s.Recorded(old, now)
	if s.Begin && s.Ref != "" {
		next.Ref, next.RefWrite = s.Ref, s.Write
	}
	if (s.Begin || s.Unread) && next.Due.IsZero() {
		next.Due = s.Due
	}
	next.Write, next.UpdatedAt, next.ExpiresAt = s.Write, now, time.Time{}
	return next, nil
}

// Apply returns the record with the reference.
func (r ReferenceWrite) Apply(rec *Record, now time.Time) (*Record, error) {
	switch {
	case Next(rec, Event{Kind: EventReference, Owner: r.Owner}, now).Do != DoApply:
		return nil, &ConflictError{Existing: rec}
	case rec.RefWrite == r.Write:
		return rec, nil
	case rec.RefWrite != r.Seen:
		return nil, &ConflictError{Existing: rec}
	}
	next := rec.Clone()
	next.Ref, next.RefWrite, next.Write, next.UpdatedAt = r.Ref, r.Write, r.Write, now
	return next, nil
}

// Apply returns the record that is due at another time.
func (p Postponement) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec != nil && p.Sweep != "" && rec.Sweep == p.Sweep {
		return rec, nil
	}
	if Next(rec, Event{Kind: EventPostpone, Seen: p.Seen, Sweep: p.SeenSweep}, now).Do != DoApply {
		return nil, &ConflictError{Existing: rec}
	}
	next := rec.Clone()
	next.Due, next.Sweep, next.Probes, next.EscalatedAt = p.Due, p.Sweep, p.Probes, p.EscalatedAt
	return next, nil
}

// Apply returns nil, which is no record.
func (e Erasure) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec == nil {
		return nil, nil
	}
	if Next(rec, Event{Kind: EventForget, Seen: e.Seen}, now).Do != DoApply {
		return nil, &ConflictError{Existing: rec}
	}
	return nil, nil
}

// Apply returns the record that is kept for longer.
func (p Prolongation) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec.Bears(p.Write) {
		return rec, nil
	}
	switch Next(rec, Event{Kind: EventProlong, Seen: p.Seen, ExpiresAt: p.ExpiresAt}, now).Do {
	case DoNothing:
		return rec, nil
	case DoApply:
		next := rec.Clone()
		next.ExpiresAt, next.Write, next.Seen = p.ExpiresAt, p.Write, rec.Write
		return next, nil
	}
	return nil, &ConflictError{Existing: rec}
}

// mayReplace reports whether the write may replace an entry of its step.
func (s StepWrite) mayReplace(old RecordedStep) bool {
	switch {
	case s.Begin:
		return old.NotExecuted && old.Write == s.Seen
	case s.NotExecuted:
		return old.Begun && old.Write == s.Seen
	case s.Read, s.Unread:
		return old.FromResolution && !old.Begun && old.Write == s.Seen
	}
	return !old.Done()
}

// Recorded is the step's entry after the write, over the one before; that is zero if there is none.
func (s StepWrite) Recorded(old RecordedStep, now time.Time) RecordedStep {
	switch {
	case s.Read:
		old.FromResolution = false
		return old
	case s.Unread:
		old.Begun, old.Body, old.Omitted, old.Failure = true, Body{}, false, nil
		return old
	}
	st := RecordedStep{
		Begun: s.Begin, NotExecuted: s.NotExecuted, Failure: s.Failure, Omitted: s.Omitted,
		Compensates: s.Compensates, Write: s.Write,
	}
	if s.Begin {
		st.BegunAt = now.Truncate(time.Millisecond).UTC()
	}
	if st.Done() && s.Failure == nil {
		st.Body = Body{Data: s.Result, Size: len(s.Result), Stored: len(s.Result)}
	}
	return st
}

// Apply returns the record after the attempt ended.
func (f Finish) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec.Bears(f.Write) {
		return rec, nil
	}
	if Next(rec, f.Event(), now).Do != DoApply {
		return nil, &ConflictError{Existing: rec}
	}
	switch how := f.Attempt.(type) {
	case WithoutResult:
		next := rec.Clone()
		next.Write, next.Omitted = f.Write, false
		next.Body = Body{Data: f.Ending.Result, Size: len(f.Ending.Result), Stored: len(f.Ending.Result)}
		return next, nil
	case Atomic:
		made := how.Claim.Record
		made.Seen = how.Claim.Seen
		rec = &made
	}
	next := f.Ending.apply(rec, f.Write, now)
	next.Write, next.Owner = f.Write, f.Owner
	if f.NewOwner != "" {
		next.Owner = f.NewOwner
	}
	return next, nil
}

// Apply returns the record after it was parked or resolved from outside.
func (s Settlement) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec.Bears(s.Write) || s.recorded(rec) {
		return rec, nil
	}
	// A margin that never ends a wait is the engine's to add: stores have no clock.
	ev := Event{Kind: s.Kind, Seen: s.Seen, To: s.Ending.State, Again: s.Again}
	if d := Next(rec, ev, now); d.Do != DoApply && d.Do != DoTooEarly {
		return nil, &ConflictError{Existing: rec}
	}
	next := s.Ending.apply(rec, s.Write, now)
	next.Write, next.Resolved = s.Write, s.Kind == EventResolve
	if s.ClearsRef(rec) {
		next.Ref, next.RefWrite = "", ""
	}
	if s.Owner != "" {
		next.Owner = s.Owner
	}
	for _, name := range s.ClearSteps {
		delete(next.Steps, name)
	}
	if left := s.Left(); len(left) > 0 {
		next.Steps = left
	}
	for _, step := range s.Steps {
		if s.MayResolveStep(rec, step.Name) {
			step.Write, step.Begin, step.NotExecuted, step.Read, step.Unread = s.Write, false, false, false, false
			entry := step.Recorded(RecordedStep{}, now)
			entry.FromResolution, entry.BegunAt = step.MustBeRead(), rec.Steps[step.Name].BegunAt
			next.Steps[step.Name] = entry
		}
	}
	if !next.Open() {
		next.ExpiresAt = s.Ending.ExpiresAt // no step is left to be remembered
	}
	next.question(now)
	return next, nil
}

// ClearsRef reports whether the settlement removes the record's reference: the resolution that it
// replaces has recorded it, and it has none itself. What an attempt has recorded stays.
func (s Settlement) ClearsRef(rec *Record) bool {
	return s.Again && s.Ending.Ref == "" && rec.Resolved && rec.Ref != "" && rec.RefWrite == rec.Owner
}

// Left are the steps that stay in a record that is resolved to Completed.
func (s Settlement) Left() map[string]RecordedStep {
	left := map[string]RecordedStep{}
	for _, step := range s.Steps {
		if s.Ending.State == Completed && step.Omitted && step.Failure != nil {
			left[step.Name] = RecordedStep{Omitted: true, Failure: step.Failure, Compensates: step.Compensates, Write: s.Write}
		}
	}
	return left
}

// MustBeRead reports whether an attempt must be able to go on with what a settlement records of the
// step: with its result, or without the one that its compensation needs.
func (s StepWrite) MustBeRead() bool { return s.Failure == nil || s.Omitted && s.Compensates }

// MayResolveStep reports whether the settlement may record what became of the step.
func (s Settlement) MayResolveStep(rec *Record, step string) bool {
	return s.Ending.State != Completed && s.Ending.State != Failed && !slices.Contains(s.ClearSteps, step) &&
		(rec.Steps[step].Begun || s.Again && rec.StepResolved(step))
}

// recorded reports whether the record has a step that the settlement recorded: it has landed,
// however often the record was claimed since.
func (s Settlement) recorded(rec *Record) bool {
	return rec != nil && slices.ContainsFunc(s.Steps, func(step StepWrite) bool {
		made, ok := rec.Steps[step.Name]
		return ok && made.Write == s.Write
	})
}

// Event is what the end is for the machine.
func (f Finish) Event() Event {
	ev := Event{Kind: EventPark, Owner: f.Owner, Uncertain: f.Ending.Uncertain, To: f.Ending.State}
	switch how := f.Attempt.(type) {
	case WithoutResult:
		ev.Kind, ev.Seen = EventAddResult, how.Write
		return ev
	case Atomic:
		ev.Kind, ev.Seen = EventCommit, how.Claim.Seen
		return ev
	}
	switch f.Ending.State {
	case Completed:
		ev.Kind = EventComplete
	case Failed:
		ev.Kind = EventFail
	case Released:
		ev.Kind = EventRelease
	}
	return ev
}

func (e Ending) apply(rec *Record, write string, now time.Time) *Record {
	next := rec.Clone()
	next.State, next.UpdatedAt, next.ExpiresAt = e.State, now, e.ExpiresAt
	next.Failure, next.Uncertain, next.Resolved = e.Failure, e.Uncertain, false
	next.Omitted, next.ResponseVersion = e.Omitted, e.ResponseVersion
	next.Body = Body{}
	if e.State == Completed {
		next.Body = Body{Data: e.Result, Size: len(e.Result), Stored: len(e.Result)}
	}
	if e.State == Completed || e.State == Failed {
		// No attempt follows, and every later failed condition is billed by the record's
		// size.
		next.Steps = nil
	}
	if e.Stricter {
		next.Repeat = NotRepeatable
	}
	if e.Ref != "" {
		next.Ref, next.RefWrite = e.Ref, write
	}
	if e.Unsettled != 0 {
		next.Unsettled = e.Unsettled
	}
	if rec.State == Unknown && e.State == Unknown && !rec.OpenSince.IsZero() {
		// Parked by another call before: it is the same question, and due as before. Operators
		// who have it do not get it again.
		next.ExpiresAt = time.Time{}
		return next
	}
	next.question(now)
	if e.State == Pending {
		next.Due = e.Due
	}
	return next
}

// question makes of a record a new open question, without expiry and due at once, or none.
// Nothing of an earlier question stays: it was answered, or a handler has run since.
func (r *Record) question(now time.Time) {
	r.Due, r.OpenSince, r.Sweep, r.Probes, r.EscalatedAt = time.Time{}, time.Time{}, "", 0, time.Time{}
	if r.Open() {
		r.ExpiresAt, r.Due, r.OpenSince = time.Time{}, now, now
	}
}
