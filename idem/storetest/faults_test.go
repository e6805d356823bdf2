package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// stepless refuses steps, as a store may that is not there yet.
type stepless struct{ *lab }

func (stepless) RecordStep(context.Context, time.Time, idem.StepWrite) error {
	return errors.ErrUnsupported
}

// as returns a copy of the record that the writer takes for its own.
func as(rec *idem.Record, change func(*idem.Record)) *idem.Record {
	if rec == nil {
		return nil
	}
	rec = rec.Clone()
	change(rec)
	return rec
}

// brokenStores have one fault each, and the subtests that must find it.
var brokenStores = []struct {
	name   string
	fails  []string
	change func(*lab)
}{
	{"end ignores the owner", []string{
		"fencing/completion after a takeover", "fencing/park after a takeover",
	}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			return f.Apply(as(rec, func(r *idem.Record) { r.Owner = f.Owner }), now)
		}
	}},
	{"end ignores the state", []string{
		"fencing/completion after a resolution to failed", "delayed/completion after a resolution",
	}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			return f.Apply(as(rec, func(r *idem.Record) { r.Owner, r.State = f.Owner, idem.InProgress }), now)
		}
	}},
	{"takeover ignores Seen", []string{
		"claim/takeover fails after an extension", "race/one of many takeovers wins",
	}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if c.Seen != "" && rec != nil {
				c.Seen = rec.Write
			}
			return c.Apply(rec, now)
		}
	}},
	{"claim overwrites what exists", []string{"claim/meets a record in_progress"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if c.Seen == "" {
				rec = nil
			}
			return c.Apply(rec, now)
		}
	}},
	{"check then act", []string{
		"race/one of many claims wins", "race/one of many takeovers wins", "race/one of many resolutions wins",
	}, func(s *lab) { s.gap = meet() }},
	{"any own write counts as landed", []string{
		"write id/own release is not a completion", "fencing/completion after the own failure",
	}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && rec.Owner == f.Owner && rec.State != idem.InProgress {
				return rec, nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"landed claim is not recognised", []string{"lost reply/claim", "lost reply/takeover"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && rec.Write == c.Record.Write {
				return nil, &idem.ConflictError{Existing: rec}
			}
			return c.Apply(rec, now)
		}
	}},
	{"landed end is not recognised", []string{"lost reply/completion", "lost reply/release"}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := f.Apply(as(rec, func(r *idem.Record) { r.Write = "" }), now)
			if err != nil {
				err = &idem.ConflictError{Existing: rec}
			}
			return next, err
		}
	}},
	{"landed settlement is not recognised", []string{
		"lost reply/twin's park", "lost reply/resolution to retryable",
	}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && rec.Write == w.Write {
				return nil, &idem.ConflictError{Existing: rec}
			}
			return w.Apply(rec, now)
		}
	}},
	{"landed step is known by the record's write", []string{"write id/a step counts as landed after later writes"},
		func(s *lab) {
			s.step = func(w idem.StepWrite, rec *idem.Record, now time.Time) (*idem.Record, error) {
				if rec != nil && rec.Write != w.Write && rec.Steps[w.Name].Write == w.Write {
					return nil, &idem.ConflictError{Existing: rec}
				}
				return w.Apply(rec, now)
			}
		}},
	{"extension lowers the lease", []string{
		"delayed/older extension after a newer one", "race/extensions only raise the lease",
	}, func(s *lab) {
		s.extend = func(e idem.Extension, rec *idem.Record, now time.Time) (*idem.Record, error) {
			return e.Apply(as(rec, func(r *idem.Record) { r.LeaseUntil = time.Time{} }), now)
		}
	}},
	{"extension ignores the state", []string{
		"delayed/extension after the own park", "delayed/extension after the end",
	}, func(s *lab) {
		s.extend = func(e idem.Extension, rec *idem.Record, now time.Time) (*idem.Record, error) {
			return e.Apply(as(rec, func(r *idem.Record) { r.State = idem.InProgress }), now)
		}
	}},
	{"extension leaves the write as it is", []string{
		"claim/takeover fails after an extension", "delayed/twin's park after an extension",
	}, func(s *lab) {
		s.extend = func(e idem.Extension, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil {
				e.Write = rec.Write
			}
			return e.Apply(rec, now)
		}
	}},
	{"extension gives the expiry back", []string{"expiry/does not come back with an extension after a step"},
		func(s *lab) {
			s.extend = func(e idem.Extension, rec *idem.Record, now time.Time) (*idem.Record, error) {
				next, err := e.Apply(rec, now)
				return changed(next, rec, err, func(r *idem.Record) { r.ExpiresAt = e.ExpiresAt }), err
			}
		}},
	{"extension creates a deleted record", []string{"fencing/extension after deletion"}, func(s *lab) {
		s.extend = func(e idem.Extension, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec == nil {
				return &idem.Record{ID: e.ID, Owner: e.Owner, Write: e.Write, LeaseUntil: e.LeaseUntil}, nil
			}
			return e.Apply(rec, now)
		}
	}},
	{"takeover drops the steps", []string{"claim/takeover keeps identity and steps and nothing else"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := c.Apply(rec, now)
			return changed(next, rec, err, func(r *idem.Record) { r.Steps = nil }), err
		}
	}},
	{"takeover keeps the failure and the reference", []string{
		"claim/takes over a record failed", "claim/takeover keeps identity and steps and nothing else",
	}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && rec != nil && rec != next {
				next.Failure, next.Ref = rec.Failure, rec.Ref
			}
			return next, err
		}
	}},
	{"replacement keeps the result", []string{"claim/replaces a record completed"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.Body = rec.Body
			}
			return next, err
		}
	}},
	{"replacement keeps the expiry", []string{"expiry/of an expired record is gone with all else"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.ExpiresAt = rec.ExpiresAt
			}
			return next, err
		}
	}},
	{"replacement keeps the steps", []string{"expiry/of a completed record with steps is gone with them"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.Steps = rec.Steps
			}
			return next, err
		}
	}},
	{"twin's park drops the owner", []string{
		"settle/twin's park keeps the owner and the lease", "late outcome/completion after a twin's park",
	}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *idem.Record) { r.Owner = w.Owner }), err
		}
	}},
	{"twin's park keeps the expiry", []string{"expiry/is removed by a twin's park"}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(rec, now)
			if err == nil && w.Kind == idem.EventLapse && next != rec {
				next.ExpiresAt = rec.ExpiresAt
			}
			return next, err
		}
	}},
	{"twin's park keeps a repeatable declaration",
		[]string{"late outcome/twin's park keeps a repeatable attempt's declaration strict"}, func(s *lab) {
			s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
				w.Ending.Stricter = false
				return w.Apply(rec, now)
			}
		}},
	{"resolution keeps the owner", []string{
		"settle/resolution replaces the owner", "settle/resolution with a large result",
	}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			w.Owner = ""
			return w.Apply(rec, now)
		}
	}},
	{"settlement ignores Seen", []string{
		"settle/resolution of what it has not seen", "delayed/twin's park after an extension",
		"race/one of many parks by twins wins",
	}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			landed := rec != nil && rec.Write == w.Write
			if rec != nil && !landed {
				w.Seen = rec.Write
			}
			if rec != nil && !landed && rec.State == idem.Unknown && w.Kind == idem.EventLapse {
				return rec, nil
			}
			return w.Apply(rec, now)
		}
	}},
	{"resolution ignores the state", []string{"settle/resolution of a record that is not unknown"}, func(s *lab) {
		s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if w.Kind != idem.EventResolve {
				return w.Apply(rec, now)
			}
			return w.Apply(as(rec, func(r *idem.Record) { r.State = idem.Unknown }), now)
		}
	}},
	{"resolution leaves the begin marks", []string{"settle/resolution clears the begin marks and keeps the steps"},
		func(s *lab) {
			s.settle = func(w idem.Settlement, rec *idem.Record, now time.Time) (*idem.Record, error) {
				w.ClearSteps = nil
				return w.Apply(rec, now)
			}
		}},
	{"withdrawal needs a record", []string{"delayed/claim after its withdrawal"}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec == nil {
				return nil, &idem.ConflictError{}
			}
			return w.Apply(rec, now)
		}
	}},
	{"withdrawal keeps the write", []string{
		"delayed/takeover after its withdrawal", "delayed/replacement after its withdrawal",
	}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *idem.Record) {
				if rec != nil {
					r.Write = rec.Write
				}
			}), err
		}
	}},
	{"withdrawal ignores what was seen", []string{"delayed/takeover after its withdrawal"}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			w.Claim.Seen = ""
			return w.Apply(rec, now)
		}
	}},
	{"withdrawal deletes the winner's claim", []string{
		"delayed/withdrawal after a twin's takeover of the claim", "fencing/withdrawal after a takeover",
	}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil {
				w.Claim.Seen = rec.Write
			}
			return w.Apply(rec, now)
		}
	}},
	{"withdrawn replacement keeps the steps", []string{"delayed/withdrawn replacement drops the steps"}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			w.Claim.Replace = false
			return w.Apply(rec, now)
		}
	}},
	{"withdrawn takeover drops the steps", []string{"delayed/withdrawn takeover keeps the steps"}, func(s *lab) {
		s.withdraw = func(w idem.Withdrawal, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *idem.Record) { r.Steps = nil }), err
		}
	}},
	{"parked attempt reopens itself", []string{
		"late outcome/uncertain release after a twin's park", "fencing/uncertain release after a twin's park",
	}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			sure := f
			sure.Ending.Uncertain = false
			next, err := sure.Apply(rec, now)
			return changed(next, rec, err, func(r *idem.Record) { r.Uncertain = f.Ending.Uncertain }), err
		}
	}},
	{"parked attempt reopens itself without a claim",
		[]string{"fencing/uncertain release without a claim after a twin's park"}, func(s *lab) {
			s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
				if f.Absent == nil || rec == nil || rec.Owner != f.Owner {
					return f.Apply(rec, now)
				}
				return f.Apply(as(rec, func(r *idem.Record) { r.State = idem.InProgress }), now)
			}
		}},
	{"late outcome is refused", []string{
		"late outcome/completion after the own park", "late outcome/completion after a twin's park",
	}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && rec.State == idem.Unknown && rec.Write != f.Write {
				return nil, &idem.ConflictError{Existing: rec}
			}
			return f.Apply(rec, now)
		}
	}},
	{"end without a claim overwrites", []string{"late outcome/end without a claim leaves a twin's record"}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if f.Absent != nil {
				rec = nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"begin mark overwrites", []string{
		"step/begin mark on a recorded step", "step/begin mark on a begin mark", "race/one of many begin marks wins",
	}, func(s *lab) {
		s.step = func(w idem.StepWrite, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && w.Begin && rec.Steps[w.Name].Write != w.Write {
				rec = as(rec, func(r *idem.Record) { delete(r.Steps, w.Name) })
			}
			return w.Apply(rec, now)
		}
	}},
	{"step keeps the expiry", []string{"expiry/is removed by a step", "expiry/is removed by a begin mark"}, func(s *lab) {
		s.step = func(w idem.StepWrite, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(rec, now)
			if err == nil {
				next = as(next, func(r *idem.Record) { r.ExpiresAt = rec.ExpiresAt })
			}
			return next, err
		}
	}},
	{"step ignores the owner", []string{"fencing/step after a takeover", "delayed/step after a takeover"}, func(s *lab) {
		s.step = func(w idem.StepWrite, rec *idem.Record, now time.Time) (*idem.Record, error) {
			next, err := w.Apply(as(rec, func(r *idem.Record) { r.Owner = w.Owner }), now)
			return changed(next, rec, err, func(r *idem.Record) { r.Owner = rec.Owner }), err
		}
	}},
	{"acknowledges what it does not write", []string{"lost reply/completion", "result/1 KB of noise"}, func(s *lab) {
		s.finish = func(f idem.Finish, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if _, err := f.Apply(rec, now); err != nil {
				return nil, err
			}
			return rec, nil
		}
	}},
	{"conflict without the record", []string{"claim/meets a record in_progress"}, func(s *lab) {
		s.conflict = func(*idem.Record) error { return &idem.ConflictError{} }
	}},
	{"conflict as a plain error", []string{"claim/meets a record in_progress"}, func(s *lab) {
		s.conflict = func(*idem.Record) error { return &idem.StoreError{Op: "write", Err: errors.New("condition failed")} }
	}},
	{"hands out its own memory", []string{
		"copy/ConflictError.Existing is the caller's own", "copy/what Get returns is the caller's own",
	}, func(s *lab) { s.hand = func(r *idem.Record) *idem.Record { return r } }},
	{"keeps the caller's memory", []string{
		"copy/a result is not the caller's memory", "copy/a failure is not the caller's memory",
	}, func(s *lab) { s.keep = func(r *idem.Record) *idem.Record { return r } }},
	{"result cut at 400 KB", []string{"result/450 KB of noise", "result/5.5 MB of text"}, func(s *lab) {
		s.join = func(_ bool, data []byte) ([]byte, error) { return data[:min(len(data), 400<<10)], nil }
	}},
	{"parts belong to the record, not the owner", []string{"result/a large result of a lost claim is never read"},
		func(s *lab) { s.partKey = func(id, _ string) string { return id } }},
	{"damaged parts are handed out", []string{"unreadable/part cut short"}, func(s *lab) {
		s.join = func(bad bool, data []byte) ([]byte, error) {
			if bad {
				data = data[:len(data)/2]
			}
			return data, nil
		}
	}},
	{"damaged record is taken for absent", []string{"unreadable/newer version of a record completed"},
		func(s *lab) { s.unreadable = func() error { return nil } }},
	{"damaged record is taken for a conflict", []string{"unreadable/newer version of a record in_progress"},
		func(s *lab) { s.unreadable = func() error { return &idem.ConflictError{} } }},
	{"too large result is written first", []string{"result/a result over the limit is refused and nothing written"},
		func(s *lab) { s.tooLate = true }},
	{"Get is behind", []string{"plain/Get reads every write at once", "claim/creates the record as given"},
		func(s *lab) {
			before := map[string]*idem.Record{}
			s.get = func(id string, now *idem.Record) *idem.Record {
				old := before[id]
				before[id] = now
				return old
			}
		}},
	{"expired records are hidden", []string{"expiry/never hides a record from a read or a claim"}, func(s *lab) {
		s.claim = func(c idem.Claim, rec *idem.Record, now time.Time) (*idem.Record, error) {
			if rec != nil && rec.Expired(now) && c.Seen == "" {
				rec = nil
			}
			return c.Apply(rec, now)
		}
	}},
	{"seconds for milliseconds", []string{"plain/times survive with their precision"}, func(s *lab) {
		s.keep = func(r *idem.Record) *idem.Record {
			return as(r, func(r *idem.Record) { r.LeaseUntil = r.LeaseUntil.Truncate(time.Second) })
		}
	}},
	{"an ended context is ignored", []string{"plain/a context that has ended"}, func(s *lab) {
		s.alive = func(context.Context, string) error { return nil }
	}},
	{"an ended context may have written", []string{"plain/a context that has ended"}, func(s *lab) {
		s.alive = func(ctx context.Context, op string) error {
			if err := ctx.Err(); err != nil {
				return &idem.StoreError{Op: op, Maybe: true, Err: err}
			}
			return nil
		}
	}},
	{"foreign writes commit alone", []string{"plain/writes that commit with an end"}, func(s *lab) { s.withEarly = true }},
}

// changed changes the record that a write resulted in; a write that had landed
// before, or was refused, stays as it is.
func changed(next, old *idem.Record, err error, change func(*idem.Record)) *idem.Record {
	if err != nil || next == old {
		return next
	}
	return as(next, change)
}

// meet holds a writer between its check and its act until another one has
// checked too, or for a while where there is no other.
func meet() func() {
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
