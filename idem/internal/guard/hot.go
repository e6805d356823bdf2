package guard

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// hotKeys is how many keys are remembered at most, in 2 KB: by 64 bits of hash each. That two keys have the same
// costs one of them a read before its claim.
const hotKeys = 256

// hot reads the record before a first claim of a key that is likely to have one: the last claim of the key by this
// process met a record, or was throttled. A claim that meets a record is a failed write. DynamoDB bills it by the
// record's size in KB, where a read costs a unit for 4 KB at a fifth of the price, and takes 1,000 write units a second
// of a key, but 3,000 read units. Nothing is cached but that a key is hot, so that no answer is old.
type hot struct {
	protocol.Store
	seed   maphash.Seed
	hashes [hotKeys]atomic.Uint64 // the latest one of a slot stays; 0 is none
}

// Hot reads the records of hot keys before their first claims.
func Hot(s protocol.Store) protocol.Store { return &hot{Store: s, seed: maphash.MakeSeed()} }

// slot is where the key with a record's id is remembered, and as what.
func (h *hot) slot(id string) (*atomic.Uint64, uint64) {
	hash := maphash.String(h.seed, id) | 1
	return &h.hashes[hash>>32%hotKeys], hash
}

func (h *hot) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if c.Seen != "" {
		return h.Store.Acquire(ctx, now, c)
	}
	slot, hash := h.slot(c.Record.ID)
	if slot.Load() == hash {
		rec, err := h.Get(ctx, c.Record.ID)
		switch {
		case err != nil:
			return protocol.Unsent(err)
		case rec != nil && !rec.Bears(c.Record.Write): // the store itself answers a claim that has landed
			return &protocol.ConflictError{Existing: rec}
		}
	}
	err := h.Store.Acquire(ctx, now, c)
	met, conflict := errors.AsType[*protocol.ConflictError](err)
	failed, down := errors.AsType[*protocol.StoreError](err)
	if conflict && met.Existing != nil || down && failed.Throttled {
		slot.Store(hash)
	}
	return err
}

// Get forgets a key without a record.
func (h *hot) Get(ctx context.Context, id string) (*protocol.Record, error) {
	rec, err := h.Store.Get(ctx, id)
	if rec == nil && err == nil {
		slot, hash := h.slot(id)
		slot.CompareAndSwap(hash, 0)
	}
	return rec, err
}
