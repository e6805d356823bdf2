package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// stepless refuses steps, as a store may that is not there yet.
type stepless struct{ *faulty }

func (stepless) RecordStep(context.Context, time.Time, protocol.StepWrite) error {
	return errors.ErrUnsupported
}

func (s stepless) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if f.Ending.State == protocol.Pending {
		return errors.ErrUnsupported
	}
	return s.faulty.Finish(ctx, now, f)
}

// fault is what makes a store broken, and the subtests that must find it.
type fault struct {
	name   string
	fails  []string
	change func(*faulty)
}

// brokenStores have one fault each.
var brokenStores = slices.Concat(claimFaults, endFaults, stepFaults, settleFaults, handlingFaults)

// The kinds of write, as a store applies them.
func claims(s *faulty) *apply[protocol.Claim]               { return &s.claim }
func withdrawals(s *faulty) *apply[protocol.Withdrawal]     { return &s.withdraw }
func extensions(s *faulty) *apply[protocol.Extension]       { return &s.extend }
func steps(s *faulty) *apply[protocol.StepWrite]            { return &s.step }
func ends(s *faulty) *apply[protocol.Finish]                { return &s.finish }
func settlements(s *faulty) *apply[protocol.Settlement]     { return &s.settle }
func references(s *faulty) *apply[protocol.ReferenceWrite]  { return &s.refer }
func prolongations(s *faulty) *apply[protocol.Prolongation] { return &s.prolong }

// before changes a write, or the record that the store takes for the one that is there. The record
// is a copy, and empty if there is none: what is changed in that has no effect.
func before[W any](kind func(*faulty) *apply[W], change func(w *W, rec *protocol.Record)) func(*faulty) {
	return func(s *faulty) {
		healthy := *kind(s)
		*kind(s) = func(w W, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec == nil {
				change(&w, new(protocol.Record))
				return healthy(w, nil, now)
			}
			seen := rec.Clone()
			change(&w, seen)
			next, err := healthy(w, seen, now)
			if next == seen {
				next = rec // the write has landed already
			}
			return next, err
		}
	}
}

// after changes what a write results in. One that has landed already, or is refused, changes nothing.
// The record before it is empty if there was none.
func after[W any](kind func(*faulty) *apply[W], change func(w W, old, next *protocol.Record)) func(*faulty) {
	return func(s *faulty) {
		healthy := *kind(s)
		*kind(s) = func(w W, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := healthy(w, rec, now)
			if err != nil || next == rec {
				return next, err
			}
			if rec == nil {
				rec = new(protocol.Record)
			}
			next = next.Clone()
			change(w, rec, next)
			return next, nil
		}
	}
}

// refuses refuses a write on a record.
func refuses[W any](kind func(*faulty) *apply[W], wrongly func(w W, rec *protocol.Record) bool) func(*faulty) {
	return instead(kind, func(w W, rec *protocol.Record) (*protocol.Record, error, bool) {
		return nil, &protocol.ConflictError{Existing: rec}, wrongly(w, rec)
	})
}

// landed takes a write on a record for one that has landed already.
func landed[W any](kind func(*faulty) *apply[W], wrongly func(w W, rec *protocol.Record) bool) func(*faulty) {
	return instead(kind, func(w W, rec *protocol.Record) (*protocol.Record, error, bool) {
		return rec, nil, wrongly(w, rec)
	})
}

// instead gives another answer than the healthy store to some writes on a record.
func instead[W any](
	kind func(*faulty) *apply[W], answer func(w W, rec *protocol.Record) (*protocol.Record, error, bool),
) func(*faulty) {
	return func(s *faulty) {
		healthy := *kind(s)
		*kind(s) = func(w W, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil {
				if next, err, wrongly := answer(w, rec); wrongly {
					return next, err
				}
			}
			return healthy(w, rec, now)
		}
	}
}

// blind takes a record for absent.
func blind[W any](
	kind func(*faulty) *apply[W], wrongly func(w W, rec *protocol.Record, now time.Time) bool,
) func(*faulty) {
	return func(s *faulty) {
		healthy := *kind(s)
		*kind(s) = func(w W, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && wrongly(w, rec, now) {
				rec = nil
			}
			return healthy(w, rec, now)
		}
	}
}

// claimFaults are faults of claims, extensions and withdrawals.
var claimFaults = []fault{
	{"takeover ignores Seen", []string{
		"claim/takeover fails after an extension", "race/one of many takeovers wins",
	}, before(claims, func(c *protocol.Claim, rec *protocol.Record) {
		if c.Seen != "" {
			c.Seen = rec.Write
		}
	})},
	{"claim overwrites what exists", []string{"claim/finds a record in_progress"},
		blind(claims, func(c protocol.Claim, _ *protocol.Record, _ time.Time) bool { return c.Seen == "" })},
	{"takeover forgets what was accepted", []string{
		"accept/is claimed, and its input goes with the outcome", "accept/keeps its input until there is an outcome",
	}, after(claims, func(c protocol.Claim, _, next *protocol.Record) {
		if next.Ticket = ""; c.Seen != "" {
			delete(next.Steps, protocol.AcceptedStep)
		}
	})},
	{"check then act", []string{
		"race/one of many claims wins", "race/one of many takeovers wins", "race/one of many resolutions wins",
	}, func(s *faulty) { s.gap = rendezvous() }},
	{"landed claim is not recognised", []string{"lost reply/claim", "lost reply/takeover"},
		refuses(claims, func(c protocol.Claim, rec *protocol.Record) bool { return rec.Write == c.Record.Write })},
	{"extension lowers the lease", []string{
		"delayed/older extension after a newer one", "race/extensions only raise the lease",
	}, before(extensions, func(_ *protocol.Extension, rec *protocol.Record) { rec.LeaseUntil = time.Time{} })},
	{"extension ignores the state", []string{
		"delayed/extension after the own park", "fencing/extension after the own completion",
	}, before(extensions, func(_ *protocol.Extension, rec *protocol.Record) { rec.State = protocol.InProgress })},
	{"extension leaves the write as it is", []string{
		"claim/takeover fails after an extension", "delayed/another call's park after an extension",
		"delayed/extension after the own park",
	}, before(extensions, func(e *protocol.Extension, rec *protocol.Record) { e.Write = rec.Write })},
	{"extension sets the expiry again", []string{
		"expiry/is not set again by an extension after a step", "late outcome/extension after another call's park",
	}, after(extensions, func(e protocol.Extension, _, next *protocol.Record) { next.ExpiresAt = e.ExpiresAt })},
	{"extension of a parked attempt is refused", []string{
		"delayed/extension after the own park", "late outcome/extension after another call's park",
	}, refuses(extensions, func(_ protocol.Extension, rec *protocol.Record) bool {
		return rec.State == protocol.Unknown
	})},
	{"extension creates a deleted record", []string{"fencing/extension after deletion"}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec == nil {
				return &protocol.Record{ID: e.ID, Owner: e.Owner, Write: e.Write, LeaseUntil: e.LeaseUntil}, nil
			}
			return e.Apply(rec, now)
		}
	}},
	{"takeover drops the steps", []string{"claim/takeover keeps identity and steps and nothing else"},
		after(claims, func(_ protocol.Claim, _, next *protocol.Record) { next.Steps = nil })},
	{"takeover keeps the failure and the reference", []string{
		"claim/takes over a record failed", "claim/takeover keeps identity and steps and nothing else",
	}, after(claims, func(_ protocol.Claim, old, next *protocol.Record) {
		next.Failure, next.Ref = old.Failure, old.Ref
	})},
	{"replacement keeps the result", []string{"claim/replaces a record completed"},
		after(claims, func(c protocol.Claim, old, next *protocol.Record) {
			if c.Replace {
				next.Body = old.Body
			}
		})},
	{"replacement keeps the expiry", []string{"expiry/of an expired record is removed with all else"},
		after(claims, func(c protocol.Claim, old, next *protocol.Record) {
			if c.Replace {
				next.ExpiresAt = old.ExpiresAt
			}
		})},
	{"expired records are hidden", []string{"expiry/never hides a record from a read or a claim"},
		blind(claims, func(c protocol.Claim, rec *protocol.Record, now time.Time) bool {
			return rec.Expired(now) && c.Seen == ""
		})},
	{"withdrawal needs a record", []string{"delayed/claim after its withdrawal"}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec == nil {
				return nil, &protocol.ConflictError{}
			}
			return w.Apply(rec, now)
		}
	}},
	{"withdrawal keeps the write", []string{
		"delayed/takeover after its withdrawal", "delayed/replacement after its withdrawal",
	}, after(withdrawals, func(_ protocol.Withdrawal, old, next *protocol.Record) { next.Write = old.Write })},
	{"withdrawal ignores what was seen", []string{
		"delayed/takeover after its withdrawal", "claim/on a deleted record reserves again, replace false",
		"claim/on a deleted record reserves again, replace true", "delayed/withdrawal brings no steps back",
	}, before(withdrawals, func(w *protocol.Withdrawal, _ *protocol.Record) { w.Claim.Seen = "" })},
	{"withdrawal deletes the winner's claim", []string{
		"fencing/withdrawal after a takeover",
	}, before(withdrawals, func(w *protocol.Withdrawal, rec *protocol.Record) { w.Claim.Seen = rec.Write })},
	{"withdrawn replacement keeps the steps", []string{"delayed/withdrawn replacement drops the steps"},
		before(withdrawals, func(w *protocol.Withdrawal, _ *protocol.Record) { w.Claim.Replace = false })},
	{"withdrawn takeover drops the steps", []string{"delayed/withdrawn takeover keeps the steps"},
		after(withdrawals, func(_ protocol.Withdrawal, _, next *protocol.Record) { next.Steps = nil })},
}

// rendezvous holds a writer between its check and its act until another one has
// checked too, or for a while where there is no other.
func rendezvous() func() {
	var mu sync.Mutex
	waiting := make(chan struct{})
	return func() {
		mu.Lock()
		mine := waiting
		select {
		case <-mine:
		default:
			close(mine)
			waiting = make(chan struct{})
			mine = waiting
		}
		mu.Unlock()
		select {
		case <-mine:
		case <-time.After(time.Millisecond):
		}
	}
}
