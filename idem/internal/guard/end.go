package guard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// End is an attempt's last write on its way: how it ended. A result that cannot
// be stored in time does not hold it up: the end is then written without it first,
// which is the fact, and the result is added to that.
type End struct {
	Finish    protocol.Finish // the whole, with its result
	Summary   []byte          // what the fact keeps of the result
	Retention time.Duration
	Attempt   int // its number
	// Fact is the write id of the end without its result; set while the result is owed.
	Fact string
	// Written is set once the end is written, with its result or as the fact.
	Written bool
	// Recorded is the time under which it was last sent.
	Recorded time.Time
	// Omitted is why the result was given up.
	Omitted error
	// whole is the write id under which the end was sent first. It may land late.
	whole string
}

// Owes reports whether the end was, or will be, written without its result, which is
// still to be added.
func (t *End) Owes() bool { return t.Fact != "" }

// spare is what giving up the result would free, zero where that is not worth it.
func (t *End) spare() int {
	n := len(t.Finish.Ending.Result) - len(t.Summary)
	if t.Finish.Ending.State != protocol.Completed || t.Finish.Ending.Omitted || n < pendingOverhead {
		return 0
	}
	return n
}

// Drop gives the result up: the fact is all that there will be.
func (t *End) Drop(why error) {
	t.Fact = cmp.Or(t.Fact, protocol.NewID())
	t.Finish, t.Fact, t.Omitted = t.asFact(), "", why
}

// asFact is the end without its result.
func (t *End) asFact() protocol.Finish {
	f := t.Finish
	if t.Owes() {
		f.Write, f.Ending.Result, f.Ending.Omitted, f.Progress = t.Fact, t.Summary, true, nil
	}
	return f
}

// Write writes how the attempt ended. Repeating it is safe. The retention counts from
// the write that lands: every try has its own times, under the same write id, and
// none can land after another one.
//
// A result that the store cannot keep at all, or not in time, costs the end nothing
// but the result, and the text of an error nothing but the text.
func (p *Pending) Write(ctx context.Context, t *End) error {
	t.whole = cmp.Or(t.whole, t.Finish.Write)
	err := p.send(ctx, t)
	if !t.Owes() && t.shorten(err) {
		err = p.send(ctx, t)
	}
	if conflict, ok := errors.AsType[*protocol.ConflictError](err); ok && conflict.Existing.Bears(t.whole) {
		// An earlier try with the result has landed after all.
		t.Fact, t.Omitted, err = "", nil, nil
	}
	t.Written = err == nil
	return err
}

// shorten leaves out what the store could not keep of the end, or not in time. It returns false if
// that is not why the end was not written.
func (t *End) shorten(err error) bool {
	end := &t.Finish.Ending
	_, large := errors.AsType[*protocol.TooLargeError](err)
	failed, _ := errors.AsType[*protocol.StoreError](err)
	switch {
	case large && end.State == protocol.Completed:
		t.Drop(err)
	case large && end.Failure != nil:
		t.Finish.Write, end.Failure = protocol.NewID(), protocol.ShortFailure(end.Failure)
	case failed != nil && failed.ResultNotStored && end.State == protocol.Completed && !end.Omitted:
		t.Fact = protocol.NewID()
	default:
		return false
	}
	return true
}

// send sends the end, without its result if that is owed.
func (p *Pending) send(ctx context.Context, t *End) error {
	t.Recorded = p.now()
	if !t.Finish.Ending.ExpiresAt.IsZero() {
		t.Finish.Ending.ExpiresAt = p.expiry(t.Recorded, t.Retention, len(t.Finish.Ending.Result))
	}
	return p.confirm(ctx, t.Recorded, t.asFact())
}

// confirm writes an end, and reads a conflicting record that the answer does not
// show.
func (p *Pending) confirm(ctx context.Context, now time.Time, f protocol.Finish) error {
	err := p.Store.Finish(ctx, now, f)
	if ConflictUnseen(err) {
		err = p.Reread(ctx, now, f)
	}
	return err
}

// AddResult adds the result to an end that is written as the fact. It can land on that
// very write and nowhere else, and changes neither the record's expiry nor when the
// outcome was recorded. Where the fact no longer exists, the result is given up.
func (p *Pending) AddResult(ctx context.Context, t *End) error {
	f := t.Finish
	f.Attempt, f.LargeSteps = protocol.WithoutResult{Write: t.Fact}, false
	err := p.confirm(ctx, t.Recorded, f)
	_, large := errors.AsType[*protocol.TooLargeError](err)
	switch {
	case err == nil:
		t.Fact = ""
	case protocol.Answers(err), large:
		t.Drop(err)
	default:
		return err
	}
	return nil
}

// ConflictUnseen reports whether the answer does not show the conflicting record.
func ConflictUnseen(err error) bool {
	conflict, ok := errors.AsType[*protocol.ConflictError](err)
	return errors.Is(err, protocol.ErrRecordUnreadable) || ok && conflict.Existing == nil
}

// Reread reads a conflicting record that the answer did not show. A record
// that the attempt still holds gets the write once more.
func (p *Pending) Reread(ctx context.Context, now time.Time, f protocol.Finish) error {
	rec, gErr := p.Store.Get(protocol.WithoutRetryQuota(ctx), f.ID)
	switch {
	case gErr != nil && protocol.Answers(gErr):
		return gErr
	case gErr != nil:
		// It is not known now: the write is repeated later, and is fenced then too.
		return &protocol.StoreError{Op: "finish", Ambiguous: true, Err: gErr}
	case rec.Bears(f.Write):
		return nil
	case protocol.Next(rec, f.Event(), now).Do == protocol.DoApply:
		err := p.Store.Finish(ctx, now, f)
		if ConflictUnseen(err) {
			return &protocol.StoreError{Op: "finish", Ambiguous: true, Err: errors.New(err.Error())}
		}
		return err
	}
	return &protocol.ConflictError{Existing: rec}
}
