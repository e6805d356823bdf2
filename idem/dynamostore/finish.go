package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Finish implements [idem.Store]: one UpdateItem, after the parts of a large
// result; with a [*Tx] one TransactWriteItems instead, and a PutItem for an attempt
// in atomic mode that has none.
func (s *Store) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	tx, ok := f.Unit.(*Tx)
	if f.Unit != nil && !ok {
		return fmt.Errorf("dynamostore: Finish.Unit: a %T cannot commit here, a *dynamostore.Tx can: %w", f.Unit, errors.ErrUnsupported)
	}
	k := s.retry.begin(ctx, "Finish")
	defer k.end()
	var w *unit
	if tx != nil {
		var err error
		if w, err = s.unit(f.ID, f.Created, tx, now, min(len(f.Ending.Result), inlineUpTo)); err != nil {
			return err
		}
		if len(w.actions) == 0 {
			w = nil
		}
	}
	owner := cmp.Or(f.NewOwner, f.Owner) // who names the parts
	body, err := s.prepare(k, f.ID, owner, f.Ending, f.Progress, partShare)
	if err != nil {
		return err
	}
	if f.Upgrades != "" {
		return s.upgrade(k, f, body)
	}
	if f.Born != nil {
		return s.born(k, f, w, body, now)
	}
	var spent item
	if w != nil && f.LargeSteps {
		// A transaction does not say what it has changed.
		if spent, err = s.get(k, key(f.ID)); err != nil {
			return err
		}
	}
	send := func(u *update, cond string) (item, error) { return s.update(k, f.ID, u, cond) }
	if w != nil {
		send = func(u *update, cond string) (item, error) { return w.update(k, f.Write, u, cond) }
	}
	err = s.end(k, send, f.Write, f.Ending, likely(f.Ending), func(steps ifReleased) (*update, string) {
		u, names := s.ending(f.ID, f.Write, f.Ending, body, now, steps)
		u.wantsOld = f.LargeSteps
		u.str(":owner", f.Owner)
		u.str(":in_progress", string(protocol.InProgress))
		u.num(":v", schema.RecordVersion)
		cond := ifHeld
		if f.Ending.State == protocol.Released && f.Ending.Uncertain {
			// Parked, it must not make itself repeatable again.
			cond = ifRunning
		} else {
			u.str(":unknown", string(protocol.Unknown))
		}
		if f.Ending.State == protocol.Unknown {
			cond += ifNotMine
		}
		names |= nOwner
		if f.NewOwner != "" {
			u.add(", #owner = :new_owner")
			u.str(":new_owner", f.NewOwner)
		} else if f.Absent != nil {
			u.add(", #owner = :owner")
		}
		if f.Absent != nil {
			names |= u.absent(f.Absent, f.Ending)
			cond = "(" + ifAbsent + " OR " + cond + ")"
		}
		u.names = s.names.of(names)
		return u, cond + steps.condition()
	}, func(old item) {
		if w == nil {
			spent = old
		}
	})
	if err == nil && f.LargeSteps {
		s.expireSteps(k, f.ID, f.Ending, spent)
	}
	return err
}

// absent adds what the end of an attempt that ran without a claim needs where
// there is no record.
func (u *update) absent(rec *protocol.Record, e protocol.Ending) (names nameSet) {
	u.add(absentSet)
	u.str(":fp", string(rec.Fingerprint))
	u.num(":attempt", int64(rec.Attempt))
	u.num(":lease_until", millis(rec.LeaseUntil))
	u.num(":retention", seconds(rec.Retention))
	u.num(":created_at", millis(rec.CreatedAt))
	if !e.Stricter {
		u.add(", #repeat = if_not_exists(#repeat, :repeat)")
		u.str(":repeat", rec.Repeat.String())
		names |= nRepeat
	}
	if rec.Value != "" {
		u.add(", #value = if_not_exists(#value, :value)")
		u.str(":value", rec.Value)
		names |= nValue
	}
	if rec.Codec != "" {
		u.add(", codec = if_not_exists(codec, :codec)")
		u.str(":codec", rec.Codec)
	}
	return names
}

// maxItem is DynamoDB's limit. A record comes near it by its steps alone.
const maxItem = 400 << 10

// Settle implements [idem.Store]: one UpdateItem, after the parts of a large
// result, and after one read if steps are to be cleared.
func (s *Store) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	k := s.retry.begin(ctx, "Settle")
	defer k.end()
	if w.Kind != protocol.EventLapse && w.Kind != protocol.EventResolve {
		return k.fail(fmt.Errorf("a settlement of kind %d: use protocol.EventLapse or protocol.EventResolve", w.Kind))
	}
	body, err := s.prepare(k, w.ID, w.Owner, w.Ending, nil, 1)
	if err != nil {
		return err
	}
	steps, cleared := likely(w.Ending), (*clearing)(nil)
	if len(w.ClearSteps) > 0 && w.Ending.State != protocol.Completed && w.Ending.State != protocol.Failed {
		if cleared, err = s.clearing(k, w); err != nil {
			return err
		}
		steps = unsure
	}
	send := func(u *update, cond string) (item, error) { return s.update(k, w.ID, u, cond) }
	var spent item
	err = s.end(k, send, w.Write, w.Ending, steps, func(steps ifReleased) (*update, string) {
		if cleared != nil && w.Ending.State == protocol.Released {
			steps = cleared.after
		}
		u, names := s.ending(w.ID, w.Write, w.Ending, body, now, steps)
		u.wantsOld = w.Kind == protocol.EventResolve
		u.str(":seen", w.Seen)
		cond := ifSeen + ifUnknown
		if w.Kind == protocol.EventLapse {
			cond = ifSeen + ifLeft
			u.str(":in_progress", string(protocol.InProgress))
			u.str(":released", string(protocol.Released))
		} else {
			u.str(":unknown", string(protocol.Unknown))
		}
		if w.Owner != "" {
			u.add(", #owner = :owner")
			u.str(":owner", w.Owner)
			names |= nOwner
		}
		u.names = s.names.of(names)
		if cleared == nil {
			return u, cond + steps.condition()
		}
		// The write that was seen settles which steps there are.
		cleared.apply(u, names)
		return u, cond
	}, func(old item) { spent = old })
	if err == nil {
		s.expireSteps(k, w.ID, w.Ending, spent)
	}
	return err
}

// likely is the form of an end to try first: the engine gives an expiry exactly
// to the released records that have no steps.
func likely(e protocol.Ending) ifReleased {
	switch {
	case e.State != protocol.Released:
		return unsure
	case e.ExpiresAt.IsZero():
		return withSteps
	}
	return withoutSteps
}

// end sends an end in the form that fits the record's steps: the likely one
// first, the other one if that was refused because of the steps.
func (s *Store) end(k *call, send func(*update, string) (item, error), write string, e protocol.Ending, steps ifReleased, form func(ifReleased) (*update, string), applied ...func(item)) error {
	for n := 1; ; n++ {
		u, cond := form(steps)
		old, err := send(u, cond)
		if tooLarge(err, e, k) {
			return &protocol.TooLargeError{Size: len(e.Result), Limit: maxItem}
		}
		if err == errRefused && !bears(old, write) && steps != unsure && n < maxForms && hasSteps(old) != (steps == withSteps) {
			steps = withSteps + withoutSteps - steps
			continue
		}
		if err == nil {
			for _, f := range applied {
				f(old)
			}
		}
		return conclude(old, err, write)
	}
}

// ifReleased says for which records a form of a released end is.
type ifReleased uint8

const (
	unsure ifReleased = iota // it does not matter, or is not known
	withSteps
	withoutSteps
)

func (r ifReleased) condition() string {
	switch r {
	case withSteps:
		return ifSteps
	case withoutSteps:
		return ifNoSteps
	}
	return ""
}

// ending starts the update that makes of a record what the ending says. It
// returns the reserved names that it uses.
func (s *Store) ending(id, write string, e protocol.Ending, body protocol.Body, now time.Time, steps ifReleased) (*update, nameSet) {
	names := endNames
	u := newUpdate(endSet, 12, 10)
	u.str(":state", string(e.State))
	u.str(":write", write)
	u.num(":now", millis(now))
	open := e.State == protocol.Unknown || steps == withSteps
	if open {
		// The table never forgets an open question.
		u.expires(time.Time{})
	} else {
		u.expires(e.ExpiresAt)
	}
	u.open(id, open)
	u.uncertain(e.Uncertain)
	u.body(e.State, body)
	if e.State == protocol.Completed || e.State == protocol.Failed {
		// Nobody resumes any more: see [idem.Record].
		u.drop("steps")
	}
	if e.Failure != nil {
		u.add(", #error = :error")
		u.item[":error"] = encodeFailure(e.Failure)
	} else {
		u.drop("#error")
	}
	if e.Omitted {
		u.add(", unavailable = :unavailable")
		u.yes(":unavailable")
	} else {
		u.drop("unavailable")
	}
	if e.ResponseVersion != 0 {
		u.add(", rv = :rv")
		u.num(":rv", int64(e.ResponseVersion))
	} else {
		u.drop("rv")
	}
	if e.Stricter {
		u.add(", #repeat = :repeat")
		u.str(":repeat", protocol.NotRepeatable.String())
		names |= nRepeat
	}
	if e.Ref != "" {
		u.add(", #ref = :ref")
		u.str(":ref", e.Ref)
		names |= nRef
	}
	return u, names
}

// body sets where the result is, or that there is none.
func (u *update) body(state protocol.State, b protocol.Body) {
	switch {
	case state != protocol.Completed:
		u.drop("#result, parts, enc, #size")
		return
	case b.Parts > 0:
		u.add(", parts = :parts")
		u.item[":parts"] = encodeParts(b)
		u.drop("#result")
	default:
		u.add(", #result = :result")
		u.bytes(":result", b.Data)
		u.drop("parts")
	}
	if b.Encoding != "" {
		u.add(", enc = :enc")
		u.str(":enc", b.Encoding)
	} else {
		u.drop("enc")
	}
	if b.Encoding != "" || b.Parts > 0 {
		u.add(", #size = :size")
		u.num(":size", int64(b.Size))
	} else {
		u.drop("#size")
	}
}

// upgrade adds the result to an outcome that was recorded without it.
func (s *Store) upgrade(k *call, f protocol.Finish, body protocol.Body) error {
	if f.Ending.State != protocol.Completed || f.Unit != nil || f.Absent != nil || f.Born != nil {
		return k.fail(errors.New("Finish.Upgrades adds a result to a completed outcome, and nothing else: leave With, Absent and Born nil"))
	}
	u := newUpdate(upgradeSet, 6, 2)
	u.str(":owner", f.Owner)
	u.str(":completed", string(protocol.Completed))
	u.str(":seen", f.Upgrades)
	u.str(":write", f.Write)
	u.num(":v", schema.RecordVersion)
	u.drop("unavailable")
	u.body(protocol.Completed, body)
	u.names = s.names.of(nState | nWrite | nResult | nSize | nOwner)
	old, err := s.update(k, f.ID, u, ifFact)
	return conclude(old, err, f.Write)
}

// prepare checks an ending and stores its result's parts, before anything is
// written to the record, in a share of the call's time.
func (s *Store) prepare(k *call, id, owner string, e protocol.Ending, done *protocol.Progress, part float64) (protocol.Body, error) {
	switch e.State {
	case protocol.Completed:
	case protocol.Failed:
		if e.Failure == nil {
			return protocol.Body{}, k.fail(errors.New("an ending as failed needs its Failure"))
		}
		return protocol.Body{}, nil
	case protocol.Released, protocol.Unknown:
		return protocol.Body{}, nil
	default:
		return protocol.Body{}, k.fail(fmt.Errorf("an ending in state %q: use Completed, Failed, Released or Unknown", e.State))
	}
	if len(e.Result) > s.maxResult {
		return protocol.Body{}, &protocol.TooLargeError{Size: len(e.Result), Limit: s.maxResult}
	}
	b := s.codec.pack(e.Result)
	if b.Parts == 0 {
		return b, nil
	}
	if owner == "" {
		// The parked attempt may be writing its own parts under the owner that stays.
		return protocol.Body{}, k.fail(errors.New("a settlement with a large result needs a new Owner, which names its parts"))
	}
	k, cancel := k.share(part)
	defer cancel()
	return b, s.putParts(k, id, owner, b, e.ExpiresAt, done)
}
