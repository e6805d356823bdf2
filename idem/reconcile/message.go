package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// OutboxStore is what a [Store] does for messages of the outbox: a *dynamostore.AdminStore and a
// *pgstore.Store have it, a *memstore.Store is without it.
type OutboxStore interface {
	// Messages lists the messages that the record's operation has published, as long as they are
	// stored, without their bodies, their attributes and After, a page of 100 at most at a time. The
	// first page is "". It returns the next page, which is empty at the end.
	Messages(ctx context.Context, record, page string) ([]*outbox.Entry, string, error)

	// Requeue has a dead letter, or a message that was sent, sent again if it is as it was read, and
	// writes the entry with that, or before it as Unconfirmed.
	Requeue(ctx context.Context, e *outbox.Entry, a protocol.Audit) error
}

// maxMessages is how many messages a page has at least, if there are so many.
const maxMessages = 100

// Messages returns a page of the messages of the outbox that the record's operation has published, without their
// bodies: those that wait, dead letters, and those that were sent in the last day. The first page is "", and has all
// messages of almost every record: 100 or more, if there are so many, and fewer than 200, the earliest first. It
// returns the next page, which is empty at the end. The record itself may have expired. Of a store without
// [OutboxStore] there are none.
func (r *Reconciler) Messages(ctx context.Context, record, page string) (all []*outbox.Entry, next string, err error) {
	box, ok := r.store.(OutboxStore)
	if !ok {
		return nil, "", nil
	}
	for next = page; ; {
		var entries []*outbox.Entry
		if entries, next, err = box.Messages(ctx, record, next); err != nil {
			return nil, "", err
		}
		if all = append(all, entries...); next == "" || len(all) >= maxMessages {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b *outbox.Entry) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Number, b.Number))
	})
	return all, next, nil
}

// ResendAfter is how old a message's send is at least when the message is sent again. A FIFO queue or topic accepts
// and drops a message with the id of one that it got in the last five minutes; one more is for clocks that differ.
const ResendAfter = 6 * time.Minute

// Requeue has a dead letter of the outbox, or a message that was sent, sent again from its first try on,
// under the same id. A message that was sent less than [ResendAfter] ago gives [ErrSentLately]. The change
// is in the history of the record whose operation has published it, with the id that the service gave to
// the earlier send, if there was one ([outbox.Entry]'s SentID). A message that is not as it was read any
// more, or that waits to be sent, gives [ErrNotFound]. [Change.IfWrite] is not used. A store without
// [OutboxStore] gives errors.ErrUnsupported.
func (r *Reconciler) Requeue(ctx context.Context, e *outbox.Entry, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	box, ok := r.store.(OutboxStore)
	if !ok {
		return fmt.Errorf("reconcile: the store %T has no outbox: use a *dynamostore.AdminStore: %w", r.store,
			errors.ErrUnsupported)
	}
	if at := e.SentAt.Add(ResendAfter); r.now().Before(at) {
		return fmt.Errorf("%w: wait until %s", ErrSentLately, at.UTC().Format(time.RFC3339))
	}
	a := r.audit(&idem.Record{ID: e.Record}, by, protocol.ChangeRequeued, "", "")
	a.What = fmt.Sprintf("message %s to %s", e.ID, e.Destination)
	if e.SentID != "" {
		a.What += fmt.Sprintf(", sent before as %s,", e.SentID)
	}
	return box.Requeue(ctx, e, *a)
}
