package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// endFaults are faults of ends, steps, parks and resolutions.
var endFaults = []fault{
	{"a reference ignores the one before", []string{"reference/comes late, over a newer one"}, func(s *faulty) {
		s.refer = func(w protocol.ReferenceWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil {
				w.Seen = rec.RefWrite
			}
			return w.Apply(rec, now)
		}
	}},
	{"a reference that landed is not recognised", []string{"reference/sent twice, with another write in between"}, func(s *faulty) {
		s.refer = func(w protocol.ReferenceWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			if err == nil && next == rec {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return next, err
		}
	}},
	{"end ignores the owner", []string{
		"fencing/completion after a takeover", "fencing/park after a takeover",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			return f.Apply(as(rec, func(r *protocol.Record) { r.Owner = f.Owner }), now)
		}
	}},
	{"end ignores the state", []string{
		"fencing/completion after a resolution to failed", "delayed/completion after a resolution",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			return f.Apply(as(rec, func(r *protocol.Record) { r.Owner, r.State = f.Owner, protocol.InProgress }), now)
		}
	}},
	{"an outcome without a claim replaces anything", []string{
		"commit/without a claim is refused by every record", "commit/only one of two without a claim",
		"accept/is refused by every record that was not seen", "accept/only one of many lands",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if _, atomic := f.Attempt.(protocol.Atomic); atomic {
				rec = nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"an outcome without an expiry gets one", []string{
		"commit/a check record has no key, and no expiry",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if f.Ending.State == protocol.Completed && f.Ending.ExpiresAt.IsZero() {
				f.Ending.ExpiresAt = now.Add(time.Hour)
			}
			return f.Apply(rec, now)
		}
	}},
	{"an outcome without a claim forgets what it has seen", []string{
		"commit/without a claim is refused where what it has seen is gone",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if how, atomic := f.Attempt.(protocol.Atomic); atomic && rec == nil {
				how.Claim.Seen = ""
				f.Attempt = how
			}
			return f.Apply(rec, now)
		}
	}},
	{"an outcome without a claim replaces what has expired unseen", []string{
		"commit/without a claim replaces nothing that has expired unseen",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if how, atomic := f.Attempt.(protocol.Atomic); atomic && how.Claim.Seen == "" && rec != nil && rec.Write != f.Write && rec.Expired(now) {
				rec = nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"an added result ignores which outcome it is for", []string{
		"added result/is refused where that outcome is not", "added result/of a replaced outcome is refused",
		"added result/is refused by an outcome that has its result", "added result/is added once",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if how, added := f.Attempt.(protocol.WithoutResult); added && rec != nil && rec.State == protocol.Completed {
				return f.Apply(as(rec, func(r *protocol.Record) { r.Owner, r.Write, r.Omitted = f.Owner, how.Write, true }), now)
			}
			return f.Apply(rec, now)
		}
	}},
	{"an added result is taken for an end", []string{
		"added result/is added to the outcome that was recorded without it",
		"added result/does not complete an attempt that runs or is parked",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if _, added := f.Attempt.(protocol.WithoutResult); added {
				f.Attempt = nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"an added result renews the expiry", []string{"added result/leaves the expiry and the times as they are"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := f.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) {
				if _, added := f.Attempt.(protocol.WithoutResult); added {
					r.ExpiresAt, r.UpdatedAt = f.Ending.ExpiresAt, now
				}
			}), err
		}
	}},
	{"an added result creates the record", []string{"added result/of a deleted outcome brings nothing back"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if _, added := f.Attempt.(protocol.WithoutResult); added && rec == nil {
				f.Attempt = protocol.Atomic{Claim: protocol.Claim{Record: protocol.Record{ID: f.ID, Owner: f.Owner}}}
			}
			return f.Apply(rec, now)
		}
	}},
	{"new owner is ignored", []string{"commit/an end under a new owner fences what the attempt has sent"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			f.NewOwner = ""
			return f.Apply(rec, now)
		}
	}},
	{"any own write counts as landed", []string{
		"write id/own release is not a completion", "fencing/completion after the own failure",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.Owner == f.Owner && rec.State != protocol.InProgress {
				return rec, nil
			}
			return f.Apply(rec, now)
		}
	}},
	{"landed end is not recognised", []string{"lost reply/completion", "lost reply/release"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := f.Apply(as(rec, func(r *protocol.Record) { r.Write = "" }), now)
			if err != nil {
				err = &protocol.ConflictError{Existing: rec}
			}
			return next, err
		}
	}},
	{"landed settlement is not recognised", []string{
		"lost reply/another call's park", "lost reply/resolution to released",
	}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.Write == w.Write {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return w.Apply(rec, now)
		}
	}},
	{"landed step is known by the record's write", []string{"write id/a step counts as landed after later writes"},
		func(s *faulty) {
			s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				if rec != nil && rec.Write != w.Write && rec.Steps[w.Name].Write == w.Write {
					return nil, &protocol.ConflictError{Existing: rec}
				}
				return w.Apply(rec, now)
			}
		}},
	{"landed resolution is known by the record's write", []string{"write id/a resolution that recorded a step counts as landed after later claims"},
		func(s *faulty) {
			s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				if len(w.Steps) > 0 && !rec.Bears(w.Write) && rec.Steps[w.Steps[0].Name].Write == w.Write {
					return nil, &protocol.ConflictError{Existing: rec}
				}
				return w.Apply(rec, now)
			}
		}},
	{"what a resolution records of a step is not marked", []string{"step/what a resolution has recorded is read once", "settle/resolution says anew what an attempt could not read"},
		func(s *faulty) {
			s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				next, err := w.Apply(rec, now)
				return changed(next, rec, err, func(r *protocol.Record) {
					for name, step := range r.Steps {
						step.FromResolution = false
						r.Steps[name] = step
					}
				}), err
			}
		}},
	{"what was read can still be unread", []string{"step/what a resolution has recorded is read once"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if w.Unread && rec != nil {
				if step, ok := rec.Steps[w.Name]; ok && !step.FromResolution {
					rec = rec.Clone()
					step.FromResolution = true
					rec.Steps[w.Name] = step
				}
			}
			return w.Apply(rec, now)
		}
	}},
	{"a step that cannot be read began now", []string{"step/what no attempt could read is a begin mark again"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) {
				if step := r.Steps[w.Name]; w.Unread {
					step.BegunAt = now
					r.Steps[w.Name] = step
				}
			}), err
		}
	}},
	{"another call's park drops the owner", []string{
		"settle/another call's park keeps the owner and the lease", "late outcome/completion after another call's park",
	}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Owner = w.Owner }), err
		}
	}},
	{"another call's park keeps the expiry", []string{"expiry/is removed by another call's park"}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			if err == nil && w.Kind == protocol.EventLapse && next != rec {
				next.ExpiresAt = rec.ExpiresAt
			}
			return next, err
		}
	}},
	{"another call's park keeps a repeatable declaration",
		[]string{"late outcome/another call's park keeps a repeatable attempt's declaration strict"}, func(s *faulty) {
			s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				w.Ending.Stricter = false
				return w.Apply(rec, now)
			}
		}},
	{"resolution keeps the owner", []string{
		"settle/resolution replaces the owner", "settle/resolution with a large result",
	}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			w.Owner = ""
			return w.Apply(rec, now)
		}
	}},
	{"settlement ignores Seen", []string{
		"settle/resolution of what it has not seen", "delayed/another call's park after an extension",
		"race/one of many calls' parks wins",
	}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			landed := rec != nil && rec.Write == w.Write
			if rec != nil && !landed {
				w.Seen = rec.Write
			}
			if rec != nil && !landed && rec.State == protocol.Unknown && w.Kind == protocol.EventLapse {
				return rec, nil
			}
			return w.Apply(rec, now)
		}
	}},
	{"resolution ignores the state", []string{"settle/resolution of a record that has ended"}, func(s *faulty) {
		s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if w.Kind != protocol.EventResolve {
				return w.Apply(rec, now)
			}
			return w.Apply(as(rec, func(r *protocol.Record) { r.State = protocol.Unknown }), now)
		}
	}},
	{"resolution leaves the begin marks", []string{"settle/resolution clears the begin marks and keeps the steps"},
		func(s *faulty) {
			s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				w.ClearSteps = nil
				return w.Apply(rec, now)
			}
		}},
	{"resolution forgets what a step did", []string{"settle/resolution records what an interrupted step did"},
		func(s *faulty) {
			s.settle = func(w protocol.Settlement, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				w.Steps = nil
				return w.Apply(rec, now)
			}
		}},
	{"parked attempt reopens itself", []string{
		"late outcome/uncertain release after another call's park", "fencing/uncertain release after another call's park",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			sure := f
			sure.Ending.Uncertain = false
			next, err := sure.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Uncertain = f.Ending.Uncertain }), err
		}
	}},
	{"late outcome is refused", []string{
		"late outcome/completion after the own park", "late outcome/completion after another call's park",
	}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.State == protocol.Unknown && rec.Write != f.Write {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return f.Apply(rec, now)
		}
	}},
	{"begin mark overwrites", []string{
		"step/begin mark on a recorded step", "step/begin mark on a begin mark", "race/one of many begin marks wins",
	}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && w.Begin && rec.Steps[w.Name].Write != w.Write {
				rec = as(rec, func(r *protocol.Record) { delete(r.Steps, w.Name) })
			}
			return w.Apply(rec, now)
		}
	}},
	{"step keeps the expiry", []string{"expiry/is removed by a step", "expiry/is removed by a begin mark"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(rec, now)
			if err == nil {
				next = as(next, func(r *protocol.Record) { r.ExpiresAt = rec.ExpiresAt })
			}
			return next, err
		}
	}},
	{"outcome keeps the steps", []string{"step/go with a completion and a failure", "expiry/of a completed record that had steps"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := f.Apply(rec, now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Steps = rec.Steps }), err
		}
		s.claim = func(c protocol.Claim, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := c.Apply(rec, now)
			if err == nil && c.Replace && rec != next {
				next.Steps = rec.Steps
			}
			return next, err
		}
	}},
	{"step not executed may not begin again", []string{"step/not executed after a begin mark, then again"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && w.Begin && rec.Steps[w.Name].NotExecuted && rec.Steps[w.Name].Write != w.Write {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return w.Apply(rec, now)
		}
	}},
	{"step's failure may run again", []string{"step/failure is an outcome"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.Steps[w.Name].Failure != nil && rec.Steps[w.Name].Write != w.Write {
				rec = as(rec, func(r *protocol.Record) { delete(r.Steps, w.Name) })
			}
			return w.Apply(rec, now)
		}
	}},
	{"step forgets its compensation", []string{"step/compensation is noted"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			w.Compensates = false
			return w.Apply(rec, now)
		}
	}},
	{"step's result is cut short", []string{"step/results of all sizes"}, func(s *faulty) {
		s.stepResult = func(s protocol.RecordedStep) []byte { return s.Body.Data[:min(len(s.Body.Data), 4<<10)] }
	}},
	{"hint of a first step drops the others", []string{"step/hint of a first step that is wrong"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && w.First && rec.Steps[w.Name].Write != w.Write {
				rec = as(rec, func(r *protocol.Record) { r.Steps = nil })
			}
			return w.Apply(rec, now)
		}
	}},
	{"landed begin mark of a lost claim counts", []string{"write id/a begin mark is leave to run only under its claim"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && w.Begin && rec.Steps[w.Name].Write == w.Write {
				return rec, nil
			}
			return w.Apply(rec, now)
		}
	}},
	{"late step of a parked attempt is lost", []string{"late outcome/step of a parked attempt", "late outcome/first step of a parked attempt"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if rec != nil && rec.State == protocol.Unknown {
				return nil, &protocol.ConflictError{Existing: rec}
			}
			return w.Apply(rec, now)
		}
	}},
	{"step ignores the owner", []string{"fencing/step after a takeover", "delayed/step after a takeover"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			next, err := w.Apply(as(rec, func(r *protocol.Record) { r.Owner = w.Owner }), now)
			return changed(next, rec, err, func(r *protocol.Record) { r.Owner = rec.Owner }), err
		}
	}},
	{"acknowledges what it does not write", []string{"lost reply/completion", "result/1 KB of noise"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			if _, err := f.Apply(rec, now); err != nil {
				return nil, err
			}
			return rec, nil
		}
	}},
}
