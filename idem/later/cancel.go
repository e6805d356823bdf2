package later

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ErrBegun: a worker has begun the work, or it has ended: it cannot be cancelled any more.
var ErrBegun = errors.New("idem: the work has been begun, or has ended: it cannot be cancelled")

// maxRounds bounds how often a cancellation follows a record that changes under it.
const maxRounds = 8

// leastRetention is that of a cancellation whose operation keeps outcomes for less, and
// auditRetention is how long the change of the record is kept.
const (
	leastRetention = time.Minute
	auditRetention = 366 * 24 * time.Hour
)

// Cancel ends the work that [StatusOf] tells of as failed with [protocol.CodeCancelled],
// as long as no worker has claimed it: then it is [ErrBegun]. Work that is cancelled already stays
// so. The change is kept with the others of the record, as one of its client, if the engine's store
// is a [protocol.AdminStore]. Other errors are those of StatusOf and of the store; after one of the
// store's the work may be cancelled or not, and Cancel can be called again.
func Cancel(ctx context.Context, e *idem.Engine, op idem.Operation, tenant, id string) error {
	for range maxRounds {
		rec, err := find(ctx, e, op, tenant, id)
		switch {
		case err != nil:
			return err
		case rec.State == idem.Failed && rec.Failure != nil && rec.Failure.Code == protocol.CodeCancelled:
			return nil
		case rec.State != idem.Pending || rec.Uncertain || rec.Progressed():
			return ErrBegun
		}
		now := e.Now()
		write := protocol.NewID()
		s := protocol.Settlement{
			ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Owner: write, Write: write,
			Ending: protocol.Ending{
				State: idem.Failed, ExpiresAt: protocol.RoundUp(now.Add(max(rec.Retention, leastRetention)), time.Second),
				Failure: &idem.Failure{Message: "idem: the request was cancelled before it was begun",
					Code: protocol.CodeCancelled},
			},
			LargeSteps: rec.Steps[protocol.AcceptedStep].Body.Parts > 0,
			Audit: &protocol.Audit{
				ID: rec.ID, Entry: protocol.NewID(), At: now, Who: "the client", Why: "it cancelled its request",
				Change: protocol.ChangeResolved,
				From:   rec.State, To: idem.Failed, Attempt: rec.Attempt, ExpiresAt: now.Add(auditRetention),
			},
		}
		err = settle(ctx, e, s)
		if err == nil || !protocol.Answers(err) {
			return err
		}
		// A worker, a sweep or another call was faster: look again.
	}
	return &idem.StoreError{Op: "Settle", Err: errors.New("the record changes all the time")}
}

// settle writes the change, with its audit where the store keeps any.
func settle(ctx context.Context, e *idem.Engine, s protocol.Settlement) error {
	ctx, cancel := within(ctx, 0)
	defer cancel()
	now := s.Audit.At
	err := e.Store().Settle(ctx, now, s)
	if errors.Is(err, errors.ErrUnsupported) {
		s.Audit = nil // a store that is no protocol.AdminStore refuses it at once
		err = e.Store().Settle(ctx, now, s)
	}
	return err
}
