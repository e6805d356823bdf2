package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Explanation says what a record means: to the next call with its key, in time, and to
// those who decide about it. All of it comes from the machine ([protocol.Next]) and the
// effects of its writes.
type Explanation struct {
	// State of the record, [idem.Absent] if there is none.
	State idem.State `json:"state"`
	// Summary says in a sentence or two where the record stands, and why.
	Summary string `json:"summary"`
	// SameInput is what a call gets that has the key and the record's input, OtherInput what
	// one gets with another input.
	SameInput  string `json:"same_input"`
	OtherInput string `json:"other_input"`
	// Changes are what time does, the earliest first.
	Changes []TimedChange `json:"changes,omitempty"`
	// Decisions are what an operator may decide.
	Decisions []Decision `json:"decisions"`
}

// TimedChange is what happens to a record at a time if nothing is done before.
type TimedChange struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Explain says what the record means now. It makes no call. A nil record is one that does not
// exist. Calls to come are taken to have the record's declaration, and no
// [idem.Operation.MaxAttempts].
func (r *Reconciler) Explain(rec *idem.Record) Explanation {
	now := r.now()
	e := Explanation{
		Summary: r.summary(rec, now), SameInput: r.gets(rec, sameInput, now), OtherInput: r.gets(rec, otherInput, now),
		Changes: r.changes(rec, now),
	}
	if rec != nil {
		e.State = rec.State
	}
	for _, to := range []idem.State{idem.Completed, idem.Failed, idem.Released} {
		d := r.resolving(rec, plainly(rec, to), now)
		if len(d.Steps) > 0 && d.Refused == "" {
			d.Then += " That is if each is recorded as not executed: a step that is recorded as done or failed is skipped."
		}
		e.Decisions = append(e.Decisions, d)
	}
	e.Decisions = append(e.Decisions, r.extending(rec, now), r.forgetting(rec, now))
	return e
}

// summary says where the record stands.
func (r *Reconciler) summary(rec *idem.Record, now time.Time) string {
	if rec == nil {
		return "There is no record with this id. Either no call has used the key, or its record has expired or was " +
			"removed, or the key is another one: its tenant, operation or value may have another form. It is no proof that " +
			"nothing was executed, nor that a new key may be sent: look for it in the list, and ask the provider."
	}
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format, args...) }
	switch expired := rec.Expired(now.Add(-r.opts.Margin)); {
	case expired:
		say("It was %s, and has expired at %s: it counts as absent.", rec.State, at(rec.ExpiresAt))
	case rec.State == idem.InProgress && rec.Lapsed(now, r.opts.Margin):
		say("Attempt %d left no outcome: its lease was over at %s. Its process has died, or can no longer write.",
			rec.Attempt, at(rec.LeaseUntil))
	case rec.State == idem.InProgress:
		say("Attempt %d runs, under a lease until %s.", rec.Attempt, at(rec.LeaseUntil))
	case rec.State == idem.Completed && rec.Omitted:
		say("It took effect, and its result could not be kept.")
	case rec.State == idem.Completed:
		say("It took effect, and its result is recorded.")
	case rec.State == idem.Failed:
		say("It has failed for good.")
	case rec.State == idem.Released && len(rec.Steps) > 0:
		say("Attempt %d ended without outcome, and steps of it are recorded: the next call continues.", rec.Attempt)
	case rec.State == idem.Released:
		say("Attempt %d ended without outcome: the next call runs it again.", rec.Attempt)
	case rec.State == idem.Unknown:
		say("Attempt %d may have taken effect, and its outcome is unknown: find out from the provider, and resolve it.",
			rec.Attempt)
		if !rec.Lapsed(now, r.opts.Margin) {
			say(" It may still be running, until %s.", at(rec.LeaseUntil))
		}
	case rec.State == idem.Pending:
		say("It is accepted for later, and waits for its worker.")
	default:
		say("Its state is of a newer version.")
	}
	if rec.Undoing() && len(notUndone(rec)) > 0 {
		say(" It has failed, and what its steps did is being undone.")
	} else if rec.Undoing() {
		say(" It has failed, and what its steps did has been undone.")
	}
	for _, name := range unread(rec) {
		say(" The handler cannot go on with what was recorded of step %s: record its result again, as its function "+
			"returns it.", name)
	}
	if rec.Resolved {
		say(" The outcome was resolved from outside its attempts.")
	}
	if !rec.EscalatedAt.IsZero() {
		say(" The sweep has escalated it at %s.", at(rec.EscalatedAt))
	} else if rec.Probes > 0 && rec.Open() {
		say(" The sweep has asked about it %d times.", rec.Probes)
	}
	return text.String()
}

// otherInput is the fingerprint of an input that no record has.
var otherInput = protocol.FingerprintOf(protocol.FingerprintVersion, [32]byte{1})

// gets says what a call gets that has the record's input, or another one.
func (r *Reconciler) gets(rec *idem.Record, input protocol.Fingerprint, now time.Time) string {
	ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: input, Margin: r.opts.Margin}
	if rec != nil {
		compared := *rec
		compared.Fingerprint = sameInput
		ev.Repeat = rec.Repeat
		switch do := protocol.Next(&compared, ev, now).Do; do {
		case protocol.DoReplace:
			why := "nothing was executed under the key, so it belongs to no input yet"
			if rec.Expired(now.Add(-r.opts.Margin)) {
				why = "the record has expired"
			}
			return fmt.Sprintf("The handler runs, attempt %d: %s.", rec.Attempt+1, why)
		case protocol.DoTakeOver:
			return fmt.Sprintf("The handler runs, attempt %d%s.", rec.Attempt+1, skipped(rec))
		case protocol.DoReplay:
			answer := replayed
			if rec.State == idem.Failed {
				answer = failedBefore
			} else if rec.Omitted {
				answer = unavailable
			}
			return answer.to(rec)
		default:
			if answer, ok := refused[do]; ok {
				return answer.to(rec)
			}
		}
	}
	return "The handler runs, attempt 1."
}

// httpCodec is the codec of what was asked for over HTTP.
const httpCodec = "http"

// reply is a text about calls: those over HTTP, and others.
type reply struct{ http, other string }

func (a reply) to(rec *idem.Record) string { return a.of(rec) + " The handler does not run." }

func (a reply) of(rec *idem.Record) string {
	if rec.Codec == httpCodec {
		return a.http
	}
	return a.other
}

var (
	replayed     = reply{"The recorded result.", "The recorded result. A message is acknowledged."}
	failedBefore = reply{"HTTP 500 operation_failed, without the recorded reason.",
		"The recorded failure. A message is acknowledged."}
	unavailable = reply{"HTTP 409 outcome_unavailable: it took effect, and its result is not recorded.",
		"An error: it took effect, and its result is not recorded. A message is acknowledged."}
)

// refused are the answers of calls that get no outcome.
var refused = map[protocol.Action]reply{
	protocol.DoPark: {"HTTP 409 outcome_unknown, and the record becomes unknown: " +
		"an attempt left no outcome and may have taken effect.",
		"An error: the outcome is unknown. A message is delivered again. The record becomes unknown: " +
			"an attempt left no outcome and may have taken effect."},
	protocol.DoUnknown: {"HTTP 409 outcome_unknown.",
		"An error: the outcome is unknown. A message is delivered again."},
	protocol.DoAccepted: {"No outcome yet: the work is accepted for later.",
		"No outcome yet: the work is accepted for later. A message is delivered again."},
	protocol.DoInFlight: {"HTTP 409 idempotency_key_in_progress with Retry-After.",
		"An error: another attempt runs. A message is delivered again."},
	protocol.DoReused: {"HTTP 422 idempotency_key_reused.",
		"An error: the key was used with another input. A message is delivered again."},
	protocol.DoUnreadable: {"HTTP 503 idempotency_record_unreadable: a newer version wrote the record.",
		"An error: a newer version wrote the record. A message is delivered again."},
}

// skipped says what the next attempt gets of the steps that are recorded.
func skipped(rec *idem.Record) string {
	if rec.Undoing() {
		return ", and goes on undoing what its steps did"
	}
	var done, failed, lost, needed, asked []string
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		switch step := rec.Steps[name]; {
		case !step.Done():
		case step.Omitted && step.FromResolution:
			asked = append(asked, name)
		case step.Omitted:
			lost = append(lost, name)
			if rec.Steps[name].Compensates {
				needed = append(needed, name)
			}
		case step.Failure != nil:
			failed = append(failed, name)
		default:
			done = append(done, name)
		}
	}
	var text strings.Builder
	say := func(what string, steps []string) {
		if len(steps) > 0 {
			text.WriteString(what + strings.Join(steps, ", "))
		}
	}
	say(", and skips the steps that are recorded: ", done)
	say(", and gets the recorded failure of: ", failed)
	say(", and is asked about the interrupted steps: ", interrupted(rec))
	say(", and gets an error for the steps that took effect with a result that is not known: ", lost)
	say(". Unless these return nothing, the operation is parked again as soon as it comes to them, since compensations "+
		"need their results, which are to be said then: ", asked)
	const fails = ". Unless these return nothing, most handlers then fail the operation for good"
	switch {
	case len(needed) > 0:
		say(fails+", and nothing is undone, since compensations need the results of ", needed)
		text.WriteString(": the operation is parked again, takes no result of a step any more, and an operator must undo " +
			"by hand what all steps did and resolve it to failed, or finish it by hand and resolve it to completed")
	case len(lost) > 0:
		text.WriteString(fails + ": what other steps did is undone, and what these did is not")
	}
	return text.String()
}

// interrupted lists the steps that began and left no outcome.
func interrupted(rec *idem.Record) []string {
	return stepsOf(rec, func(_ string, s protocol.RecordedStep) bool { return s.Begun })
}

// unread lists those of them whose result a resolution has recorded and no attempt could read.
func unread(rec *idem.Record) []string {
	return stepsOf(rec, func(_ string, s protocol.RecordedStep) bool { return s.Begun && s.FromResolution })
}

// changes says what time does to the record.
func (r *Reconciler) changes(rec *idem.Record, now time.Time) (all []TimedChange) {
	if rec == nil {
		return nil
	}
	add := func(at time.Time, format string, args ...any) {
		if at.After(now) {
			all = append(all, TimedChange{At: at, What: fmt.Sprintf(format, args...)})
		}
	}
	lapsed := rec.LeaseUntil.Add(r.opts.Margin)
	switch rec.State {
	case idem.InProgress:
		add(lapsed, "The lease and its margin are over, unless the attempt ends or renews it. Then a call gets: %s",
			r.gets(rec, sameInput, lapsed.Add(time.Millisecond)))
	case idem.Unknown:
		add(lapsed, "The lease of the parked attempt and its margin are over: from then on it can be resolved to released.")
	}
	switch {
	case !rec.EscalatedAt.IsZero() && !rec.Due.Before(never):
	case rec.Open():
		add(rec.Due, "A sweep looks at it: it asks the provider, or escalates it.")
	case !rec.Due.IsZero():
		add(rec.Due, "A sweep looks at it, if there is no outcome yet.")
	}
	if !rec.ExpiresAt.IsZero() {
		expired := rec.ExpiresAt.Add(r.opts.Margin)
		add(expired, "The record has expired, and is deleted in the days after. Then a call gets: %s",
			r.gets(rec, sameInput, expired.Add(time.Millisecond)))
	}
	slices.SortStableFunc(all, func(a, b TimedChange) int { return a.At.Compare(b.At) })
	return all
}
