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
// [AdminStore.Settle].
func (s *Store) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if w.Audit != nil {
		return fmt.Errorf("dynamostore: Settle: a Store writes no audit entry, make one with dynamostore.NewAdminStore: %w",
			errors.ErrUnsupported)
	}
	k := s.retry.begin(ctx, "Settle")
	defer k.end()
	return s.settle(k, now, w, nil)
}

// settling is a settlement on its way.
type settling struct {
	*Store
	k   *call
	w   protocol.Settlement
	now time.Time
	// tx commits with it, if it is not nil.
	tx companion

	// body is its result as it is stored.
	body protocol.Body
	// cleared is what becomes of the record's steps; nil if they stay, or all go.
	cleared *clearing
	// spent is the record with the steps that a transaction removes: it does not say which.
	spent item
	// replaced is the record whose result the settlement replaces, if there is one.
	replaced *protocol.Record
}

// settle is Settle with what commits with it, if there is anything.
func (s *Store) settle(k *call, now time.Time, w protocol.Settlement, tx companion) error {
	if err := s.maySettle(k, w); err != nil {
		return err
	}
	t := &settling{Store: s, k: k, w: w, now: now, tx: tx}
	if err := t.prepareAll(); err != nil {
		return err
	}
	old, err := inForm(t.likely(), w.Write, t.send, t.fits)
	switch {
	case err == nil:
		t.expireSpent(old)
		t.expireReplaced()
		return nil
	case err == errRefused && landedSettlement(old, w):
		t.expireReplaced()
		return nil
	case err == errRefused:
		t.expireUnused()
	case t.cleared != nil && tooLarge(err, k):
		t.expireUnused()
		if len(w.Steps) > 0 {
			return &protocol.TooLargeError{Size: sizeOf(w.Steps), Limit: maxItem}
		}
	}
	return s.ended(old, err, k, w.Write, w.Ending)
}

// maySettle is what is wrong with the settlement, or with writing its results here.
func (s *Store) maySettle(k *call, w protocol.Settlement) error {
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
	return nil
}

// prepareAll stores the parts of large results, and reads what the write needs to know.
func (t *settling) prepareAll() (err error) {
	if t.body, err = t.prepare(t.k, t.w.ID, t.w.Owner, t.w.Ending, nil, 1); err != nil {
		return err
	}
	if err = t.clearSteps(); err != nil {
		return err
	}
	if t.tx != nil && t.w.LargeSteps {
		if t.spent, err = t.get(t.k, key(t.w.ID)); err != nil {
			return err
		}
	}
	return t.readReplaced()
}

// clearSteps decides which steps the record keeps, unless it ends, which keeps none.
func (t *settling) clearSteps() (err error) {
	ends := t.w.Ending.State == protocol.Completed || t.w.Ending.State == protocol.Failed
	if ends || len(t.w.ClearSteps)+len(t.w.Steps) == 0 {
		return nil
	}
	if t.cleared, err = t.clearing(t.k, t.w); err != nil {
		return err
	}
	return t.cleared.putParts(t.Store, t.k, t.w)
}

// readReplaced reads the record whose outcome, and result, an earlier resolution has recorded.
func (t *settling) readReplaced() error {
	if !t.w.Again {
		return nil
	}
	rec, err := t.Get(t.k.ctx, t.w.ID)
	if err != nil {
		return err
	}
	if rec != nil && rec.Write == t.w.Seen && rec.Owner != t.w.Owner {
		t.replaced = rec
	}
	return nil
}

// likely is the form of the write to try first.
func (t *settling) likely() ifReleased {
	if t.cleared != nil && t.w.Ending.State == protocol.Released {
		return t.cleared.after
	}
	return likely(t.w.Ending)
}

// fits is the form of the write for the record as it turned out to be. One that clears steps has
// no other: the write that was seen determines which steps there are.
func (t *settling) fits(old item) (ifReleased, bool) {
	return stepsOf(t.w.Ending, old), old != nil && t.cleared == nil
}

// send sends the write in its form for a record with or without steps.
func (t *settling) send(steps ifReleased) (item, error) {
	left := t.w.Left()
	u, ofSteps := t.ending(t.w.ID, t.w.Write, t.w.Ending, t.body, t.now,
		form{state: protocol.Unknown, steps: steps, resolved: t.w.Again, leaves: len(left) > 0})
	if len(left) > 0 {
		u.item[":steps"] = encodeSteps(left)
	}
	u.wantsOld = t.w.Kind == protocol.EventResolve && t.tx == nil
	u.str(":seen", t.w.Seen)
	if t.w.Owner != "" {
		u.add(",owner_id=:own")
		u.str(":own", t.w.Owner)
	}
	cond := ifSeen + t.mayStart(u)
	u.yesOr(schema.Resolved, t.w.Kind == protocol.EventResolve)
	if t.replaced != nil && t.w.ClearsRef(t.replaced) {
		u.drop(schema.Ref)
		u.drop(schema.RefWrite)
	}
	if t.cleared != nil {
		t.cleared.apply(u)
	} else {
		cond += ofSteps
	}
	return t.updateWith(t.k, t.tx, key(t.w.ID), t.w.Write, u, cond)
}

// mayStart is the condition on the state that the settlement is of.
func (t *settling) mayStart(u *update) string {
	u.str(":in_progress", string(protocol.InProgress))
	if t.w.Kind == protocol.EventLapse {
		u.str(":released", string(protocol.Released))
		u.str(":pending", string(protocol.Pending))
		return ifLeft
	}
	from := ifUnknown
	u.str(":unknown", string(protocol.Unknown))
	if t.w.Ending.State != protocol.Released {
		from = ifWaits
		u.str(":pending", string(protocol.Pending))
		u.str(":released", string(protocol.Released))
		u.names = map[string]string{"#accepted": protocol.AcceptedStep}
	}
	if t.w.Again {
		from += orResolved
	}
	return " AND (" + from + ")"
}

// expireSpent lets the large results of steps expire that an outcome has removed. Changed is what
// the write has changed, as it was.
func (t *settling) expireSpent(changed item) {
	if t.tx != nil {
		changed = t.spent
	}
	t.expireSteps(t.k, t.w.ID, t.w.Ending, changed)
}

// expireReplaced lets the parts of results expire that the resolution has replaced.
func (t *settling) expireReplaced() {
	if rec := t.replaced; rec != nil {
		t.expireResults(t.k, rec.ID, []protocol.RecordedStep{{Write: rec.Owner, Body: rec.Body}}, t.now)
	}
	if t.cleared != nil {
		t.expireResults(t.k, t.w.ID, t.cleared.replaced, t.now)
	}
}

// expireUnused lets the parts of steps' results expire that nothing will ever name.
func (t *settling) expireUnused() {
	if t.cleared != nil {
		t.expireResults(t.k, t.w.ID, slices.Collect(maps.Values(t.cleared.record)), t.now)
	}
}

// sizeOf is about what the outcomes of steps take.
func sizeOf(steps []protocol.StepWrite) (size int) {
	for _, step := range steps {
		size += len(step.Result)
		if step.Failure != nil {
			size += len(step.Failure.Message)
		}
	}
	return size
}
