package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// watchedCases: a watched claim leaves the index with its end, however that comes.
func watchedCases(steps bool) []check {
	var cases []check
	for _, e := range []named{
		{"completion", completes}, {"failure", fails}, {"release", releases}, {"park", parks},
		{"another call's park", lapses}, {"withdrawal", withdraws}, {"takeover", takesOver},
	} {
		cases = append(cases, check{e.name, func(c *cell) { c.start(watched).lands(extends, e.make) }},
			check{e.name + " of a takeover", func(c *cell) {
				b := c.start().next()
				watched(&b.claim.Record)
				b.lands(acquires, e.make)
			}})
		cases = append(cases, withSteps(steps, check{e.name + " of one that a begin mark has watched", func(c *cell) {
			a := c.start()
			due := c.now.Add(2 * lease)
			c.lands(a.beginWatched("charge", due))
			c.lands(a.beginWatched("ship", due.Add(lease)))
			c.lands(a.begin("send"))
			a.lands(charges, extends)
			equal(c, "Due", due, c.get(a.id()).Due.UTC())
			a.lands(e.make)
		}})...)
	}
	return append(cases, withSteps(steps,
		check{"a begin mark leaves a watched claim as it is", func(c *cell) {
			c.lands(c.start(watched).beginWatched("charge", c.now))
		}},
		check{"a begin mark that is refused watches nothing", func(c *cell) {
			c.refused(having(completes)(c).beginWatched("charge", c.now))
		}})...)
}

// referenceCases: what the provider calls the effect is written under the claim.
func referenceCases(steps bool) []check {
	return append([]check{
		{"in progress, over an earlier one", func(c *cell) {
			c.start().lands(refers("pay_1")).again(refers("pay_2")).lands(completes)
		}},
		{"after a park", func(c *cell) { c.start().lands(lapses, refers("pay_1")) }},
		{"sent twice, with another write in between", func(c *cell) {
			c.start().holds(refers("pay_1")).late(true).lands(extends).late(true)
		}},
		{"comes late, over a newer one", func(c *cell) {
			a := c.start().holds(refers("pay_1")).late(true).lands(refers("pay_2")).late(false)
			unseen := a.refer("pay_3")
			unseen.Seen = ""
			c.refused(unseen)
			a.lands(refers("pay_1")).late(false)
		}},
		{"goes with the attempt, unless the claim has it", func(c *cell) {
			a := having(refers("pay_1"))(c)
			b := a.next().lands(acquires)
			a.refused(refers("pay_2"))
			d := b.lands(refers("pay_3")).next()
			d.claim.Record.Ref = "pay_3"
			d.lands(acquires, withdraws)
		}},
	}, withSteps(steps, check{"with a begin mark", func(c *cell) {
		for _, a := range []*attempt{having(ships)(c), c.start()} {
			w := a.begin("charge")
			w.Ref = "pay_1"
			c.lands(w)
		}
	}})...)
}

// newQuestionCases: a write to another state begins a question of its own, which was not escalated yet.
func newQuestionCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok || h.WithoutSteps {
		return nil
	}
	cases := []check{{"half done, and not forgotten", func(c *cell) {
		having(ships, releases)(c).refused(func(a *attempt) write { return a.forget() })
	}}, {"resolved with its step's large result, then otherwise, with an entry of each", func(c *cell) {
		large := protocol.StepWrite{Name: "charge", Result: noise(5 << 10)}
		for _, second := range []move{over(large), over(protocol.StepWrite{}), resolves(protocol.Completed)} {
			a := having(ships, begins, lapses)(c).again(audited(recordsOfStep(large)))
			a.again(audited(replacing(second)))
		}
	}}}
	for _, m := range []struct {
		name string
		from []move // none for a watched claim
		to   move
	}{
		{"a watched claim, and parked", nil, parks},
		{"a watched claim, and parked by another call", nil, lapses},
		{"a watched claim, and released", nil, releasesInDoubt},
		{"a parked attempt, and released by its own", []move{lapses}, releases},
		{"a parked attempt, and resolved to released", []move{parks}, resolves(protocol.Released)},
		{"a released record, and parked", []move{releasesInDoubt}, lapses},
		{"a released record, and a claim over it is withdrawn", []move{releasesInDoubt}, withdrawsNext},
	} {
		cases = append(cases, check{"escalated: " + m.name, func(c *cell) {
			a := c.start(watched).lands(ships).lands(m.from...).lands(escalates, m.to)
			equal(c, "EscalatedAt", time.Time{}, c.get(a.id()).EscalatedAt)
		}})
	}
	return cases
}

// audited is a resolution with its entry.
func audited(m move) move {
	return func(a *attempt) write {
		r := m(a).(settle)
		r.Audit = a.audit(protocol.ChangeResolved, r.Ending.State)
		return r
	}
}

// questionCases are about what is due, and about changes from outside.
func questionCases(h Harness) []check {
	if _, ok := h.Store.(protocol.AdminStore); !ok {
		return []check{{"none", func(c *cell) {
			c.Skip("the store is no protocol.AdminStore: what sweeps and operators do with it is not tested")
		}}}
	}
	postpones := func(a *attempt) write { return a.postpone(time.Hour) }
	forgets := func(a *attempt) write { return a.forget() }
	return []check{
		{"postponed", func(c *cell) { c.start(watched).lands(postpones, parks).again(escalates).lands(completes) }},
		{"escalated, and parked again by its own attempt", func(c *cell) {
			a := having(lapses, escalates)(c)
			since := c.get(a.id()).EscalatedAt
			a.lands(parks)
			equal(c, "EscalatedAt", since, c.get(a.id()).EscalatedAt)
		}},
		{"postponed by somebody else", func(c *cell) {
			a := having(parks)(c).holds(postpones).lands(postpones).late(false)
			a.holds(postpones).lands(refers("pay_1")).late(false)
		}},
		{"postponed and resolved", func(c *cell) {
			a := having(parks)(c)
			r, late := a.resolve(protocol.Completed), a.postpone(time.Hour)
			a.lands(postpones)
			c.lands(r)
			c.refused(late)
		}},
		{"postponed where nothing is due", func(c *cell) {
			c.start().refused(postpones).lands(completes).refused(postpones)
		}},
		{"resolved again", func(c *cell) {
			for _, first := range outcomes {
				for _, second := range outcomes {
					having(parks, resolves(first))(c).refused(resolves(second)).lands(replacing(resolves(second)))
				}
			}
			again := replacing(resolves(protocol.Failed))
			having(completes)(c).refused(again)
			having(parks, resolves(protocol.Released))(c).holds(again).lands(takesOver).late(false)
		}},
		{"forgotten", func(c *cell) {
			for _, end := range []move{completes, completesInParts, fails, releases} {
				f := having(end)(c).forget()
				c.removed(f)
				c.removed(f)
			}
		}},
		{"forgotten although open", func(c *cell) {
			c.start().refused(forgets).lands(parks).refused(forgets)
			having(completes)(c).holds(forgets).lands(replaces).late(false)
		}},
		{"changes from outside", func(c *cell) {
			q := c.store.(protocol.AdminStore)
			a := c.start(notRepeatable, watched)
			from := c.now
			lapse := a.lapse()
			lapse.Audit = a.audit(protocol.ChangeParked, protocol.Unknown)
			c.twice(lapse)
			lost := a.resolve(protocol.Failed)
			up := a.postpone(time.Hour)
			up.Audit = a.audit(protocol.ChangeEscalated, protocol.Unknown)
			c.twice(up)
			r := a.resolve(protocol.Completed)
			r.Audit = a.audit(protocol.ChangeResolved, protocol.Completed)
			r.Audit.Steps = map[string]protocol.StepVerdict{"charge": protocol.StepTookEffect, "ship": protocol.StepNotExecuted}
			c.twice(r)
			lost.Audit = a.audit(protocol.ChangeResolved, protocol.Failed)
			c.refused(lost)
			f := a.forget()
			f.Audit = a.audit(protocol.ChangeForgotten, protocol.Absent)
			c.removed(f)
			c.removed(f)
			want := []protocol.Audit{*lapse.Audit, *up.Audit, *r.Audit, *f.Audit}
			p, err := q.AuditOf(c.ctx, a.id(), "")
			c.must(err)
			c.sameAudit(want, p)
			found := 0
			for shard := range protocol.AuditShards {
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
		{"no open question is among the claims", func(c *cell) {
			open := map[string]bool{}
			for _, m := range []move{parks, lapses, escalates} {
				open[c.start(watched).lands(m).id()] = true
			}
			for shard := protocol.QuestionShards; shard < protocol.Shards; shard++ {
				p, err := c.store.(protocol.AdminStore).Due(c.ctx, protocol.DueQuery{
					Shard: shard, Until: c.now.Add(366 * 24 * time.Hour), Limit: 100})
				c.must(err)
				for _, id := range p.IDs {
					if open[id] {
						c.fatalf("%q is in shard %d", id, shard)
					}
				}
			}
		}},
		{"due, while what was listed moves away, ends or is parked", func(c *cell) {
			left, due := map[string]*attempt{}, c.now
			for range 40 {
				a := c.start(watched, func(r *protocol.Record) { r.Due = due })
				left[a.id()] = a
			}
			until := c.now
			for shard := range protocol.Shards {
				for page := ""; ; {
					p, err := c.store.(protocol.AdminStore).Due(c.ctx, protocol.DueQuery{
						Shard: shard, Until: until, Page: page, Limit: 1,
					})
					c.must(err)
					for _, id := range p.IDs {
						a := left[id]
						if a == nil {
							c.fatalf("%q is listed twice, or not due", id)
						}
						delete(left, id)
						if leave := []move{postpones, completes, lapses, nil}[len(left)%4]; leave != nil {
							a.lands(leave)
						}
					}
					if page = p.Next; page == "" {
						break
					}
				}
			}
			equal(c, "records that were not listed", 0, len(left))
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
			c.start(watched).lands(completes)
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

// removed requires that the record is removed, or had been.
func (c *cell) removed(f forget) {
	c.Helper()
	c.trail = append(c.trail, f.String())
	c.must(c.send(f))
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
