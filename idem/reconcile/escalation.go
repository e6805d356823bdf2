package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// DefaultHelp is [Escalation.Help]: what to do about a question.
const DefaultHelp = "Find out from the provider whether it took effect, by the reference or the token: of a step " +
	"that was interrupted by the step's own token, in steps. Look with idemctl explain and the record's id, and " +
	"record the outcome with idemctl resolve or release, or in the console. Until then calls with the key get an " +
	"error, over HTTP 409 outcome_unknown, and nothing runs again, but for a record in_progress: a call takes it " +
	"over and runs its handler once more, but not the interrupted step. A record in state released, or " +
	"in_progress without an interrupted step, needs a call with the same key and input instead, which continues " +
	"the work. A record has no input, so idemctl cannot make that call: have the client send it again, or send " +
	"it from the service's own data. If neither can, and a resolution has " +
	"released it, undo by hand what its steps did and replace that resolution with idemctl resolve --again."

// Escalation is a question that is escalated. It says nothing of the operation's input
// and result.
type Escalation struct {
	// Message is this message's id, a UUID: the same if it has to be sent again.
	Message string `json:"message"`
	// Record is its id, Tenant and Operation its key's.
	Record    string `json:"record"`
	Tenant    string `json:"tenant,omitempty"`
	Operation string `json:"operation"`
	// Value is the caller's, if the operation keeps it.
	Value string `json:"value,omitempty"`
	// State of the record, and its latest Attempt.
	State   idem.State `json:"state"`
	Attempt int        `json:"attempt"`
	// CreatedAt is when the first attempt claimed, Since when the question became open.
	CreatedAt time.Time `json:"created_at"`
	Since     time.Time `json:"since"`
	// Probes is how often the provider was asked, or OnAbandoned called for abandoned work.
	// Reason is why that does not happen again, with the Go type of the last error of Probe or
	// OnAbandoned, or the line at which it panicked: an error's text may be
	// confidential, and is in the log.
	Probes int    `json:"probes"`
	Reason string `json:"reason"`
	// ErrorType and ErrorCode of the latest attempt's error; ErrorMessage only if
	// [SweepOptions.IncludeErrorMessages] allows it.
	ErrorType    string `json:"error_type,omitempty"`
	ErrorCode    string `json:"error_code,omitempty"`
	ErrorMessage string `json:"error_message,omitempty"`
	// Ref is what the provider calls the effect, Token what the handler sent it outside steps.
	Ref   string `json:"ref,omitempty"`
	Token string `json:"token"`
	// Steps are those that were interrupted, in the order of their names: ask the provider about
	// each with its own token.
	Steps []InterruptedStep `json:"steps,omitempty"`
	// Help says how to look at it and how to resolve it: [DefaultHelp].
	Help string `json:"help"`
}

// InterruptedStep is an at-most-once step that began and has no outcome.
type InterruptedStep struct {
	Name string `json:"name"`
	// Token is what the step's function sent the provider.
	Token   string    `json:"token"`
	BegunAt time.Time `json:"begun_at"`
}

// never is when a question that was escalated is due: it stays in the index, and no sweep
// reads it. An answer, or a call that goes on with the work, makes another one of it.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// lock is how long other sweeps leave a record alone while one gives it up.
const lock = time.Minute

// escalate escalates the question. It is sent between two writes: the first one keeps
// other sweeps from sending it too, and the second one records that it was sent. It is
// therefore never lost. It is sent again, with the same id, if Escalate failed or did not
// return in time, and if the second write is missing.
func (s *sweep) escalate(rec *idem.Record, reason string, cause error) (err error) {
	if cause != nil && !strings.Contains(reason, cause.Error()) {
		reason += " (" + typeOf(cause) + ")"
	}
	reason = shortened(reason)
	if s.opts.Escalate != nil && !s.opts.DryRun {
		if s.over(s.asking / 4) {
			s.countLeft()
			return nil
		}
		if rec, err = s.postponeUntil(rec, s.r.now().Add(max(lock, 2*s.asking)), rec.Probes); err != nil {
			return err
		}
		g := s.escalation(rec, reason)
		_, err = bounded(s.ctx, s.room(),
			func(ctx context.Context) (Answer, error) { return Answer{}, s.opts.Escalate(ctx, g) })
		if err != nil {
			return fmt.Errorf("reconcile: Escalate: %w", err)
		}
	}
	now, due := s.r.now(), never
	if rec.State == idem.InProgress {
		due = now.Add(untilLook(0))
	}
	_, err = s.postpone(rec, protocol.Postponement{
		Due: due, Probes: rec.Probes, EscalatedAt: now,
		Audit: s.r.audit(rec, s.by(reason), protocol.ChangeEscalated, rec.State, ""),
	})
	if err != nil {
		return err
	}
	s.did(notice.Escalated, rec, rec.State, reason, cause)
	return nil
}

// typeOf is the type of an error, without what only wraps it in a text. The text of a redacted
// one, such as that of a panic, has types and places alone, and is used instead.
func typeOf(err error) string {
	if text, ok := protocol.RedactedText(err); ok {
		return text
	}
	name := fmt.Sprintf("%T", err)
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(name, "*fmt.") {
		return typeOf(inner)
	}
	return name
}

// untilLook is the pause until the next look at a claim that was escalated a while ago.
// Its attempt may be alive in spite of all: if it renews its lease, which does not move the
// index entry, and dies later, nothing else would notice. The pauses double.
func untilLook(had time.Duration) time.Duration { return max(had, maxBackoff) }

// renewed is the record as if it had never been escalated, if it is a claim whose attempt has
// renewed its lease since: it runs, and what becomes of it is another question.
func renewed(rec *idem.Record) *idem.Record {
	if rec.State != idem.InProgress || rec.EscalatedAt.IsZero() || !rec.LeaseUntil.After(rec.EscalatedAt) {
		return rec
	}
	again := rec.Clone()
	again.Probes, again.EscalatedAt = 0, time.Time{}
	return again
}

func (s *sweep) escalation(rec *idem.Record, reason string) Escalation {
	q := s.r.question(rec)
	g := Escalation{
		Message: outbox.MessageID(rec.ID, q.Since, "idem:escalated"), Record: rec.ID, Tenant: q.Tenant,
		Operation: q.Operation, Value: q.Value,
		State: q.State, Attempt: q.Attempt, CreatedAt: q.CreatedAt, Since: q.Since, Probes: q.Probes, Reason: reason,
		Ref: q.Ref, Token: q.Token, Help: DefaultHelp,
	}
	for _, step := range q.Steps {
		if step.Begun {
			g.Steps = append(g.Steps, InterruptedStep{Name: step.Name, Token: step.Token, BegunAt: step.BegunAt})
		}
	}
	if f := rec.Failure; f != nil {
		g.ErrorType, g.ErrorCode = f.Type, f.Code
		if s.opts.IncludeErrorMessages {
			g.ErrorMessage = f.Message
		}
	}
	return g
}

// SendTo returns the [SweepOptions.Escalate] that sends each question as JSON with a sender
// of package outbox, such as sqssender for a queue. The message's id is [Escalation.Message]: a
// FIFO queue drops a second message with that id for five minutes.
func SendTo(sender outbox.Sender) func(context.Context, Escalation) error {
	return func(ctx context.Context, g Escalation) error {
		body, err := json.Marshal(g)
		if err != nil {
			return err
		}
		return sender.Send(ctx, []outbox.Message{{
			ID: g.Message, Destination: "escalations", Type: "idem.escalated", ContentType: "application/json", Body: body,
		}})[0].Err
	}
}
