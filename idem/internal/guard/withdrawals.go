package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
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

// withdrawal is on its way.
type withdrawal struct {
	done chan struct{} // closed once rec is written
	// rec is the record that keeps claims out, for LateRequests at least; nil if none does.
	rec *protocol.Record
}

// Withdrawals takes claims of one key back together. Observers add the margin to leases.
func Withdrawals(s protocol.Store, margin time.Duration) protocol.Store {
	return &withdrawals{Store: s, margin: margin, byID: map[string]*withdrawal{}}
}

// join returns the withdrawal of a claim of the record that is on its way. If there is none it makes
// one, which the caller must write and end.
func (s *withdrawals) join(id string) (f *withdrawal, made bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.byID[id]; f != nil {
		return f, false
	}
	f = &withdrawal{done: make(chan struct{})}
	s.byID[id] = f
	return f, true
}

func (s *withdrawals) end(id string, f *withdrawal) {
	s.mu.Lock()
	delete(s.byID, id)
	s.mu.Unlock()
	close(f.done)
}

// Withdraw also returns a conflict if what another withdrawal of this process has found keeps the
// claim out.
func (s *withdrawals) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	claim := &w.Claim.Record
	if w.Claim.Seen != "" {
		return s.Store.Withdraw(ctx, now, w)
	}
	f, mine := s.join(claim.ID)
	for !mine {
		select {
		case <-f.done:
		case <-ctx.Done():
			return &protocol.StoreError{Op: "Withdraw", Ambiguous: true, Err: ctx.Err()}
		}
		switch {
		case f.rec.Bears(w.Write):
			return nil
		case f.rec != nil && f.rec.Owner != claim.Owner:
			return &protocol.ConflictError{Existing: f.rec.Clone()}
		}
		f, mine = s.join(claim.ID)
	}
	defer s.end(claim.ID, f)
	rec, err := s.withdraw(ctx, now, w)
	if rec != nil && (rec.ExpiresAt.IsZero() || rec.ExpiresAt.After(now.Add(LateRequests))) {
		f.rec = rec
	}
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
		if gErr := l.Again(protocol.Insist(ctx), err); gErr != nil {
			return nil, gErr
		}
		w.Claim, w.Uncertain = protocol.Claim{Record: first}, uncertain
		if l.Seen == nil {
			continue
		}
		ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: first.Fingerprint, Repeat: first.Repeat, Margin: s.margin}
		do := protocol.Next(l.Seen, ev, now).Do
		if !do.Claims() || l.Seen.ExpiresAt.IsZero() || l.Seen.ExpiresAt.After(now.Add(LateRequests)) {
			return l.Seen, err
		}
		w.Claim = first.Over(l.Seen, do, protocol.WatchNever, s.margin)
		w.Uncertain = w.Claim.Record.Uncertain
	}
	return nil, err
}
