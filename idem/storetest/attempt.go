package storetest

import (
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	lease     = 30 * time.Second
	retention = 24 * time.Hour
	// expired is past every expiry that the cases give.
	expired = retention + time.Hour
)

var operation = idem.Operation{Name: "charge", Repeat: protocol.Repeatable}

// attempt is one claim and the writes that its holder can send. Its methods make
// a write with an id of its own and send nothing.
type attempt struct {
	c     *cell
	claim protocol.Claim
	held  write
}

// fresh is an attempt on a new key, not claimed yet.
func (c *cell) fresh(change ...func(*protocol.Record)) *attempt {
	c.keys++
	rec := protocol.Record{
		ID:    operation.Key("tenant", fmt.Sprintf("%d-%s", c.keys, newID())).ID(),
		Value: "value", Codec: "codec", Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k",
		State: protocol.InProgress, Repeat: protocol.Repeatable, Owner: newID(), Write: newID(), Attempt: 1,
		LeaseUntil: c.now.Add(lease), ExpiresAt: expiry(c.now.Add(lease)),
		Retention: retention, CreatedAt: c.now, UpdatedAt: c.now,
	}
	if c.keys%2 == 1 {
		rec.Write = rec.Owner // as the engine's claims
	}
	for _, f := range change {
		f(&rec)
	}
	return &attempt{c: c, claim: protocol.Claim{Record: rec}}
}

// start is an attempt on a new key that has its claim.
func (c *cell) start(change ...func(*protocol.Record)) *attempt {
	c.Helper()
	a := c.fresh(change...)
	c.lands(a.acquire())
	return a
}

// A move makes a write of an attempt, for the record as it stands then.
type move func(a *attempt) write

// named is a move with what it is called in the names of cases.
type named struct {
	name string
	make move
}

// The moves of an attempt, and of others that see its record.
func acquires(a *attempt) write         { return a.acquire() }
func takesOver(a *attempt) write        { return a.next().acquire() }
func replaces(a *attempt) write         { return a.replacement().acquire() }
func withdraws(a *attempt) write        { return a.withdraw() }
func withdrawsNext(a *attempt) write    { return a.next().withdraw() }
func extends(a *attempt) write          { return a.extend(2 * lease) }
func extendsFurther(a *attempt) write   { return a.extend(3 * lease) }
func completes(a *attempt) write        { return a.complete("done") }
func completesInParts(a *attempt) write { return a.complete(string(noise(300 << 10))) }
func fails(a *attempt) write            { return a.fail() }
func releases(a *attempt) write         { return a.release(false) }
func releasesInDoubt(a *attempt) write  { return a.release(true) }
func parks(a *attempt) write            { return a.park() }
func lapses(a *attempt) write           { return a.lapse() }
func charges(a *attempt) write          { return a.step("charge", []byte("ch_1")) }
func chargesAtLength(a *attempt) write  { return a.step("charge", noise(5<<10)) }
func ships(a *attempt) write            { return a.step("ship", []byte("s_1")) }
func begins(a *attempt) write           { return a.begin("charge") }
func takesBack(a *attempt) write        { return a.notExecuted("charge") }

func reads(a *attempt) write   { return a.read("charge") }
func unreads(a *attempt) write { return a.unread("charge") }

func escalates(a *attempt) write {
	w := a.postpone(time.Hour)
	w.EscalatedAt = a.c.now
	return w
}

func omits(kept string) move { return func(a *attempt) write { return a.without(kept) } }

func adds(result string) move { return func(a *attempt) write { return a.add(result) } }

func refers(ref string) move { return func(a *attempt) write { return a.refer(ref) } }

func resolves(to protocol.State) move { return func(a *attempt) write { return a.resolve(to) } }

// outcomes are the states that an operator can resolve a record to.
var outcomes = []protocol.State{protocol.Completed, protocol.Failed, protocol.Released}

// lands makes and sends writes, one after the other. All must take effect.
func (a *attempt) lands(moves ...move) *attempt {
	a.c.Helper()
	for _, m := range moves {
		a.c.lands(m(a))
	}
	return a
}

// refused makes and sends writes. None may take effect.
func (a *attempt) refused(moves ...move) *attempt {
	a.c.Helper()
	for _, m := range moves {
		a.c.refused(m(a))
	}
	return a
}

// again makes a write and sends it twice, as after a lost reply.
func (a *attempt) again(m move) *attempt {
	a.c.Helper()
	a.held = m(a)
	return a.late(true).late(true)
}

// holds makes a write and sends it later, see late.
func (a *attempt) holds(m move) *attempt {
	a.held = m(a)
	return a
}

// late sends the write that the attempt holds, and requires that it lands or is refused.
func (a *attempt) late(lands bool) *attempt {
	a.c.Helper()
	a.c.expect(a.held, lands)
	return a
}

// deleted is the attempt after TTL has removed its record.
func (a *attempt) deleted() *attempt {
	a.c.Helper()
	a.c.delete(a.id())
	return a
}

// after is the attempt some time later.
func (a *attempt) after(d time.Duration) *attempt {
	a.c.now = a.c.now.Add(d)
	return a
}

// having starts attempts and makes their first writes.
func having(moves ...move) func(c *cell) *attempt {
	return func(c *cell) *attempt {
		c.Helper()
		return c.start().lands(moves...)
	}
}

// unclaimed are attempts without a claim.
func unclaimed(c *cell) *attempt { return c.fresh() }

// watched is a claim that is in the index.
func watched(r *protocol.Record) { r.Due, r.ExpiresAt = r.LeaseUntil.Add(2*time.Second), time.Time{} }

func notRepeatable(r *protocol.Record) { r.Repeat, r.ExpiresAt = protocol.NotRepeatable, time.Time{} }

// expiry is the end of the retention that begins at t, in whole seconds.
func expiry(t time.Time) time.Time {
	return t.Add(retention + time.Second - time.Nanosecond).Truncate(time.Second)
}

func (a *attempt) id() string { return a.claim.Record.ID }

// seen is the record as the reference has it now.
func (a *attempt) seen() *protocol.Record { return a.c.ref[a.id()] }

// next is another call that has seen the record as it is now and wants to take it over.
func (a *attempt) next() *attempt {
	old := a.seen()
	rec := *old.Clone()
	rec.State, rec.Owner, rec.Write, rec.Attempt = protocol.InProgress, newID(), newID(), old.Attempt+1
	rec.LeaseUntil, rec.Uncertain = a.c.now.Add(lease), old.Uncertain || old.State == protocol.InProgress
	rec.Body, rec.Omitted, rec.Failure, rec.ResponseVersion = protocol.Body{}, false, nil, 0
	rec.Ref, rec.RefWrite, rec.ExpiresAt, rec.Resolved = "", "", time.Time{}, false
	rec.Due, rec.OpenSince, rec.Sweep, rec.Probes, rec.EscalatedAt = time.Time{}, time.Time{}, "", 0, time.Time{}
	if !old.Due.IsZero() && old.State == protocol.InProgress {
		rec.Due, rec.Unsettled = rec.LeaseUntil, old.Unsettled+1 // watched, as before
	}
	if rec.Repeat == protocol.Repeatable && len(rec.Steps) == 0 && rec.Due.IsZero() {
		rec.ExpiresAt = expiry(rec.LeaseUntil)
	}
	return &attempt{c: a.c, claim: protocol.Claim{Record: rec, Seen: old.Write}}
}

// replacement is another call that has seen the record expired.
func (a *attempt) replacement() *attempt {
	old := a.seen()
	b := a.unseen()
	b.claim.Record.Attempt = old.Attempt + 1
	b.claim.Record.Fingerprint = "1:ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8"
	b.claim.Record.Value, b.claim.Record.Codec = "", ""
	b.claim.Seen, b.claim.Replace = old.Write, true
	return b
}

func (a *attempt) acquire() acquire { return acquire{a.claim} }

func (a *attempt) withdraw() withdraw {
	w := protocol.Withdrawal{Claim: a.claim, Owner: newID(), Write: newID(), Uncertain: a.claim.Record.Uncertain}
	if len(a.claim.Record.Steps) == 0 {
		w.ExpiresAt = expiry(a.c.now)
	}
	return withdraw{w}
}

// extend renews the lease to d from now, and the expiry with it if the record
// has one.
func (a *attempt) extend(d time.Duration) extend {
	e := protocol.Extension{ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), LeaseUntil: a.c.now.Add(d)}
	if a.claim.Record.Repeat == protocol.Repeatable && a.claim.Record.Due.IsZero() {
		e.ExpiresAt = expiry(e.LeaseUntil)
	}
	return extend{e}
}

func (a *attempt) step(name string, result []byte) step {
	return step{protocol.StepWrite{
		ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), Name: name, Result: result,
	}}
}

// stepOver is a write without a result over the step's entry as it is now.
func (a *attempt) stepOver(name string, w protocol.StepWrite) step {
	w.ID, w.Owner, w.Write, w.Name, w.Seen = a.id(), a.claim.Record.Owner, newID(), name, a.entry(name)
	return step{w}
}

func (a *attempt) begin(name string) step { return a.stepOver(name, protocol.StepWrite{Begin: true}) }

// beginWatched puts the claim into the index.
func (a *attempt) beginWatched(name string, due time.Time) step {
	w := a.begin(name)
	w.Due = due
	return w
}

func (a *attempt) notExecuted(name string) step {
	return a.stepOver(name, protocol.StepWrite{NotExecuted: true})
}

// read uses what a resolution has recorded of the step, unread could not.
func (a *attempt) read(name string) step { return a.stepOver(name, protocol.StepWrite{Read: true}) }
func (a *attempt) unread(name string) step {
	spent := a.c.get(a.id()).Steps[name].Body
	return a.stepOver(name, protocol.StepWrite{Unread: true, Spent: spent})
}

// verdicts are those of a resolution on a step. An attempt must be able to go on with the needed ones:
// the step's result, or that the one that the step's compensation needs is not known.
func verdicts() (needed, others []protocol.StepWrite) {
	needed = []protocol.StepWrite{
		{Name: "charge", Result: []byte("said")}, {Name: "charge", Result: noise(5 << 10)},
		{Name: "charge", Compensates: true, Omitted: true, Failure: &protocol.Failure{Message: "not known"}},
	}
	return needed, []protocol.StepWrite{
		{Name: "charge", Failure: &protocol.Failure{Message: "declined"}},
		{Name: "charge", Omitted: true, Failure: &protocol.Failure{Message: "not known"}},
		{Name: "charge", Compensates: true, Failure: &protocol.Failure{Message: "declined"}},
	}
}

// resolvedStep interrupts the attempt in a step, and resolves it with a verdict on the step.
func (a *attempt) resolvedStep(verdict protocol.StepWrite) *attempt {
	a.c.Helper()
	return a.lands(begins).after(2*lease).lands(lapses, recordsOfStep(verdict))
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
	w.Failure = &protocol.Failure{Message: "card declined", Type: "DeclinedError"}
	return w
}

func (a *attempt) stepOmitted(name string) step {
	w := a.step(name, nil)
	w.Omitted, w.Compensates = true, true
	w.Failure = &protocol.Failure{Message: "unsupported value: +Inf", Type: "UnsupportedValueError"}
	return w
}

// watched reports whether the record is, or was when it was claimed, in the index.
func (a *attempt) watched() bool {
	rec := a.seen()
	return !a.claim.Record.Due.IsZero() || rec != nil && !rec.Due.IsZero()
}

func (a *attempt) finish(e protocol.Ending) finish {
	return finish{protocol.Finish{
		ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), Ending: e, Watched: a.watched(), LargeSteps: a.stepped(),
	}}
}

// stepped reports whether the record has results of steps, which may lie outside of it.
func (a *attempt) stepped() bool {
	rec := a.seen()
	return rec != nil && len(rec.Steps) > 0
}

func (a *attempt) refer(ref string) refer {
	w := protocol.ReferenceWrite{ID: a.id(), Owner: a.claim.Record.Owner, Write: newID(), Ref: ref}
	if rec := a.seen(); rec != nil {
		w.Seen = rec.RefWrite
	}
	return refer{w}
}

// postpone is a sweep that has seen the record as it is now.
func (a *attempt) postpone(d time.Duration) postpone {
	old := a.seen()
	return postpone{protocol.Postponement{
		ID: a.id(), Seen: old.Write, SeenSweep: old.Sweep, Sweep: newID(), Due: a.c.now.Add(d), Probes: old.Probes + 1,
	}}
}

// prolong keeps what is seen now for longer than outcomes are kept.
func (a *attempt) prolong(d time.Duration) prolong {
	return prolong{protocol.Prolongation{
		ID: a.id(), Seen: a.seen().Write, Write: newID(), ExpiresAt: expiry(a.c.now).Add(d),
	}}
}

// audit is the entry of a change from outside to what is seen now.
func (a *attempt) audit(change protocol.Change, to protocol.State) *protocol.Audit {
	return &protocol.Audit{
		ID: a.id(), Entry: newID(), At: a.c.now, Who: "alice", Why: "the provider says so", Tool: "console",
		Change: change, From: a.seen().State, To: to, Attempt: 1, Ref: "pay_1", ExpiresAt: expiry(a.c.now),
	}
}

// forget removes what is seen now.
func (a *attempt) forget() forget {
	return forget{protocol.Erasure{ID: a.id(), Seen: a.seen().Write}}
}

func (a *attempt) complete(result string) finish {
	return a.finish(protocol.Ending{
		State: protocol.Completed, Result: []byte(result), ExpiresAt: expiry(a.c.now), ResponseVersion: 3,
	})
}

// without is the completion as it is recorded before its result can be stored.
func (a *attempt) without(kept string) finish {
	w := a.complete(kept)
	w.Ending.Omitted = true
	return w
}

// add gives the outcome, whose write the attempt holds, its result.
func (a *attempt) add(result string) finish {
	w := a.complete(result)
	w.Attempt, w.Progress = protocol.WithoutResult{Write: a.held.(finish).Write}, new(protocol.Progress)
	return w
}

func (a *attempt) fail() finish {
	return a.finish(protocol.Ending{
		State: protocol.Failed, ExpiresAt: expiry(a.c.now),
		Failure: &protocol.Failure{Message: "card declined", Type: "DeclinedError", Code: "card_declined"},
	})
}

func (a *attempt) release(uncertain bool) finish {
	e := protocol.Ending{
		State: protocol.Released, Uncertain: uncertain,
		Failure: &protocol.Failure{Message: "connection refused", Type: "OpError"},
	}
	if rec := a.seen(); rec == nil || len(rec.Steps) == 0 {
		e.ExpiresAt = expiry(a.c.now)
	}
	return a.finish(e)
}

func (a *attempt) park() finish {
	return a.finish(protocol.Ending{
		State: protocol.Unknown, Uncertain: true, Failure: &protocol.Failure{Message: "time-out", Type: "timeoutError"},
	})
}

// lapse is another call's park of what it sees now.
func (a *attempt) lapse() settle {
	return settle{protocol.Settlement{
		ID: a.id(), Kind: protocol.EventLapse, Seen: a.seen().Write, Write: newID(),
		Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: true},
	}}
}

// resolve is an operator's answer to what is seen now.
func (a *attempt) resolve(to protocol.State) settle {
	s := protocol.Settlement{
		ID: a.id(), Kind: protocol.EventResolve, Seen: a.seen().Write, Write: newID(),
		Ending: protocol.Ending{State: to, Ref: "pay_1"}, LargeSteps: a.stepped(),
	}
	s.Owner = s.Write
	switch to {
	case protocol.Completed:
		s.Ending.Result, s.Ending.ExpiresAt = []byte(`{"resolved":true}`), expiry(a.c.now)
	case protocol.Failed:
		s.Ending.Failure, s.Ending.ExpiresAt = &protocol.Failure{Message: "never charged"}, expiry(a.c.now)
	case protocol.Released:
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
