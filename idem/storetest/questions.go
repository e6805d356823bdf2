package storetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// watchedCases: a watched claim leaves the index with its end, however that comes.
func watchedCases(steps bool) []check {
	ends := []struct {
		name string
		make func(a *attempt) write
	}{
		{"completion", func(a *attempt) write { return a.complete("done") }},
		{"failure", func(a *attempt) write { return a.fail() }},
		{"release", func(a *attempt) write { return a.release(false) }},
		{"park", func(a *attempt) write { return a.park() }},
		{"another call's park", func(a *attempt) write { return a.lapse() }},
		{"withdrawal", func(a *attempt) write { return a.withdraw() }},
		{"takeover", func(a *attempt) write { return a.next().acquire() }},
	}
	var cases []check
	for _, e := range ends {
		cases = append(cases, check{e.name, func(c *cell) {
			a := c.start(watched)
			c.lands(a.extend(2 * lease))
			equal(c, "Due", a.claim.Record.Due, c.get(a.id()).Due.UTC())
			c.lands(e.make(a))
		}}, check{e.name + " of a takeover", func(c *cell) {
			a := c.start()
			b := a.next()
			watched(&b.claim.Record)
			c.lands(b.acquire())
			c.lands(e.make(b))
		}})
		if !steps {
			continue
		}
		cases = append(cases, check{e.name + " of one that a begin mark has watched", func(c *cell) {
			a := c.start()
			due := c.now.Add(2 * lease)
			c.lands(a.beginWatched("charge", due))
			equal(c, "Due", due, c.get(a.id()).Due.UTC())
			c.lands(a.beginWatched("ship", due.Add(lease)))
			c.lands(a.begin("send"))
			equal(c, "Due", due, c.get(a.id()).Due.UTC())
			c.lands(a.step("charge", []byte("ch_1")))
			c.lands(a.extend(2 * lease))
			equal(c, "Due", due, c.get(a.id()).Due.UTC())
			c.lands(e.make(a))
		}})
	}
	if steps {
		cases = append(cases, check{"a begin mark leaves a watched claim as it is", func(c *cell) {
			a := c.start(watched)
			c.lands(a.beginWatched("charge", c.now))
			equal(c, "Due", a.claim.Record.Due, c.get(a.id()).Due.UTC())
		}}, check{"a begin mark that is refused watches nothing", func(c *cell) {
			a := c.start()
			c.lands(a.complete("done"))
			c.refused(a.beginWatched("charge", c.now))
		}})
	}
	return cases
}

// referenceCases: what the provider calls the effect is written under the claim.
func referenceCases(steps bool) []check {
	cases := []check{
		{"in progress, over an earlier one", func(c *cell) {
			a := c.start()
			c.lands(a.refer("pay_1"))
			w := a.refer("pay_2")
			c.lands(w)
			c.lands(w)
			equal(c, "Ref", "pay_2", c.get(a.id()).Ref)
			c.lands(a.complete("done"))
			equal(c, "Ref", "pay_2", c.get(a.id()).Ref)
		}},
		{"after a park", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			c.lands(a.refer("pay_1"))
			equal(c, "State", protocol.Unknown, c.get(a.id()).State)
		}},
		{"sent twice, with another write in between", func(c *cell) {
			a := c.start()
			w := a.refer("pay_1")
			c.lands(w)
			c.lands(a.extend(2 * lease))
			c.lands(w)
		}},
		{"comes late, over a newer one", func(c *cell) {
			a := c.start()
			first := a.refer("pay_1")
			c.lands(first)
			c.lands(a.refer("pay_2"))
			c.refused(first)
			equal(c, "Ref", "pay_2", c.get(a.id()).Ref)
			unseen := a.refer("pay_3")
			unseen.Seen = ""
			c.refused(unseen)
			c.lands(a.refer("pay_1"))
			c.refused(first)
		}},
		{"goes with the attempt, unless the claim has it", func(c *cell) {
			a := c.start()
			c.lands(a.refer("pay_1"))
			b := a.next()
			c.lands(b.acquire())
			equal(c, "Ref", "", c.get(a.id()).Ref)
			c.refused(a.refer("pay_2"))
			c.lands(b.refer("pay_3"))
			d := b.next()
			d.claim.Record.Ref = "pay_3"
			c.lands(d.acquire())
			equal(c, "Ref", "pay_3", c.get(a.id()).Ref)
			c.lands(d.withdraw())
			equal(c, "Ref", "pay_3", c.get(a.id()).Ref)
		}},
	}
	if steps {
		cases = append(cases, check{"with a begin mark", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", []byte("1")))
			w := a.begin("charge")
			w.Ref = "pay_1"
			c.lands(w)
			b := c.start()
			first := b.begin("charge")
			first.Ref = "pay_2"
			c.lands(first)
			equal(c, "Ref", "pay_2", c.get(b.id()).Ref)
		}})
	}
	return cases
}

// newQuestionCases: a write to another state begins a question of its own, of which
// nobody has been told.
func newQuestionCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok || h.WithoutSteps {
		return nil
	}
	moves := []struct {
		name string
		from func(a *attempt) write // nil for a watched claim
		to   func(a *attempt) write
	}{
		{"a watched claim, and parked", nil, func(a *attempt) write { return a.park() }},
		{"a watched claim, and parked by another call", nil, func(a *attempt) write { return a.lapse() }},
		{"a watched claim, and released", nil, func(a *attempt) write { return a.release(true) }},
		{"a parked attempt, and released by its own", func(a *attempt) write { return a.lapse() }, func(a *attempt) write { return a.release(false) }},
		{"a parked attempt, and resolved to released", func(a *attempt) write { return a.park() }, func(a *attempt) write { return a.resolve(protocol.Released) }},
		{"a released record, and parked", func(a *attempt) write { return a.release(true) }, func(a *attempt) write { return a.lapse() }},
		{"a released record, and a claim over it is withdrawn", func(a *attempt) write { return a.release(true) }, func(a *attempt) write { return a.next().withdraw() }},
	}
	var cases []check
	for _, m := range moves {
		cases = append(cases, check{"escalated: " + m.name, func(c *cell) {
			a := c.start(watched)
			c.lands(a.step("ship", []byte("1")))
			if m.from != nil {
				c.lands(m.from(a))
			}
			w := a.postpone(time.Hour)
			w.EscalatedAt = c.now
			c.lands(w)
			c.lands(m.to(a))
			rec := c.get(a.id())
			equal(c, "Due", c.now, rec.Due.UTC())
			equal(c, "OpenSince", c.now, rec.OpenSince.UTC())
			equal(c, "EscalatedAt", time.Time{}, rec.EscalatedAt)
			equal(c, "Sweep", "", rec.Sweep)
			equal(c, "Probes", 0, rec.Probes)
		}})
	}
	return cases
}

// questionCases are about what is due, and about changes from outside.
func questionCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok {
		return []check{{"none", func(c *cell) {
			c.Skip("the store is no protocol.AdminStore: what sweeps and operators do with it is not tested")
		}}}
	}
	return []check{
		{"postponed", func(c *cell) {
			a := c.start(watched)
			c.lands(a.postpone(lease))
			c.lands(a.park())
			w := a.postpone(time.Hour)
			w.EscalatedAt = c.now
			c.lands(w)
			c.lands(w)
			rec := c.get(a.id())
			equal(c, "Write", a.seen().Write, rec.Write)
			equal(c, "Probes", 1, rec.Probes)
			c.lands(a.complete("late"))
		}},
		{"escalated, and parked again by its own attempt", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			since := c.now
			w := a.postpone(time.Hour)
			w.EscalatedAt = c.now
			c.lands(w)
			c.lands(a.park())
			rec := c.get(a.id())
			equal(c, "Due", w.Due, rec.Due.UTC())
			equal(c, "OpenSince", since, rec.OpenSince.UTC())
			equal(c, "EscalatedAt", w.EscalatedAt, rec.EscalatedAt.UTC())
			equal(c, "Sweep", w.Sweep, rec.Sweep)
		}},
		{"postponed by somebody else", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			one, two := a.postpone(time.Minute), a.postpone(time.Hour)
			c.lands(one)
			c.refused(two)
			stale := a.postpone(time.Hour)
			c.lands(a.refer("pay_1"))
			c.refused(stale)
		}},
		{"postponed and resolved", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(protocol.Completed)
			late := a.postpone(time.Hour)
			c.lands(a.postpone(time.Minute))
			c.lands(r)
			c.refused(late)
		}},
		{"postponed where nothing is due", func(c *cell) {
			a := c.start()
			c.refused(a.postpone(time.Hour))
			c.lands(a.complete("done"))
			c.refused(a.postpone(time.Hour))
		}},
		{"resolved again", func(c *cell) {
			for _, first := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
				for _, second := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
					a := c.start()
					c.lands(a.park())
					c.lands(a.resolve(first))
					again := a.resolve(second)
					c.refused(again)
					again.Again = true
					c.lands(again)
				}
			}
			a := c.start()
			c.lands(a.complete("mine"))
			again := a.resolve(protocol.Failed)
			again.Again = true
			c.refused(again)
			b := c.start()
			c.lands(b.park())
			c.lands(b.resolve(protocol.Released))
			again = b.resolve(protocol.Failed)
			again.Again = true
			c.lands(b.next().acquire())
			c.refused(again)
		}},
		{"forgotten", func(c *cell) {
			for _, end := range []func(a *attempt) write{
				func(a *attempt) write { return a.complete("done") },
				func(a *attempt) write { return a.complete(string(make([]byte, 300_000))) },
				func(a *attempt) write { return a.fail() },
				func(a *attempt) write { return a.release(false) },
			} {
				a := c.start()
				c.lands(end(a))
				f := a.forget()
				c.gone(f)
				c.gone(f)
			}
		}},
		{"forgotten although open", func(c *cell) {
			a := c.start()
			c.refused(a.forget())
			c.lands(a.park())
			c.refused(a.forget())
			b := c.start()
			c.lands(b.complete("done"))
			f := b.forget()
			c.lands(b.replacement().acquire())
			c.refused(f)
		}},
		{"changes from outside", func(c *cell) {
			q := c.store.(protocol.AdminStore)
			a := c.start(notRepeatable, watched)
			from := c.now
			var want []protocol.Audit
			note := func(change protocol.Change, to protocol.State) *protocol.Audit {
				n := protocol.Audit{
					ID: a.id(), Entry: newID(), At: c.now, Who: "alice", Why: "the provider says so", Tool: "console",
					Change: change, From: a.seen().State, To: to, Attempt: 1, Ref: "pay_1", ExpiresAt: expiry(c.now),
				}
				want = append(want, n)
				return &n
			}
			lapse := a.lapse()
			lapse.Audit = note(protocol.ChangeParked, protocol.Unknown)
			c.lands(lapse)
			c.lands(lapse)
			lost := a.resolve(protocol.Failed)
			up := a.postpone(time.Hour)
			up.Audit = note(protocol.ChangeEscalated, protocol.Unknown)
			c.lands(up)
			c.lands(up)
			r := a.resolve(protocol.Completed)
			r.Audit = note(protocol.ChangeResolved, protocol.Completed)
			r.Audit.Steps = map[string]protocol.StepVerdict{"charge": protocol.StepTookEffect, "ship": protocol.StepNotExecuted}
			want[len(want)-1].Steps = maps.Clone(r.Audit.Steps)
			c.lands(r)
			c.lands(r)
			lost.Audit = &protocol.Audit{ID: a.id(), Entry: newID(), At: c.now, Who: "bob", Why: "too late", Change: protocol.ChangeResolved, From: protocol.Unknown}
			c.refused(lost)
			f := a.forget()
			f.Audit = note(protocol.ChangeForgotten, protocol.Absent)
			c.gone(f)
			c.gone(f)
			p, err := q.AuditOf(c.ctx, a.id(), "")
			c.must(err)
			c.sameAudit(want, p)
			found := 0
			for shard := range protocol.Shards {
				p, err := q.AuditBetween(c.ctx, shard, from, c.now.Add(time.Millisecond), "")
				c.must(err)
				p.Entries = slices.DeleteFunc(p.Entries, func(n protocol.Audit) bool { return n.ID != a.id() })
				if len(p.Entries) > 0 {
					found++
					c.sameAudit(want, p)
				}
				p, err = q.AuditBetween(c.ctx, shard, c.now.Add(time.Second), c.now.Add(time.Hour), "")
				c.must(err)
				equal(c, "changes later than the last", 0, len(p.Entries))
				p, err = q.AuditBetween(c.ctx, shard, from, from, "")
				c.must(err)
				equal(c, "changes in no time", 0, len(p.Entries))
			}
			equal(c, "shards with the record's changes", 1, found)
		}},
		{"due", func(c *cell) {
			var want []string
			for n := range 7 {
				due := c.now.Add(time.Duration(n) * time.Minute)
				a := c.start(watched, func(r *protocol.Record) { r.Due = due })
				if n < 5 {
					want = append(want, fmt.Sprint(a.id(), " at ", due.UTC()))
				}
			}
			ended := c.start(watched)
			c.lands(ended.complete("done"))
			c.start()
			for _, limit := range []int{1, 2, 100} {
				var got []string
				for shard := range protocol.Shards {
					for page := ""; ; {
						p, err := c.store.(protocol.AdminStore).Due(c.ctx, protocol.DueQuery{
							Shard: shard, Until: c.now.Add(4*time.Minute + time.Second), Page: page, Limit: limit,
						})
						c.must(err)
						if len(p.IDs) > limit {
							c.fatalf("a page of at most %d has %d records", limit, len(p.IDs))
						}
						equal(c, "times of a page", len(p.IDs), len(p.Due))
						for i, id := range p.IDs {
							got = append(got, fmt.Sprint(id, " at ", p.Due[i].UTC()))
						}
						if page = p.Next; page == "" {
							break
						}
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				equal(c, fmt.Sprintf("due, %d on a page", limit), fmt.Sprint(want), fmt.Sprint(got))
			}
		}},
	}
}

// gone requires that the record is removed, or had been.
func (c *cell) gone(f forget) {
	c.Helper()
	c.trail = append(c.trail, f.String())
	c.must(f.send(c.ctx, c.store, c.now))
	delete(c.ref, f.ID)
	c.check(f.ID)
}

func (c *cell) sameAudit(want []protocol.Audit, p protocol.AuditPage) {
	c.Helper()
	got := slices.Clone(p.Entries)
	for i := range got {
		got[i].At, got[i].ExpiresAt, got[i].Until = got[i].At.UTC(), got[i].ExpiresAt.UTC(), got[i].Until.UTC()
	}
	equal(c, "changes", fmt.Sprint(want), fmt.Sprint(got))
}
