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

// as returns a copy of the record that the writer takes for its own.
func as(rec *protocol.Record, change func(*protocol.Record)) *protocol.Record {
	if rec == nil {
		return nil
	}
	rec = rec.Clone()
	change(rec)
	return rec
}

// fault is what makes a store broken, and the subtests that must find it.
type fault struct {
	name   string
	fails  []string
	change func(*faulty)
}

// brokenStores have one fault each.
var brokenStores = slices.Concat(claimFaults, endFaults, handlingFaults)

// claimFaults are faults of claims, extensions and withdrawals.
var claimFaults = []fault{
	{"takeover ignores Seen", []string{
		"claim/takeover fails after an extension", "race/one of many takeovers wins",
	}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if c.Seen != "" && rec != nil {
				c.Seen = rec.Write
			}
			return c.Apply(rec, now)
		}
	}},
	{"claim overwrites what exists", []string{"claim/finds a record in_progress"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if c.Seen == "" {
				rec = nil
			}
			return c.Apply(rec, now)
		}
	}},
	{"takeover forgets what was accepted", []string{
		"accept/is claimed, and its input goes with the outcome", "accept/keeps its input until there is an outcome",
	}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) {
				if r.Ticket = ""; c.Seen != "" {
					delete(r.Steps, protocol.AcceptedStep)
				}
			}), err
		}
	}},
	{"check then act", []string{
		"race/one of many claims wins", "race/one of many takeovers wins", "race/one of many resolutions wins",
	}, func(s *faulty) { s.gap = rendezvous() }},
	{"landed claim is not recognised", []string{"lost reply/claim", "lost reply/takeover"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.Write == c.Record.Write {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return c.Apply(rec, now)
		}
	}},
	{"extension lowers the lease", []string{
		"delayed/older extension after a newer one", "race/extensions only raise the lease",
	}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			return e.Apply(as(rec, func(r *protocol.Record) { r.LeaseUntil = time.Time{} }), now)
		}
	}},
	{"extension ignores the state", []string{
		"delayed/extension after the own park", "delayed/extension after the end",
	}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			return e.Apply(as(rec, func(r *protocol.Record) { r.State = protocol.InProgress }), now)
		}
	}},
	{"extension leaves the write as it is", []string{
		"claim/takeover fails after an extension", "delayed/another call's park after an extension",
		"delayed/extension after the own park",
	}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil {
				e.Write = rec.Write
			}
			return e.Apply(rec, now)
		}
	}},
	{"extension sets the expiry again", []string{
		"expiry/is not set again by an extension after a step", "fencing/extension after another call's park",
	}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := e.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.ExpiresAt = e.ExpiresAt }), err
		}
	}},
	{"extension of a parked attempt is refused", []string{
		"delayed/extension after the own park", "fencing/extension after another call's park",
	}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.State == protocol.Unknown {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return e.Apply(rec, now)
		}
	}},
	{"extension creates a deleted record", []string{"fencing/extension after deletion"}, func(s *faulty) {
		s.extend = func(e protocol.Extension, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec == nil {
				return &protocol.Record{ID: e.ID, Owner: e.Owner, Write: e.Write, LeaseUntil: e.LeaseUntil}, nil
			}
			return e.Apply(rec, now)
		}
	}},
	{"takeover drops the steps", []string{"claim/takeover keeps identity and steps and nothing else"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Steps = nil }), err
		}
	}},
	{"takeover keeps the failure and the reference", []string{
		"claim/takes over a record failed", "claim/takeover keeps identity and steps and nothing else",
	}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && rec != nil && rec != next {
				next.Failure, next.Ref = rec.Failure, rec.Ref
			}
			return next, err
		}
	}},
	{"replacement keeps the result", []string{"claim/replaces a record completed"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.Body = rec.Body
			}
			return next, err
		}
	}},
	{"replacement keeps the expiry", []string{"expiry/of an expired record is gone with all else"}, func(s *faulty) {
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.ExpiresAt = rec.ExpiresAt
			}
			return next, err
		}
	}},
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
	}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) {
				if rec != nil {
					r.Write = rec.Write
				}
			}), err
		}
	}},
	{"withdrawal ignores what was seen", []string{
		"delayed/takeover after its withdrawal", "delayed/withdrawal of a takeover after deletion",
		"delayed/withdrawal of a replacement after deletion", "delayed/withdrawal brings no steps back",
	}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			w.Claim.Seen = ""
			return w.Apply(rec, now)
		}
	}},
	{"withdrawal deletes the winner's claim", []string{
		"delayed/withdrawal after another call's takeover of the claim", "fencing/withdrawal after a takeover",
	}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil {
				w.Claim.Seen = rec.Write
			}
			return w.Apply(rec, now)
		}
	}},
	{"withdrawn replacement keeps the steps", []string{"delayed/withdrawn replacement drops the steps"}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			w.Claim.Replace = false
			return w.Apply(rec, now)
		}
	}},
	{"withdrawn takeover drops the steps", []string{"delayed/withdrawn takeover keeps the steps"}, func(s *faulty) {
		s.withdraw = func(w protocol.Withdrawal, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Steps = nil }), err
		}
	}},
}

// changed changes the record that a write resulted in; a write that had landed
// before, or was refused, stays as it is.
func changed(next, old *protocol.Record, err error, change func(*protocol.Record)) *protocol.Record {
	if err != nil || next == old {
		return next
	}
	return as(next, change)
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
