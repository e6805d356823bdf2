package later

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ErrExpired: the outcome of accepted work is not kept any more.
var ErrExpired = errors.New("idem: the outcome is not kept any more")

// StatusOf returns what has become of the work that was accepted for later under the status id,
// which [idem.Outcome] has as StatusID. The tenant and the operation are the caller's. While the
// work waits or runs, only RecordState, Attempt, Ref, CreatedAt and StatusID are set; later it is
// the outcome, and a recorded failure is a [*idem.RecordedError]. A status id of another tenant or
// operation, or of nothing, is [ErrNotAccepted]; one whose outcome has expired is [ErrExpired]
// until the store deletes it. StatusOf reads once, with a large result twice, and writes nothing.
func StatusOf(ctx context.Context, e *idem.Engine, op idem.Operation, tenant, id string) (idem.Outcome, error) {
	rec, err := find(ctx, e, op, tenant, id)
	switch {
	case err != nil:
		return idem.Outcome{}, err
	case rec.State == idem.Completed || rec.State == idem.Failed:
		ctx, cancel := within(ctx, rec.Body.Stored)
		defer cancel()
		out, err := e.Replay(ctx, rec)
		out.StatusID = id
		return out, err
	}
	return idem.Outcome{
		RecordState: rec.State, Attempt: rec.Attempt, CreatedAt: rec.CreatedAt, Ref: rec.Ref, StatusID: id,
	}, nil
}

// find reads the record of accepted work by its status id.
func find(ctx context.Context, e *idem.Engine, op idem.Operation, tenant, id string) (*protocol.Record, error) {
	any := op.Key(tenant, "any")
	if err := any.Err(); err != nil {
		return nil, err
	}
	digest, ticket, ok := protocol.ParseStatusID(id)
	if !ok {
		return nil, ErrNotAccepted
	}
	// The id of the tenant's record of the operation that has this digest.
	key := op.KeyFromID(any.ID()[:strings.LastIndexByte(any.ID(), '#')+1] + digest)
	if key.Err() != nil {
		return nil, ErrNotAccepted
	}
	rec, err := e.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		rec = &protocol.Record{} // compared all the same
	}
	if subtle.ConstantTimeCompare([]byte(rec.Ticket), []byte(ticket)) != 1 {
		return nil, ErrNotAccepted
	}
	if rec.Expired(e.Now()) {
		return nil, ErrExpired
	}
	return rec, nil
}
