package storetest

import (
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// added reports whether the end adds a result to an outcome.
func added(f protocol.Finish) bool {
	_, is := f.Attempt.(protocol.WithoutResult)
	return is
}

// endFaults are faults of ends and references.
var endFaults = []fault{
	{"a reference ignores the one before", []string{"reference/comes late, over a newer one"},
		before(references, func(w *protocol.ReferenceWrite, rec *protocol.Record) { w.Seen = rec.RefWrite })},
	{"a reference that landed is not recognised", []string{"reference/sent twice, with another write in between"},
		refuses(references, func(w protocol.ReferenceWrite, rec *protocol.Record) bool { return rec.RefWrite == w.Write })},
	{"end ignores the owner", []string{
		"fencing/completion after a takeover", "fencing/park after a takeover",
	}, before(ends, func(f *protocol.Finish, rec *protocol.Record) { rec.Owner = f.Owner })},
	{"end ignores the state", []string{
		"fencing/completion after a resolution to failed", "fencing/completion after a resolution to completed",
	}, before(ends, func(f *protocol.Finish, rec *protocol.Record) {
		rec.Owner, rec.State = f.Owner, protocol.InProgress
	})},
	{"an outcome without a claim replaces anything", []string{
		"commit/without a claim is refused by every record", "commit/only one of two without a claim",
	}, blind(ends, func(f protocol.Finish, _ *protocol.Record, _ time.Time) bool {
		_, atomic := f.Attempt.(protocol.Atomic)
		return atomic
	})},
	{"an outcome without an expiry gets one",
		[]string{"commit/a check record has no key, and no expiry"}, func(s *faulty) {
			s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
				if f.Ending.State == protocol.Completed && f.Ending.ExpiresAt.IsZero() {
					f.Ending.ExpiresAt = now.Add(time.Hour)
				}
				return f.Apply(rec, now)
			}
		}},
	{"an outcome without a claim forgets what it has seen", []string{
		"commit/without a claim is refused where what it has seen is deleted",
	}, before(ends, func(f *protocol.Finish, rec *protocol.Record) {
		if how, atomic := f.Attempt.(protocol.Atomic); atomic && rec.ID == "" {
			how.Claim.Seen = ""
			f.Attempt = how
		}
	})},
	{"an outcome without a claim replaces what has expired unseen", []string{
		"commit/without a claim replaces nothing that has expired unseen",
	}, blind(ends, func(f protocol.Finish, rec *protocol.Record, now time.Time) bool {
		how, atomic := f.Attempt.(protocol.Atomic)
		return atomic && how.Claim.Seen == "" && rec.Write != f.Write && rec.Expired(now)
	})},
	{"an added result ignores which outcome it is for", []string{
		"added result/is refused where that outcome is not", "added result/of a replaced outcome is refused",
		"added result/is refused by an outcome that has its result", "added result/is added once",
	}, before(ends, func(f *protocol.Finish, rec *protocol.Record) {
		if how, added := f.Attempt.(protocol.WithoutResult); added && rec.State == protocol.Completed {
			rec.Owner, rec.Write, rec.Omitted = f.Owner, how.Write, true
		}
	})},
	{"an added result is taken for an end", []string{
		"added result/is added to the outcome that was recorded without it",
		"added result/does not complete an attempt that runs or is parked",
	}, before(ends, func(f *protocol.Finish, _ *protocol.Record) {
		if added(*f) {
			f.Attempt = nil
		}
	})},
	{"an added result renews the expiry", []string{"added result/leaves the expiry and the times as they are"},
		after(ends, func(f protocol.Finish, _, next *protocol.Record) {
			if added(f) {
				next.ExpiresAt = f.Ending.ExpiresAt
			}
		})},
	{"an added result creates the record", []string{"added result/of a deleted outcome brings nothing back"},
		before(ends, func(f *protocol.Finish, rec *protocol.Record) {
			if added(*f) && rec.ID == "" {
				f.Attempt = protocol.Atomic{Claim: protocol.Claim{Record: protocol.Record{ID: f.ID, Owner: f.Owner}}}
			}
		})},
	{"an open question expires", []string{
		"expiry/is not that of an open question, whatever its write says",
		"expiry/is not that of a record with steps, whatever its write says",
	}, after(ends, func(f protocol.Finish, _, next *protocol.Record) {
		if next.Open() {
			next.ExpiresAt = f.Ending.ExpiresAt
		}
	})},
	{"new owner is ignored", []string{"commit/an end under a new owner fences what the attempt has sent"},
		before(ends, func(f *protocol.Finish, _ *protocol.Record) { f.NewOwner = "" })},
	{"any own write counts as landed", []string{
		"fencing/completion after the own release", "fencing/completion after the own failure",
	}, landed(ends, func(f protocol.Finish, rec *protocol.Record) bool {
		return rec.Owner == f.Owner && rec.State != protocol.InProgress
	})},
	{"landed end is not recognised", []string{"lost reply/completion", "lost reply/release"},
		refuses(ends, func(f protocol.Finish, rec *protocol.Record) bool { return rec.Write == f.Write })},
	{"parked attempt reopens itself", []string{
		"late outcome/uncertain release after the own park", "late outcome/uncertain release after another call's park",
	}, func(s *faulty) {
		uncertain := false
		before(ends, func(f *protocol.Finish, _ *protocol.Record) {
			uncertain, f.Ending.Uncertain = f.Ending.Uncertain, false
		})(s)
		after(ends, func(_ protocol.Finish, _, next *protocol.Record) { next.Uncertain = uncertain })(s)
	}},
	{"late outcome is refused", []string{
		"late outcome/completion after the own park", "late outcome/completion after another call's park",
	}, refuses(ends, func(f protocol.Finish, rec *protocol.Record) bool {
		return rec.State == protocol.Unknown && rec.Write != f.Write
	})},
	{"outcome keeps the steps", []string{
		"step/go with a completion and a failure", "expiry/of a completed record that had steps",
	}, func(s *faulty) {
		after(ends, func(_ protocol.Finish, old, next *protocol.Record) { next.Steps = old.Steps })(s)
		after(claims, func(c protocol.Claim, old, next *protocol.Record) {
			if c.Replace {
				next.Steps = old.Steps
			}
		})(s)
	}},
	{"acknowledges what it does not write", []string{"lost reply/completion", "result/1 KB of noise"}, func(s *faulty) {
		s.finish = func(f protocol.Finish, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			_, err := f.Apply(rec, now)
			return rec, err
		}
	}},
}

// stepFaults are faults of what is recorded of steps.
var stepFaults = []fault{
	{"landed step is known by the record's write", []string{"write id/a step counts as landed after later writes"},
		refuses(steps, func(w protocol.StepWrite, rec *protocol.Record) bool {
			return rec.Write != w.Write && rec.Steps[w.Name].Write == w.Write
		})},
	{"what was read can still be unread", []string{"step/what a resolution has recorded is read once"},
		before(steps, func(w *protocol.StepWrite, rec *protocol.Record) {
			if step, ok := rec.Steps[w.Name]; ok && w.Unread {
				step.FromResolution = true
				rec.Steps[w.Name] = step
			}
		})},
	{"a step that cannot be read began now", []string{"step/what no attempt could read is a begin mark again"},
		after(steps, func(w protocol.StepWrite, _, next *protocol.Record) {
			if step := next.Steps[w.Name]; w.Unread {
				step.BegunAt = next.UpdatedAt
				next.Steps[w.Name] = step
			}
		})},
	{"begin mark overwrites", []string{
		"step/begin mark on a recorded step", "step/begin mark on a begin mark", "race/one of many begin marks wins",
	}, before(steps, func(w *protocol.StepWrite, rec *protocol.Record) {
		if w.Begin && rec.Steps[w.Name].Write != w.Write {
			delete(rec.Steps, w.Name)
		}
	})},
	{"step keeps the expiry", []string{"lost reply/step", "lost reply/begin mark"},
		after(steps, func(_ protocol.StepWrite, old, next *protocol.Record) { next.ExpiresAt = old.ExpiresAt })},
	{"step not executed may not begin again", []string{"step/not executed after a begin mark, then again"},
		refuses(steps, func(w protocol.StepWrite, rec *protocol.Record) bool {
			return w.Begin && rec.Steps[w.Name].NotExecuted && rec.Steps[w.Name].Write != w.Write
		})},
	{"step's failure may run again", []string{"step/failure is an outcome"},
		before(steps, func(w *protocol.StepWrite, rec *protocol.Record) {
			if rec.Steps[w.Name].Failure != nil && rec.Steps[w.Name].Write != w.Write {
				delete(rec.Steps, w.Name)
			}
		})},
	{"step forgets its compensation", []string{"step/compensation is noted"},
		before(steps, func(w *protocol.StepWrite, _ *protocol.Record) { w.Compensates = false })},
	{"step's result is cut short", []string{"step/results of all sizes"}, func(s *faulty) {
		s.stepResult = func(s protocol.RecordedStep) []byte { return s.Body.Data[:min(len(s.Body.Data), 4<<10)] }
	}},
	{"hint of a first step drops the others", []string{"step/hint of a first step that is wrong"},
		before(steps, func(w *protocol.StepWrite, rec *protocol.Record) {
			if w.First && rec.Steps[w.Name].Write != w.Write {
				rec.Steps = nil
			}
		})},
	{"landed begin mark of a lost claim counts", []string{"write id/a begin mark is leave to run only under its claim"},
		landed(steps, func(w protocol.StepWrite, rec *protocol.Record) bool {
			return w.Begin && rec.Steps[w.Name].Write == w.Write
		})},
	{"late step of a parked attempt is lost", []string{
		"late outcome/step of a parked attempt", "late outcome/first step of a parked attempt",
	}, refuses(steps, func(_ protocol.StepWrite, rec *protocol.Record) bool { return rec.State == protocol.Unknown })},
	{"step ignores the owner", []string{"fencing/step after a takeover"},
		before(steps, func(w *protocol.StepWrite, rec *protocol.Record) { rec.Owner = w.Owner })},
	{"begin mark without its time", []string{"step/not executed after a begin mark, then again"}, func(s *faulty) {
		s.step = func(w protocol.StepWrite, r *protocol.Record, _ time.Time) (*protocol.Record, error) {
			return w.Apply(r, time.Time{})
		}
	}},
	{"record has less room for steps", []string{"step/up to the room for steps, with what ends them"},
		instead(steps, func(_ protocol.StepWrite, rec *protocol.Record) (*protocol.Record, error, bool) {
			return nil, &protocol.TooLargeError{Size: 1, Limit: 1}, len(rec.Steps) > 60
		})},
}

// settleFaults are faults of parks, resolutions and prolongations.
var settleFaults = []fault{
	{"landed settlement is not recognised", []string{
		"lost reply/another call's park", "lost reply/resolution to released",
	}, refuses(settlements, func(w protocol.Settlement, rec *protocol.Record) bool { return rec.Write == w.Write })},
	{"landed resolution is known by the record's write", []string{
		"write id/a resolution that recorded a step counts as landed after later claims",
	}, refuses(settlements, func(w protocol.Settlement, rec *protocol.Record) bool {
		return len(w.Steps) > 0 && !rec.Bears(w.Write) && rec.Steps[w.Steps[0].Name].Write == w.Write
	})},
	{"what a resolution records of a step is not marked", []string{
		"step/what a resolution has recorded is read once", "settle/resolution records again what an attempt could not read",
	}, after(settlements, func(_ protocol.Settlement, _, next *protocol.Record) {
		for name, step := range next.Steps {
			step.FromResolution = false
			next.Steps[name] = step
		}
	})},
	{"another call's park drops the owner", []string{
		"settle/another call's park keeps the owner and the lease", "late outcome/completion after another call's park",
	}, after(settlements, func(w protocol.Settlement, _, next *protocol.Record) { next.Owner = w.Owner })},
	{"another call's park keeps the expiry", []string{"settle/another call's park keeps the owner and the lease"},
		after(settlements, func(w protocol.Settlement, old, next *protocol.Record) {
			if w.Kind == protocol.EventLapse {
				next.ExpiresAt = old.ExpiresAt
			}
		})},
	{"another call's park keeps a repeatable declaration", []string{
		"late outcome/another call's park keeps a repeatable attempt's declaration strict",
	}, before(settlements, func(w *protocol.Settlement, _ *protocol.Record) { w.Ending.Stricter = false })},
	{"resolution keeps the owner", []string{
		"settle/resolution of a claim replaces the owner", "settle/resolution with a large result",
	}, before(settlements, func(w *protocol.Settlement, _ *protocol.Record) { w.Owner = "" })},
	{"settlement ignores Seen", []string{
		"settle/resolution of what it has not seen", "delayed/another call's park after an extension",
		"race/one of many calls' parks wins",
	}, func(s *faulty) {
		before(settlements, func(w *protocol.Settlement, rec *protocol.Record) {
			if rec.Write != w.Write {
				w.Seen = rec.Write
			}
		})(s)
		landed(settlements, func(w protocol.Settlement, rec *protocol.Record) bool {
			return rec.State == protocol.Unknown && w.Kind == protocol.EventLapse
		})(s)
	}},
	{"resolution ignores the state", []string{"settle/resolution of a record that has ended"},
		before(settlements, func(w *protocol.Settlement, rec *protocol.Record) {
			if w.Kind == protocol.EventResolve {
				rec.State = protocol.Unknown
			}
		})},
	{"resolution leaves the begin marks", []string{"settle/resolution clears the begin marks and keeps the steps"},
		before(settlements, func(w *protocol.Settlement, _ *protocol.Record) { w.ClearSteps = nil })},
	{"resolution forgets what a step did", []string{"settle/resolution records what an interrupted step did"},
		before(settlements, func(w *protocol.Settlement, _ *protocol.Record) { w.Steps = nil })},
	{"resolution leaves the earlier one's reference",
		[]string{"settle/resolution over another one takes its reference away, not the attempt's"},
		before(settlements, func(_ *protocol.Settlement, rec *protocol.Record) { rec.RefWrite = "" })},
	{"keeps what has expired", []string{"prolonged/expired"}, func(s *faulty) {
		s.prolong = func(w protocol.Prolongation, rec *protocol.Record, now time.Time) (*protocol.Record, error) {
			return w.Apply(rec, now.Add(-time.Hour))
		}
	}},
	{"keeps what it has not seen", []string{"prolonged/of what it has not seen"},
		before(prolongations, func(w *protocol.Prolongation, rec *protocol.Record) {
			if !rec.Bears(w.Write) {
				w.Seen = rec.Write
			}
		})},
	{"keeps an open question for a time", []string{"prolonged/whatever has ended is kept, and what is open has no end"},
		before(prolongations, func(w *protocol.Prolongation, rec *protocol.Record) {
			rec.State, rec.Steps, rec.ExpiresAt = protocol.Failed, nil, w.ExpiresAt.Add(-time.Second)
		})},
	{"keeps for a shorter time", []string{"prolonged/kept as long already"},
		before(prolongations, func(w *protocol.Prolongation, rec *protocol.Record) {
			rec.ExpiresAt = w.ExpiresAt.Add(-time.Second)
		})},
	{"keeps under the write of the end", []string{
		"prolonged/a call that took it for expired does not replace it",
		"prolonged/a result that would not last as long is not added",
	}, after(prolongations, func(_ protocol.Prolongation, old, next *protocol.Record) { next.Write = old.Write })},
	{"forgets over which write it keeps", []string{"prolonged/the own end is known to have landed"},
		after(prolongations, func(_ protocol.Prolongation, old, next *protocol.Record) { next.Seen = old.Seen })},
}
