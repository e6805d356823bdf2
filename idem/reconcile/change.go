package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Change says who changes a record, and why. It is kept in the record's history.
type Change struct {
	// Actor is a person or a program, such as an address or a function's name. Required.
	Actor string
	// Reason is for those who read it in a year. Required.
	Reason string
	// Tool is what the change was made with, such as "console". Optional.
	Tool string
	// IfWrite is the Write of the record that the decision is about. If the record has been
	// written since, nothing is changed and the error is [ErrChanged]. Empty means the record as
	// it is now. It is not kept. For a pause see [Reconciler.Resume].
	IfWrite string
	// DecisionID names the decision, for its maker, such as a digest of a form: at most 64 letters,
	// digits, - and _. [Change.Made] finds its change in the history. Optional.
	DecisionID string
}

const (
	// maxText bounds a text of a change in bytes.
	maxText = 4 << 10
	// maxID bounds Change.DecisionID in bytes: a SHA-256 in hexadecimal fits.
	maxID = 64
)

// Made reports whether the entry is of the decision with this DecisionID.
func (c Change) Made(a protocol.Audit) bool {
	return c.DecisionID != "" && strings.HasPrefix(a.Entry, c.DecisionID+".")
}

func (c Change) check() error {
	switch {
	case strings.TrimSpace(c.Actor) == "":
		return invalid("change", "Change.Actor is empty: say who makes it, such as a person's address or a function's name")
	case strings.TrimSpace(c.Reason) == "":
		return invalid("change", "Change.Reason is empty: say why, for those who read it in a year")
	case len(c.Actor) > maxText || len(c.Reason) > maxText || len(c.Tool) > maxText:
		return invalid("change", "Change has a text of more than %d bytes: shorten it, and link to the rest", maxText)
	case len(c.DecisionID) > maxID || strings.ContainsFunc(c.DecisionID, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
	}):
		return invalid("change", "Change.DecisionID is %q: use at most %d letters, digits, - and _, such as a digest",
			c.DecisionID, maxID)
	}
	return nil
}

// about reports whether the record is the one that the change is about.
func (c Change) about(rec *idem.Record) error {
	if c.IfWrite != "" && rec.Write != c.IfWrite {
		return fmt.Errorf("%w: it is %s, attempt %d", ErrChanged, rec.State, rec.Attempt)
	}
	return nil
}

// audit is the entry of a change of the record.
func (r *Reconciler) audit(rec *idem.Record, by Change, change protocol.Change, to idem.State,
	ref string) *protocol.Audit {
	now, entry := r.now(), newID()
	if by.DecisionID != "" { // each try of a decision is another entry
		entry = by.DecisionID + "." + entry
	}
	return &protocol.Audit{
		ID: rec.ID, Entry: entry, At: now, Who: by.Actor, Why: by.Reason, Tool: by.Tool,
		Change: change, From: rec.State, To: to, Attempt: rec.Attempt, Ref: ref,
		ExpiresAt: now.Add(r.opts.AuditRetention),
	}
}

// revise has write change the record with the id, as it is now; nil is an absent one. If another
// write was faster, write sees the record again.
func (r *Reconciler) revise(ctx context.Context, id string, by Change, write func(rec *idem.Record) error) error {
	rec, err := r.store.Get(ctx, id)
	if err != nil {
		return err
	}
	for l := protocol.Follow(r.store, id, rec); l.Next(); {
		if l.Seen != nil {
			if err := by.about(l.Seen); err != nil {
				return err
			}
		}
		err := write(l.Seen)
		if err == nil {
			return nil
		}
		if err := l.Again(ctx, err); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it keeps being written", ErrChanged)
}

// Extend keeps a record that has ended, with its result, at least until a time, for example
// while a queue whose messages are its retries is paused, or during a dispute. Until then a
// later call gets its outcome. A record that is kept as long already stays as it is. It
// cannot be kept for a shorter time than it is: [Reconciler.Forget] removes it.
//
// An open question, and a record in progress, give [ErrOpen]: they are kept until they have an
// outcome, and Resolve gives it the operation's retention. A record that has expired gives
// [ErrExpired], an absent one [ErrNotFound]: it is too late, and the next call runs the handler
// again. A call that has found the record expired by its own clock and an operator who extends it
// may come at the same time: the first one counts, and the other one gets an error.
//
// If the attempt has recorded the outcome without its result, which it would add later, an
// extension in between keeps it from doing so: [idem.Record]'s Omitted shows it.
// A resolution over the one that was extended ([Resolution.Replace]) is kept at least as long.
func (r *Reconciler) Extend(ctx context.Context, id string, until time.Time, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	if !until.After(r.now()) || until.After(never) {
		return invalid("extension", "until is %s: use a time in the future, before the year 9999", until.Format(time.RFC3339))
	}
	until = protocol.RoundUp(until.UTC(), time.Second)
	return r.revise(ctx, id, by, func(rec *idem.Record) error {
		if rec == nil {
			return fmt.Errorf("%w: %q: it has expired and was deleted, or there never was one", ErrNotFound, id)
		}
		switch r.prolongs(rec, until) {
		case protocol.DoNothing:
			return nil
		case protocol.DoRefuse:
			if rec.Ended() {
				return fmt.Errorf("%w at %s: the next call runs the handler again", ErrExpired, rec.ExpiresAt.Format(time.RFC3339))
			}
			return fmt.Errorf("%w or kept for longer: this one is %s, and is kept until it has an outcome", ErrOpen, rec.State)
		}
		p := protocol.Prolongation{
			ID: id, Seen: rec.Write, Write: newID(), ExpiresAt: until,
			Audit: r.audit(rec, by, protocol.ChangeExtended, rec.State, ""),
		}
		p.Audit.Until = until
		return again(ctx, func() error { return r.store.Prolong(ctx, r.now(), p) })
	})
}

// prolongs is what the machine says to keeping the record until a time.
func (r *Reconciler) prolongs(rec *idem.Record, until time.Time) protocol.Action {
	return protocol.Next(rec, protocol.Event{Kind: protocol.EventProlong, Seen: rec.Write, ExpiresAt: until}, r.now()).Do
}

// Forget removes a record that has ended, with its result, for a person's right to
// erasure or for tests. Its price: a later call with the key runs the handler again, with the
// same token, and the messages that it publishes then have other ids. An open question, and a record in progress,
// give [ErrOpen]. No record counts as removed. The check record of an operation with a secret is not removed.
// Results of steps that are stored next to the record stay until its retention is over, and
// published messages until theirs is. The record is removed before the parts of a large
// result. Parts that an error leaves expire, in DynamoDB a day after the retention.
func (r *Reconciler) Forget(ctx context.Context, id string, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	if protocol.IsCheckID(id) {
		return fmt.Errorf("%w: %s has the check value of its operation's secret, and must stay", ErrOpen, id)
	}
	return r.revise(ctx, id, by, func(rec *idem.Record) error {
		if rec == nil {
			return nil
		}
		if !r.forgets(rec) {
			return fmt.Errorf("%w: this one is %s: resolve it first, or if it is in progress wait for its lease",
				ErrOpen, rec.State)
		}
		return r.store.Forget(ctx, r.now(), protocol.Erasure{
			ID: id, Seen: rec.Write, Audit: r.audit(rec, by, protocol.ChangeForgotten, idem.Absent, ""),
		})
	})
}

// forgets reports whether the record can be removed.
func (r *Reconciler) forgets(rec *idem.Record) bool {
	return protocol.Next(rec, protocol.Event{Kind: protocol.EventForget, Seen: rec.Write}, r.now()).Do == protocol.DoApply
}
