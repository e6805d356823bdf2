package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Settle implements [idem.Store]: one UpdateItem, after the parts of a large
// result, and after one read if steps are to be cleared or recorded. It writes no audit entry: see
// [Questions.Settle].
func (s *Store) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if w.Audit != nil {
		return fmt.Errorf("dynamostore: Settle: a Store writes no audit entry, make one with dynamostore.NewQuestions: %w", errors.ErrUnsupported)
	}
	k := s.retry.begin(ctx, "Settle")
	defer k.end()
	return s.settle(k, now, w, nil)
}

// settle is Settle with what commits with it, if there is anything.
func (s *Store) settle(k *call, now time.Time, w protocol.Settlement, tx companion) error {
	if w.Kind != protocol.EventLapse && w.Kind != protocol.EventResolve {
		return k.fail(fmt.Errorf("a settlement of kind %d: use protocol.EventLapse or protocol.EventResolve", w.Kind))
	}
	if err := s.mayWrite(k.op, w.ID, w.Sealed, w.Ending.Result); err != nil {
		return err
	}
	for _, step := range w.Steps {
		if err := s.mayWrite(k.op, w.ID, w.Sealed, step.Result); err != nil {
			return err
		}
	}
	body, err := s.prepare(k, w.ID, w.Owner, w.Ending, nil, 1)
	if err != nil {
		return err
	}
	steps, cleared := likely(w.Ending), (*clearing)(nil)
	if len(w.ClearSteps)+len(w.Steps) > 0 && w.Ending.State != protocol.Completed && w.Ending.State != protocol.Failed {
		if cleared, err = s.clearing(k, w); err != nil {
			return err
		}
		if err = cleared.putParts(s, k, w); err != nil {
			return err
		}
		if w.Ending.State == protocol.Released {
			steps = cleared.after
		}
	}
	left := w.Left()
	var spent item
	if tx != nil && w.LargeSteps {
		// A transaction does not say what it has changed.
		if spent, err = s.get(k, key(w.ID)); err != nil {
			return err
		}
	}
	var replaced *protocol.Record
	if w.Again {
		if replaced, err = s.Get(k.ctx, w.ID); err != nil {
			return err
		}
		if replaced != nil && (replaced.Write != w.Seen || replaced.Owner == w.Owner) {
			replaced = nil
		}
	}
	send := func(steps ifReleased) (item, error) {
		u, cond := s.ending(w.ID, w.Write, w.Ending, body, now, form{state: protocol.Unknown, steps: steps, resolved: w.Again, leaves: len(left) > 0})
		if len(left) > 0 {
			u.item[":steps"] = encodeSteps(left)
		}
		u.wantsOld = w.Kind == protocol.EventResolve && tx == nil
		u.str(":seen", w.Seen)
		if w.Owner != "" {
			u.add(",owner_id=:own")
			u.str(":own", w.Owner)
		}
		var from string
		u.str(":in_progress", string(protocol.InProgress))
		if w.Kind == protocol.EventLapse {
			from = ifLeft
			u.str(":released", string(protocol.Released))
			u.str(":pending", string(protocol.Pending))
		} else {
			from = ifUnknown
			u.str(":unknown", string(protocol.Unknown))
			if w.Ending.State != protocol.Released {
				from = ifWaits
				u.str(":pending", string(protocol.Pending))
				u.str(":released", string(protocol.Released))
				u.names = map[string]string{"#accepted": protocol.AcceptedStep}
			}
			if w.Again {
				from += orResolved
			}
			from = " AND (" + from + ")"
		}
		u.yesOr(schema.Resolved, w.Kind == protocol.EventResolve)
		if cleared != nil {
			// The write that was seen determines which steps there are.
			cond = ""
			cleared.apply(u)
		}
		return s.updateWith(k, tx, w.ID, w.Write, u, ifSeen+from+cond)
	}
	fits := func(old item) (ifReleased, bool) { return stepsOf(w.Ending, old), old != nil && cleared == nil }
	landed := func(old item) bool { return landedSettlement(old, w) }
	old, err := inForm(steps, w.Write, send, fits)
	switch {
	case err == nil:
		if tx != nil {
			old = spent
		}
		s.expireSteps(k, w.ID, w.Ending, old)
		s.expireReplaced(k, replaced, now)
		if cleared != nil {
			s.expireResults(k, w.ID, cleared.gone, now)
		}
	case err == errRefused && landed(old):
		if cleared != nil {
			s.expireResults(k, w.ID, cleared.gone, now)
		}
		s.expireReplaced(k, replaced, now)
		return nil
	case cleared != nil && (err == errRefused || tooLarge(err, k)):
		// Nothing will ever name them.
		s.expireResults(k, w.ID, slices.Collect(maps.Values(cleared.record)), now)
		if err != errRefused && len(w.Steps) > 0 {
			size := 0
			for _, step := range w.Steps {
				size += len(step.Result)
				if step.Failure != nil {
					size += len(step.Failure.Message)
				}
			}
			return &protocol.TooLargeError{Size: size, Limit: maxItem}
		}
	}
	return s.ended(old, err, k, w.Write, w.Ending)
}

// expireReplaced lets the parts of the result expire that a resolution has replaced.
func (s *Store) expireReplaced(k *call, rec *protocol.Record, now time.Time) {
	if rec != nil && rec.Body.Parts > 0 {
		s.expireParts(k, []string{partKeyPrefix(rec.ID, rec.Owner, rec.Body.Digest)}, []int{rec.Body.Parts}, now)
	}
}
