package reconcile

import (
	"context"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Lookup reads the record with the id ([idem.Key.ID]); nil if there is none. Its Body says how
// large the result is; read it with [Reconciler.Result], and those of its Steps with
// [Reconciler.StepResult].
func (r *Reconciler) Lookup(ctx context.Context, id string) (*idem.Record, error) {
	return r.store.Get(ctx, id)
}

// Result reads the recorded result of a record that Lookup has returned.
func (r *Reconciler) Result(ctx context.Context, rec *idem.Record) ([]byte, error) {
	return r.store.Result(ctx, rec)
}

// StepResult reads the recorded result of a step of a record that Lookup has returned.
func (r *Reconciler) StepResult(ctx context.Context, rec *idem.Record, step string) ([]byte, error) {
	return r.store.StepResult(ctx, rec, step)
}

// Forget removes a record that has ended, with its result, for a person's right to
// erasure or for tests. Its price: a later call with the key runs the handler again. An
// open question, and a record in progress, give [ErrOpen]. No record counts as removed. The check
// record of an operation with a secret is not removed.
// Results of steps that lie beside the record stay until its retention is over, and
// published messages until theirs is. The record is removed before the parts of a large
// result. Parts that an error leaves expire, in DynamoDB a day after the retention.
func (r *Reconciler) Forget(ctx context.Context, id string, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	if protocol.IsCheckID(id) {
		return fmt.Errorf("%w: %s has the check value of its operation's secret, and must stay", ErrOpen, id)
	}
	for range maxRounds {
		rec, err := r.store.Get(ctx, id)
		if rec == nil || err != nil {
			return err
		}
		if err := by.about(rec); err != nil {
			return err
		}
		ev := protocol.Event{Kind: protocol.EventForget, Seen: rec.Write}
		if protocol.Next(rec, ev, r.now()).Do != protocol.DoApply {
			return fmt.Errorf("%w: this one is %s: resolve it first, or if it is in progress wait for its lease", ErrOpen, rec.State)
		}
		err = r.store.Forget(ctx, r.now(), protocol.Erasure{
			ID: id, Seen: rec.Write, Audit: r.audit(rec, by, protocol.ChangeForgotten, idem.Absent, ""),
		})
		if !isAnswer(err) {
			return err
		}
	}
	return fmt.Errorf("%w: somebody else keeps writing it", ErrOpen)
}

// History returns the changes of the record by operators, webhooks and sweeps, the earliest
// first. One whose entry cannot be read is a [protocol.ChangeUnreadable]. Of a call that has
// parked it, the record's Failure and OpenSince tell. In a table without transactions a change
// may stay Unconfirmed: see [protocol.Audit].
func (r *Reconciler) History(ctx context.Context, id string) ([]protocol.Audit, error) {
	var all []protocol.Audit
	for page := ""; ; {
		p, err := r.store.AuditOf(ctx, id, page)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Entries...)
		if page = p.Next; page == "" {
			return all, nil
		}
	}
}
