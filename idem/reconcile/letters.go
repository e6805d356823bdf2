package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// DeadLetterStore is what a [Store] does for dead letters: a *dynamostore.AdminStore has it, a
// *memstore.Store is without it.
type DeadLetterStore interface {
	// Requeue has a dead letter of the outbox sent again, if it is as it was read, and writes the
	// entry with that, or before it as Unconfirmed.
	Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error
}

// Requeue has a dead letter of the outbox sent again, from its first try on, under the same id.
// The change is in the history of the record whose operation has published it. A message that
// is no dead letter any more as it was read gives [ErrNotFound]. [Change.IfWrite] is not used. A store
// without [DeadLetterStore] gives errors.ErrUnsupported.
func (r *Reconciler) Requeue(ctx context.Context, e *outbox.Entry, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	letters, ok := r.store.(DeadLetterStore)
	if !ok {
		return fmt.Errorf("reconcile: the store %T has no dead letters: use a *dynamostore.AdminStore: %w", r.store, errors.ErrUnsupported)
	}
	a := r.audit(&idem.Record{ID: e.Record}, by, protocol.ChangeRequeued, "", "")
	a.What = fmt.Sprintf("message %s to %s", e.ID, e.Destination)
	return letters.Requeue(ctx, e, *a)
}
