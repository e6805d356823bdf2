package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Change says what a change from outside the attempts was: a word for it, and a sentence.
func Change(a protocol.Audit) (what, text string) {
	what, text = change(a)
	if a.Unconfirmed && a.Change != protocol.ChangeUnreadable {
		text = "unconfirmed, it may not have been made: " + text
	}
	return what, text
}

func change(a protocol.Audit) (what, text string) {
	switch a.Change {
	case protocol.ChangeParked:
		return "Parked", fmt.Sprintf("attempt %d became an open question.", a.Attempt)
	case protocol.ChangeResolved:
		return "Resolved", fmt.Sprintf("from %s to %s, attempt %d.", a.From, a.To, a.Attempt)
	case protocol.ChangeEscalated:
		return "Escalated", "the sweep has escalated the question to operators."
	case protocol.ChangeExtended:
		if a.Until.IsZero() {
			return "Extended", "the record expires later."
		}
		return "Extended", "the record is kept until " + At(a.Until) + "."
	case protocol.ChangeForgotten:
		return "Forgotten", "the record was removed."
	case protocol.ChangeRequeued:
		return "Requeued", a.What + " is sent again."
	case protocol.ChangePaused:
		until := "they are resumed"
		if !a.Until.IsZero() {
			until = At(a.Until)
		}
		return "Paused", callsOf(a) + ", until " + until + "."
	case protocol.ChangeResumed:
		return "Resumed", callsOf(a) + "."
	case protocol.ChangeUnreadable:
		return "Unreadable", strings.TrimSpace("the entry "+a.Entry) + " is damaged, or a newer version has written it."
	}
	return "Changed", fmt.Sprintf("%s, from %s to %s, attempt %d.", a.Change, a.From, a.To, a.Attempt)
}

// callsOf names the calls that a change has paused or resumed.
func callsOf(a protocol.Audit) string {
	tenant, operation, _ := protocol.ParseRecordID(a.ID)
	return Calls(operation, tenant)
}

// Steps are what a resolution has recorded about steps, in the order of their names, with their
// tokens: the record may no longer have them.
func Steps(a protocol.Audit) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(a.Steps)) {
		all = append(all, fmt.Sprintf("Step %s %s. Token: %s", name, a.Steps[name].Text(), protocol.Token(a.ID, name)))
	}
	return all
}

// Resolution says what the record's latest resolution was, who made it, and why. One that is unconfirmed
// may not have been made: then it also says which one was before.
func Resolution(history []protocol.Audit) string {
	text := "an earlier decision, which the history no longer has"
	for _, a := range history {
		if a.Change != protocol.ChangeResolved {
			continue
		}
		_, made := Change(a)
		made = strings.TrimSuffix(made, ".") + ", at " + At(a.At) + " by " + a.Who
		if a.Ref != "" {
			made += ", reference " + a.Ref
		}
		made += ", because: " + a.Why
		for _, step := range Steps(a) {
			made += ". " + strings.TrimSuffix(step, ".")
		}
		if a.Unconfirmed {
			made = text + ". After it, " + made
		}
		text = made
	}
	return text
}

// Why is a reason with what the provider answered.
func Why(reason, answer string) string {
	if answer = strings.TrimSpace(answer); answer == "" || strings.TrimSpace(reason) == "" {
		return reason
	}
	return reason + "; the provider says: " + answer
}
