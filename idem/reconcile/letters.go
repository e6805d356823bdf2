package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// DeadLetterStore is what a [Store] does for dead letters: a *dynamostore.Questions has it, a
// *memstore.Store is without it.
type DeadLetterStore interface {
	// Requeue has a dead letter of the outbox sent again, if it is as it was read, and writes the
	// entry with that, or before it as Unconfirmed.
	Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error
	// Note writes an entry alone. It replaces that with the same ID, time and Entry, unless it is
	// Unconfirmed.
	Note(ctx context.Context, a protocol.Audit) error
}

// Requeue has a dead letter of the outbox sent again, from its first try on, under the same id.
// The change is in the history of the record whose operation has published it. A message that
// is no dead letter any more as it was read gives [ErrNotFound]. [Change.IfWrite] is not used. A store
// without [DeadLetterStore] gives errors.ErrUnsupported.
func (r *Reconciler) Requeue(ctx context.Context, e *outbox.Entry, by Change) error {
	letters, err := r.letters(by)
	if err != nil {
		return err
	}
	a := r.audit(&idem.Record{ID: e.Record}, by, protocol.ChangeRequeued, "", "")
	a.What = fmt.Sprintf("message %s to %s", e.ID, e.Destination)
	return letters.Requeue(ctx, e, *a)
}

// Replay sends messages of a dead-letter queue to the queue that they come from, and keeps who
// did so: SQS keeps nothing of it. The entry is written before send is called, as Unconfirmed
// and with what is planned, and confirmed with what send says it has done, also if it fails.
// [Reconciler.Changes] has it. If the entry cannot be written, send is not called. [Change.IfWrite] is
// not used. A store without [DeadLetterStore] gives errors.ErrUnsupported.
func (r *Reconciler) Replay(ctx context.Context, queue, planned string, by Change, send func(context.Context) (done string, err error)) error {
	letters, err := r.letters(by)
	if err != nil {
		return err
	}
	a := r.audit(&idem.Record{ID: queue}, by, protocol.ChangeReplayed, "", "")
	a.What, a.Unconfirmed = planned, true
	note := func(ctx context.Context) error { return again(ctx, func() error { return letters.Note(ctx, *a) }) }
	if err := note(ctx); err != nil {
		return fmt.Errorf("reconcile: nothing was sent, since the change could not be noted: %w", err)
	}
	done, err := send(ctx)
	a.What, a.Unconfirmed = done, false
	if nerr := note(context.WithoutCancel(ctx)); nerr != nil {
		err = errors.Join(err, fmt.Errorf("reconcile: the change stays unconfirmed: %w", nerr))
	}
	return err
}

func (r *Reconciler) letters(by Change) (DeadLetterStore, error) {
	if err := by.check(); err != nil {
		return nil, err
	}
	letters, ok := r.store.(DeadLetterStore)
	if !ok {
		return nil, fmt.Errorf("reconcile: the store %T has no dead letters: use a *dynamostore.Questions: %w", r.store, errors.ErrUnsupported)
	}
	return letters, nil
}
