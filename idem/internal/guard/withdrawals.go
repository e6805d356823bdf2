package guard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// withdrawalMemory is how long a process relies on a record that it has seen and that stays
	// for LateRequests at least.
	withdrawalMemory = time.Minute
	// mostWithdrawals is how many of them it remembers.
	mostWithdrawals = 256
)

// withdrawals take claims back that saw no record. A record keeps out every such claim but the one
// that it is. So many duplicates at once whose claims got no answer are taken back with one write,
// for which the others wait. Of what stands in the way of a claim now, and may be deleted before
// the claim arrives, the withdrawal takes the place.
type withdrawals struct {
	protocol.Store
	margin time.Duration
	mu     sync.Mutex
	byID   map[string]*withdrawal
}

// withdrawal is on its way, or what it has found.
type withdrawal struct {
	done chan struct{} // closed once the rest is written
	// rec is the record that keeps claims out, for LateRequests at least; nil if none does.
	rec *protocol.Record
	at  Instant
}

// Withdrawals takes claims of one key back together. Observers add the margin to leases.
func Withdrawals(s protocol.Store, margin time.Duration) protocol.Store {
	return &withdrawals{Store: s, margin: margin, byID: map[string]*withdrawal{}}
}

// join returns the record's withdrawal. If there is none but the given one it makes one, which the
// caller must write and end.
func (s *withdrawals) join(id string, but *withdrawal) (f *withdrawal, made bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.byID[id]; f != nil && f != but {
		return f, false
	}
	if len(s.byID) >= mostWithdrawals {
		clear(s.byID)
	}
	f = &withdrawal{done: make(chan struct{})}
	s.byID[strings.Clone(id)] = f
	return f, true
}

// forget forgets what was found: the record is another one now.
func (s *withdrawals) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// Withdraw also returns a conflict if what another withdrawal of this process has found keeps the
// claim out.
func (s *withdrawals) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	claim := &w.Claim.Record
	if w.Claim.Seen != "" {
		return s.changed(claim.ID, s.Store.Withdraw(ctx, now, w))
	}
	if claim.Retention < LateRequests { // the record of another one may be deleted before this claim arrives
		_, err := s.withdraw(ctx, now, w)
		return s.changed(claim.ID, err)
	}
	f, mine := s.join(claim.ID, nil)
	for !mine {
		select {
		case <-f.done:
		case <-ctx.Done():
			return &protocol.StoreError{Op: "Withdraw", Ambiguous: true, Err: ctx.Err()}
		}
		known := f.rec != nil && RightNow().Since(f.at) < withdrawalMemory
		switch {
		case known && f.rec.Bears(w.Write):
			return nil
		case known && f.rec.Owner != claim.Owner:
			return &protocol.ConflictError{Existing: f.rec.Clone()}
		}
		f, mine = s.join(claim.ID, f)
	}
	defer close(f.done)
	rec, err := s.withdraw(ctx, now, w)
	if rec != nil && (rec.ExpiresAt.IsZero() || rec.ExpiresAt.After(now.Add(LateRequests))) {
		f.rec = rec
	}
	f.at = RightNow()
	return err
}

// withdraw takes back a claim that has seen no record. It lands as soon as there is none: what
// stands in its way now, and may be deleted before it comes, is replaced by the withdrawal, as the
// claim would. It returns the record that there is then, if that is known.
func (s *withdrawals) withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) (*protocol.Record, error) {
	first, uncertain := w.Claim.Record, w.Uncertain
	l := protocol.Follow(s.Store, first.ID, nil)
	var err error
	for l.Next() {
		if err = s.Store.Withdraw(ctx, now, w); err == nil {
			rec, _ := w.Apply(l.Seen, now)
			return rec, nil
		}
		if _, refused := errors.AsType[*protocol.ConflictError](err); !refused {
			return nil, err
		}
		if gErr := l.Again(protocol.WithoutRetryQuota(ctx), err); gErr != nil {
			return nil, gErr
		}
		w.Claim, w.Uncertain = protocol.Claim{Record: first}, uncertain
		if l.Seen == nil || l.Seen.HeldBy(first.Owner) { // or the claim itself has come meanwhile
			continue
		}
		ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: first.Fingerprint,
			Repeat: first.Repeat, Margin: s.margin}
		do := protocol.Next(l.Seen, ev, now).Do
		if !do.Claims() || l.Seen.ExpiresAt.IsZero() || l.Seen.ExpiresAt.After(now.Add(LateRequests)) {
			return l.Seen, err
		}
		w.Claim = first.Over(l.Seen, do, protocol.WatchNever, s.margin)
		w.Uncertain = w.Claim.Record.Uncertain
	}
	return nil, err
}

// changed forgets what was found about the record, unless the store has refused to change it.
func (s *withdrawals) changed(id string, err error) error {
	if !protocol.Answers(err) {
		s.forget(id)
	}
	return err
}

func (s *withdrawals) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	err := s.Store.Acquire(ctx, now, c)
	if err == nil || c.Seen != "" { // one that saw no record cannot land over the one that was found
		_ = s.changed(c.Record.ID, err)
	}
	return err
}

func (s *withdrawals) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return s.changed(e.ID, s.Store.Extend(ctx, now, e))
}

func (s *withdrawals) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	return s.changed(w.ID, s.Store.RecordStep(ctx, now, w))
}

func (s *withdrawals) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	return s.changed(f.ID, s.Store.Finish(ctx, now, f))
}

func (s *withdrawals) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return s.changed(r.ID, s.Store.RecordReference(ctx, now, r))
}

func (s *withdrawals) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	return s.changed(w.ID, s.Store.Settle(ctx, now, w))
}
