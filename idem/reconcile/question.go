package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Question is an operation without an outcome, with what its record says. It does not have
// the operation's input, which no record keeps.
type Question struct {
	// ID of the record, Tenant and Operation of its key. Tenant is empty for a service
	// without tenants.
	ID, Tenant, Operation string
	// Value is the caller's value, if the operation keeps it ([idem.KeepValues]).
	Value string
	// Token is what the handler sent downstream ([idem.Token]) outside its steps. Each step sends
	// one of its own: ask about an interrupted one with [Step.Token]. A step that is not
	// [idem.AtMostOnce] is recorded once it has an outcome: if the process may have died in it, ask
	// with [protocol.Token] of ID and its name.
	Token string
	// Ref is what the provider calls the effect, if the record says so.
	Ref string
	// State of the record: Unknown, or InProgress or Released if the work was abandoned.
	State idem.State
	// Attempt is the number of the latest attempt.
	Attempt int
	// Steps that are recorded, in the order of their names: a record does not know in which they
	// ran.
	Steps []Step
	// CreatedAt is when the first attempt claimed, LeaseUntil the end of the latest one's
	// lease, and Since when the question became open.
	CreatedAt, LeaseUntil, Since time.Time
	// Probes is how often the provider was asked, or OnAbandoned called, this time included.
	Probes int
	// Failure is the latest attempt's error, nil if there is none.
	Failure *idem.Failure

	rec   *idem.Record
	store protocol.Store
}

// Step is a step of a [Question].
type Step struct {
	Name string
	// Token is what the step's function sent downstream. The provider knows what the step did by
	// this one, and not by the operation's.
	Token string
	// Begun says that an at-most-once step began, at BegunAt, and has no outcome.
	Begun   bool
	BegunAt time.Time
	// NotExecuted says that it provably had no effect.
	NotExecuted bool
	// Failure is the step's outcome if that is an error, or says why its result is missing.
	Failure *idem.Failure
}

// StepResult reads the encoded result of a step that is done.
func (q Question) StepResult(ctx context.Context, name string) ([]byte, error) {
	return q.store.StepResult(ctx, q.rec, name)
}

func (r *Reconciler) question(rec *idem.Record) Question {
	tenant, operation := namesOf(rec.ID)
	q := Question{
		ID: rec.ID, Tenant: tenant, Operation: operation, Value: rec.Value, Token: protocol.Token(rec.ID, ""), Ref: rec.Ref,
		State: rec.State, Attempt: rec.Attempt, CreatedAt: rec.CreatedAt, LeaseUntil: rec.LeaseUntil, Since: since(rec),
		Probes: rec.Probes, Failure: rec.Failure, rec: rec, store: r.store,
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		s := rec.Steps[name]
		q.Steps = append(q.Steps, Step{
			Name: name, Token: protocol.Token(rec.ID, name), Begun: s.Begun, BegunAt: s.BegunAt,
			NotExecuted: s.NotExecuted, Failure: s.Failure,
		})
	}
	return q
}

// since is when a record became an open question: for an abandoned claim, the end of its
// lease.
func since(rec *idem.Record) time.Time {
	if rec.OpenSince.IsZero() {
		return rec.LeaseUntil
	}
	return rec.OpenSince
}

// namesOf reads tenant and operation from a record's id, also one of shadow. What is no id has neither.
func namesOf(id string) (tenant, operation string) {
	live, _ := protocol.LiveID(id)
	tenant, operation, _ = protocol.ParseRecordID(live)
	return tenant, operation
}
