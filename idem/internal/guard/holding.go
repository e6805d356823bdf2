package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// LateRequests is for how long a request may arrive after it was sent: AWS takes one for 15
// minutes after it was signed, and a withdrawal itself may be written late.
const LateRequests = time.Hour

// largeStep is the size of a step's result above which a record is not held.
const largeStep = 1 << 10

// holding answers first claims of a key that a handler of this process runs under from that
// handler's own claim, without a call: the key is in flight. The store is asked once the claim is
// not certain any more: its end, its withdrawal or a settlement was sent, it was lost, or its lease
// is over by either clock. Another input is for the store to answer.
type holding struct {
	protocol.Store
	mu   sync.Mutex
	held map[string]held // by the record's id
}

// held is the record under a claim of this process, as the process has written it.
type held struct {
	rec *protocol.Record
	// until is the lease's end by the monotonic clock.
	until time.Time
}

// Holding answers first claims of what this process runs from the process's own claims.
func Holding(s protocol.Store) protocol.Store {
	return &holding{Store: s, held: map[string]held{}}
}

// by returns the record if a claim of another owner in this process has it for certain, else nil.
func (h *holding) by(c *protocol.Claim, now time.Time) *protocol.Record {
	if c.Seen != "" {
		return nil
	}
	h.mu.Lock()
	own, ok := h.held[c.Record.ID]
	h.mu.Unlock()
	if !ok || own.rec.Owner == c.Record.Owner || own.rec.Fingerprint != c.Record.Fingerprint ||
		!now.Before(own.rec.LeaseUntil) || !time.Now().Before(own.until) {
		return nil
	}
	return own.rec.Clone()
}

func (h *holding) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if rec := h.by(&c, now); rec != nil {
		return &protocol.ConflictError{Existing: rec}
	}
	sent := time.Now()
	err := h.Store.Acquire(ctx, now, c)
	switch {
	case err == nil && c.Record.Accepted():
		// Its input is in a step: the store says what waits for a worker.
	case err == nil:
		rec := c.Record
		rec.Seen = c.Seen
		if c.Seen != "" {
			rec.UpdatedAt = now
		}
		h.mu.Lock()
		h.held[rec.ID] = held{&rec, sent.Add(rec.LeaseUntil.Sub(now))}
		h.mu.Unlock()
	case !protocol.Answers(err):
		// Another call of this process may have got the claim meanwhile. This one, which saw
		// less, cannot land over it, nor over its outcome.
		if rec := h.by(&c, now); rec != nil && rec.Retention >= LateRequests {
			return &protocol.ConflictError{Existing: rec}
		}
	}
	return err
}

// change notes a write of the owner that has landed.
func (h *holding) change(id, owner string, sent, now time.Time,
	apply func(*protocol.Record, time.Time) (*protocol.Record, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, ok := h.held[id]
	if !ok || own.rec.Owner != owner {
		return
	}
	rec, err := apply(own.rec, now)
	if err != nil {
		delete(h.held, id)
		return
	}
	if rec.LeaseUntil.After(own.rec.LeaseUntil) {
		own.until = sent.Add(rec.LeaseUntil.Sub(now))
	}
	own.rec = rec
	h.held[id] = own
}

// forget forgets the owner's claim, any owner's if that is empty.
func (h *holding) forget(id, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if own, ok := h.held[id]; ok && (owner == "" || own.rec.Owner == owner) {
		delete(h.held, id)
	}
}

func (h *holding) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	sent := time.Now()
	err := h.Store.Extend(ctx, now, e)
	switch _, lost := errors.AsType[*protocol.ConflictError](err); {
	case lost:
		h.forget(e.ID, e.Owner)
	case err == nil:
		h.change(e.ID, e.Owner, sent, now, e.Apply)
	}
	return err
}

func (h *holding) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	err := h.Store.RecordStep(ctx, now, s)
	switch {
	case err != nil:
	case len(s.Result) > largeStep:
		h.forget(s.ID, s.Owner) // it is not kept in memory
	default:
		h.change(s.ID, s.Owner, now, now, s.Apply)
	}
	return err
}

func (h *holding) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	err := h.Store.RecordReference(ctx, now, r)
	if err == nil {
		h.change(r.ID, r.Owner, now, now, r.Apply)
	}
	return err
}

func (h *holding) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	h.forget(w.Claim.Record.ID, w.Claim.Record.Owner)
	return h.Store.Withdraw(ctx, now, w)
}

func (h *holding) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	h.forget(f.ID, f.Owner)
	return h.Store.Finish(ctx, now, f)
}

func (h *holding) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	h.forget(s.ID, "")
	return h.Store.Settle(ctx, now, s)
}
