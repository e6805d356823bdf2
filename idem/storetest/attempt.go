package storetest

import (
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
)

const (
	lease     = 30 * time.Second
	retention = 24 * time.Hour
)

var operation = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

// attempt is one claim and the writes that its holder can send. Its methods make
// a write with an id of its own and send nothing.
type attempt struct {
	c     *cell
	claim idem.Claim
}

// fresh is an attempt on a new key, not claimed yet.
func (c *cell) fresh(change ...func(*idem.Record)) *attempt {
	c.keys++
	rec := idem.Record{
		ID:    operation.Key("tenant", fmt.Sprintf("%d-%s", c.keys, newID())).ID(),
		Value: "value", Codec: "codec", Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k",
		State: idem.InProgress, Repeat: idem.Repeatable, Owner: newID(), Write: newID(), Attempt: 1,
		LeaseUntil: c.now.Add(lease), ExpiresAt: expiry(c.now.Add(lease)),
		Retention: retention, CreatedAt: c.now, UpdatedAt: c.now,
	}
	for _, f := range change {
		f(&rec)
	}
	return &attempt{c, idem.Claim{Record: rec}}
}

// start is an attempt on a new key that has its claim.
func (c *cell) start(change ...func(*idem.Record)) *attempt {
	c.Helper()
	a := c.fresh(change...)
	c.lands(a.acquire())
	return a
}

func notRepeatable(r *idem.Record) { r.Repeat, r.ExpiresAt = idem.NotRepeatable, time.Time{} }

// expiry is the end of the retention that begins at t, in whole seconds.
func expiry(t time.Time) time.Time {
	return t.Add(retention + time.Second - time.Nanosecond).Truncate(time.Second)
}

func (a *attempt) id() string { return a.claim.Record.ID }

// seen is the record as the reference has it now.
func (a *attempt) seen() *idem.Record { return a.c.ref[a.id()] }

// next is a twin that has seen the record as it is now and wants to take it over.
func (a *attempt) next() *attempt {
	old := a.seen()
	rec := *old.Clone()
	rec.State, rec.Owner, rec.Write, rec.Attempt = idem.InProgress, newID(), newID(), old.Attempt+1
	rec.LeaseUntil, rec.Uncertain = a.c.now.Add(lease), old.Uncertain || old.State == idem.InProgress
	rec.Body, rec.Unavailable, rec.Failure, rec.ResponseVersion = idem.Body{}, false, nil, 0
	rec.Ref, rec.Probes, rec.ExpiresAt = "", 0, time.Time{}
	if rec.Repeat == idem.Repeatable && len(rec.Steps) == 0 {
		rec.ExpiresAt = expiry(rec.LeaseUntil)
	}
	return &attempt{a.c, idem.Claim{Record: rec, Seen: old.Write}}
}

// replacement is a twin that has seen the record expired.
func (a *attempt) replacement() *attempt {
	old := a.seen()
	b := a.c.fresh()
	b.claim.Record.ID, b.claim.Record.Attempt = old.ID, old.Attempt+1
	b.claim.Record.Fingerprint, b.claim.Record.Value, b.claim.Record.Codec = "1:ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8", "", ""
	b.claim.Seen, b.claim.Replace = old.Write, true
	return b
}

func (a *attempt) acquire() acquire { return acquire{a.claim} }

func (a *attempt) withdraw() withdraw {
	w := idem.Withdrawal{Claim: a.claim, Owner: newID(), Write: newID(), Uncertain: a.claim.Record.Uncertain}
	if len(a.claim.Record.Steps) == 0 {
		w.ExpiresAt = expiry(a.c.now)
	}
	return withdraw{w}
}

// extend renews the lease to d from now, and the expiry with it if the record
// has one.
func (a *attempt) extend(d time.Duration) extend {
	e := idem.Extension{ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), LeaseUntil: a.c.now.Add(d)}
	if a.claim.Record.Repeat == idem.Repeatable {
		e.ExpiresAt = expiry(e.LeaseUntil)
	}
	return extend{e}
}

func (a *attempt) step(name string, result []byte) step {
	return step{idem.StepWrite{
		ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), Name: name, Result: result,
	}}
}

func (a *attempt) begin(name string) step {
	w := a.step(name, nil)
	w.Begin, w.Seen = true, a.entry(name)
	return w
}

func (a *attempt) notExecuted(name string) step {
	w := a.step(name, nil)
	w.NotExecuted, w.Seen = true, a.entry(name)
	return w
}

// entry is the write of the step's entry.
func (a *attempt) entry(name string) string {
	if rec := a.seen(); rec != nil {
		return rec.Steps[name].Write
	}
	return ""
}

func (a *attempt) stepFails(name string) step {
	w := a.step(name, nil)
	w.Failure = &idem.Failure{Message: "card declined", Type: "DeclinedError"}
	return w
}

func (a *attempt) stepUnavailable(name string) step {
	w := a.step(name, nil)
	w.Unavailable, w.Compensates = true, true
	w.Failure = &idem.Failure{Message: "unsupported value: +Inf", Type: "UnsupportedValueError"}
	return w
}

func (a *attempt) finish(e idem.Ending) finish {
	return finish{idem.Finish{ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), Ending: e}}
}

// open is an end of the attempt as one that ran without a claim.
func (a *attempt) open(f finish) finish {
	rec := a.claim.Record.Clone()
	rec.LeaseUntil = a.c.now
	f.Absent = rec
	return f
}

func (a *attempt) complete(result string) finish {
	return a.finish(idem.Ending{
		State: idem.Completed, Result: []byte(result), ExpiresAt: expiry(a.c.now), ResponseVersion: 3,
	})
}

// without is the completion as it is recorded before its result can be stored.
func (a *attempt) without(kept string) finish {
	w := a.complete(kept)
	w.Ending.Unavailable = true
	return w
}

// add gives the outcome that was recorded by fact its result.
func (a *attempt) add(fact finish, result string) finish {
	w := a.complete(result)
	w.Upgrades, w.Progress = fact.Write, new(idem.Progress)
	return w
}

func (a *attempt) fail() finish {
	return a.finish(idem.Ending{
		State: idem.Failed, ExpiresAt: expiry(a.c.now),
		Failure: &idem.Failure{Message: "card declined", Type: "DeclinedError", Code: "card_declined"},
	})
}

func (a *attempt) release(uncertain bool) finish {
	e := idem.Ending{
		State: idem.Retryable, Uncertain: uncertain,
		Failure: &idem.Failure{Message: "connection refused", Type: "OpError"},
	}
	if rec := a.seen(); rec == nil || len(rec.Steps) == 0 {
		e.ExpiresAt = expiry(a.c.now)
	}
	return a.finish(e)
}

func (a *attempt) park() finish {
	return a.finish(idem.Ending{
		State: idem.Unknown, Uncertain: true, Failure: &idem.Failure{Message: "time-out", Type: "timeoutError"},
	})
}

// lapse is a twin's park of what it sees now.
func (a *attempt) lapse() settle {
	return settle{idem.Settlement{
		ID: a.id(), Kind: idem.EventLapse, Seen: a.seen().Write, Write: newID(),
		Ending: idem.Ending{State: idem.Unknown, Uncertain: true, Stricter: true},
	}}
}

// resolve is an operator's answer to what is seen now.
func (a *attempt) resolve(to idem.State) settle {
	s := idem.Settlement{
		ID: a.id(), Kind: idem.EventResolve, Seen: a.seen().Write, Write: newID(), Owner: newID(),
		Ending: idem.Ending{State: to, Ref: "pay_1"},
	}
	switch to {
	case idem.Completed:
		s.Ending.Result, s.Ending.ExpiresAt = []byte(`{"resolved":true}`), expiry(a.c.now)
	case idem.Failed:
		s.Ending.Failure, s.Ending.ExpiresAt = &idem.Failure{Message: "never charged"}, expiry(a.c.now)
	case idem.Retryable:
		for name, st := range a.seen().Steps {
			if st.Begun {
				s.ClearSteps = append(s.ClearSteps, name)
			}
		}
		if len(a.seen().Steps) == len(s.ClearSteps) {
			s.Ending.ExpiresAt = expiry(a.c.now)
		}
	}
	return settle{s}
}
