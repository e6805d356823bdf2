package idem

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// terminal is an attempt's last write on its way: how it ended. A result that cannot
// be stored in time does not hold it up: the end is then written without it first,
// which is the fact, and the result is added to that.
type terminal struct {
	f         protocol.Finish // the whole, with its result
	kept      []byte          // what the fact keeps of the result
	retention time.Duration
	// fact is the write id of the end without its result; set while the result is owed.
	fact string
	// whole is the write id under which the end was sent first. It may land late.
	whole string
	// written is set once the end is written, with its result or as the fact.
	written bool
	// recorded is the time under which it was last sent.
	recorded time.Time
	// omitted is why the result was given up.
	omitted error
}

// owes reports whether the end was, or will be, written without its result, which is
// still to be added.
func (t *terminal) owes() bool { return t.fact != "" }

// spare is what giving up the result would free, zero where that is not worth it.
func (t *terminal) spare() int {
	n := len(t.f.Ending.Result) - len(t.kept)
	if t.f.Ending.State != Completed || t.f.Ending.Omitted || n < pendingOverhead {
		return 0
	}
	return n
}

// drop gives the result up: the fact is all that there will be.
func (t *terminal) drop(why error) {
	t.fact = cmp.Or(t.fact, newID())
	t.f, t.fact, t.omitted = t.asFact(), "", why
}

// asFact is the end without its result.
func (t *terminal) asFact() protocol.Finish {
	f := t.f
	if t.owes() {
		f.Write, f.Ending.Result, f.Ending.Omitted, f.Progress = t.fact, t.kept, true, nil
	}
	return f
}

// writeTerminal writes how the attempt ended. Repeating it is safe. The retention counts from
// the write that lands: every try has its own times, under the same write id, and
// none can land after another one.
//
// A result that the store cannot keep at all, or not in time, costs the end nothing
// but the result, and the text of an error nothing but the text.
func (e *Engine) writeTerminal(ctx context.Context, t *terminal) error {
	t.whole = cmp.Or(t.whole, t.f.Write)
	var err error
	if !t.owes() {
		err = e.sendTerminal(ctx, t)
		_, large := errors.AsType[*protocol.TooLargeError](err)
		failed, _ := errors.AsType[*StoreError](err)
		switch {
		case large && t.f.Ending.State == Completed:
			t.drop(err)
			err = e.sendTerminal(ctx, t)
		case large && t.f.Ending.Failure != nil:
			t.f.Write, t.f.Ending.Failure = newID(), shortFailure(t.f.Ending.Failure)
			err = e.sendTerminal(ctx, t)
		case failed != nil && failed.ResultNotStored && t.f.Ending.State == Completed && !t.f.Ending.Omitted:
			t.fact = newID()
			err = e.sendTerminal(ctx, t)
		}
	} else {
		err = e.sendTerminal(ctx, t)
	}
	if conflict, ok := errors.AsType[*protocol.ConflictError](err); ok && conflict.Existing.Bears(t.whole) {
		// An earlier try with the result has landed after all.
		t.fact, t.omitted, err = "", nil, nil
	}
	t.written = err == nil
	return err
}

// sendTerminal sends the end, without its result if that is owed.
func (e *Engine) sendTerminal(ctx context.Context, t *terminal) error {
	t.recorded = e.now()
	if !t.f.Ending.ExpiresAt.IsZero() {
		t.f.Ending.ExpiresAt = e.expiry(t.recorded, t.retention, len(t.f.Ending.Result))
	}
	return e.confirmFinish(ctx, t.recorded, t.asFact())
}

// confirmFinish writes an end, and reads a conflicting record that the answer does not
// show.
func (e *Engine) confirmFinish(ctx context.Context, now time.Time, f protocol.Finish) error {
	err := e.store.Finish(ctx, now, f)
	if conflictUnseen(err) {
		err = e.reread(ctx, now, f)
	}
	return err
}

// addResult adds the result to an end that is written as the fact. It can land on that
// very write and nowhere else, and changes neither the record's expiry nor when the
// outcome was recorded. Where the fact is gone the result is given up.
func (e *Engine) addResult(ctx context.Context, t *terminal) error {
	f := t.f
	f.Attempt, f.LargeSteps = protocol.WithoutResult{Write: t.fact}, false
	err := e.confirmFinish(ctx, t.recorded, f)
	var large *protocol.TooLargeError
	switch {
	case err == nil:
		t.fact = ""
	case protocol.Answers(err), errors.As(err, &large):
		t.drop(err)
	default:
		return err
	}
	return nil
}

// conflictUnseen reports whether the answer does not show the conflicting record.
func conflictUnseen(err error) bool {
	conflict, ok := errors.AsType[*protocol.ConflictError](err)
	return errors.Is(err, ErrRecordUnreadable) || ok && conflict.Existing == nil
}

// reread reads a conflicting record that the answer did not show. A record
// that the attempt still holds gets the write once more.
func (e *Engine) reread(ctx context.Context, now time.Time, f protocol.Finish) error {
	rec, gErr := e.store.Get(protocol.WithoutRetryQuota(ctx), f.ID)
	switch {
	case gErr != nil && protocol.Answers(gErr):
		return gErr
	case gErr != nil:
		// Not to be told now: the write is repeated later, and is fenced then too.
		return &StoreError{Op: "finish", Ambiguous: true, Err: gErr}
	case rec.Bears(f.Write):
		return nil
	case protocol.Next(rec, f.Event(), now).Do == protocol.DoApply:
		err := e.store.Finish(ctx, now, f)
		if conflictUnseen(err) {
			return &StoreError{Op: "finish", Ambiguous: true, Err: errors.New(err.Error())}
		}
		return err
	}
	return &protocol.ConflictError{Existing: rec}
}

// own returns a copy that shares nothing with the call that it comes from: a part of
// a text or of a buffer keeps the whole of it in memory.
func (t *terminal) own() *terminal {
	c := *t
	f := &c.f
	f.ID, f.Owner, f.Write = strings.Clone(f.ID), strings.Clone(f.Owner), strings.Clone(f.Write)
	f.Ending.Result, c.kept = slices.Clone(f.Ending.Result), slices.Clone(t.kept)
	if old := f.Ending.Failure; old != nil {
		f.Ending.Failure = &Failure{Message: strings.Clone(old.Message), Type: strings.Clone(old.Type), Code: strings.Clone(old.Code)}
	}
	return &c
}

// size is what the copy takes besides its fixed part.
func (t *terminal) size() int {
	n := len(t.f.Ending.Result) + len(t.kept)
	if f := t.f.Ending.Failure; f != nil {
		n += len(f.Message) + len(f.Type) + len(f.Code)
	}
	return n
}

// ownWithdrawal does the same for a withdrawal.
func ownWithdrawal(w protocol.Withdrawal) *protocol.Withdrawal {
	w.Claim.Record = ownRecord(&w.Claim.Record)
	return &w
}

func ownRecord(rec *Record) Record {
	c := *rec.Clone()
	c.ID, c.Value, c.Fingerprint = strings.Clone(c.ID), strings.Clone(c.Value), Fingerprint(strings.Clone(string(c.Fingerprint)))
	return c
}

// recordSize is the size of what an engine's own claim can hold.
func recordSize(rec *Record) int {
	n := recordOverhead + len(rec.Value)
	for name, s := range rec.Steps {
		n += recordOverhead + len(name) + len(s.Body.Data)
		if s.Failure != nil {
			n += len(s.Failure.Message) + len(s.Failure.Type) + len(s.Failure.Code)
		}
	}
	return n
}
