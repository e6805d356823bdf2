package storetest

import (
	"bytes"
	"errors"

	"github.com/idem-go/idempotency/idem"
)

func stepCases(steps bool) []check {
	if !steps {
		return []check{{"is refused as unsupported", func(c *cell) {
			a := c.start()
			err := a.step("ship", nil).send(c.ctx, c.store, c.now)
			if !errors.Is(err, errors.ErrUnsupported) {
				c.fatalf("RecordStep: want errors.ErrUnsupported, got %v", err)
			}
			c.check(a.id())
		}}}
	}
	return []check{
		{"results of all sizes", func(c *cell) {
			a := c.start()
			for name, size := range map[string]int{"none": 0, "small": 10, "1 KB": 1 << 10, "4 KB": 4 << 10, "100 KB": 100 << 10} {
				c.lands(a.step(name, noise(size)))
			}
			equal(c, "number of steps", 5, len(c.get(a.id()).Steps))
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.complete("done"))
		}},
		{"begin mark, then its result", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			equal(c, "Begun", true, c.get(a.id()).Steps["charge"].Begun)
			c.lands(a.step("charge", []byte("ch_1")))
			s := c.get(a.id()).Steps["charge"]
			equal(c, "Begun", false, s.Begun)
			equal(c, "Result", "ch_1", string(s.Result))
		}},
		{"begin mark on a begin mark", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.refused(a.begin("charge"))
		}},
		{"begin mark on a recorded step", func(c *cell) {
			a := c.start()
			c.lands(a.step("charge", []byte("ch_1")))
			c.refused(a.begin("charge"))
			equal(c, "Result", "ch_1", string(c.get(a.id()).Steps["charge"].Result))
		}},
		{"begin mark of a later attempt on a recorded step", func(c *cell) {
			a := c.start()
			c.lands(a.step("charge", []byte("ch_1")))
			b := a.next()
			c.lands(b.acquire())
			c.refused(b.begin("charge"))
		}},
		{"result on a recorded step", func(c *cell) {
			a := c.start()
			c.lands(a.step("charge", []byte("ch_1")))
			c.refused(a.step("charge", []byte("ch_2")))
			equal(c, "Result", "ch_1", string(c.get(a.id()).Steps["charge"].Result))
		}},
		{"names with odd characters", func(c *cell) {
			a := c.start()
			for _, n := range []string{"a.b", "a b", "#n", ":v", "a[0]", "it's", "日本", "steps", "%", "a#b"} {
				c.lands(a.begin(n))
				c.lands(a.step(n, []byte(n)))
			}
		}},
		{"two steps do not touch each other", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.step("ship", []byte("s_1")))
			equal(c, "Begun", true, c.get(a.id()).Steps["charge"].Begun)
		}},
	}
}

func settleCases(steps bool) []check {
	cases := []check{
		{"twin's park keeps the owner and the lease", func(c *cell) {
			a := c.start()
			c.lands(a.lapse())
			rec := c.get(a.id())
			equal(c, "Owner", a.claim.Record.Owner, rec.Owner)
			equal(c, "LeaseUntil", a.claim.Record.LeaseUntil, rec.LeaseUntil.UTC())
			equal(c, "Attempt", 1, rec.Attempt)
		}},
		{"twin's park of what it has not seen", func(c *cell) {
			a := c.start()
			s := a.lapse()
			s.Seen = newID()
			c.refused(s)
		}},
		{"twin's park of an ended record", func(c *cell) {
			for _, f := range []func(a *attempt) finish{
				func(a *attempt) finish { return a.complete("done") },
				func(a *attempt) finish { return a.fail() },
				func(a *attempt) finish { return a.park() },
			} {
				a := c.start()
				c.lands(f(a))
				c.refused(a.lapse())
			}
		}},
		{"resolution replaces the owner", func(c *cell) {
			for _, to := range []idem.State{idem.Completed, idem.Failed, idem.Retryable} {
				a := c.start()
				c.lands(a.lapse())
				r := a.resolve(to)
				c.lands(r)
				rec := c.get(a.id())
				equal(c, "Owner", r.Owner, rec.Owner)
				equal(c, "Ref", "pay_1", rec.Ref)
				equal(c, "State", to, rec.State)
			}
		}},
		{"resolution of what it has not seen", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(idem.Completed)
			c.lands(a.park())
			c.refused(r)
			c.lands(a.resolve(idem.Completed))
		}},
		{"resolution of a record that is not unknown", func(c *cell) {
			for _, s := range standing(steps) {
				a := s.make(c)
				if c.ref[a.id()].State == idem.Unknown {
					continue
				}
				c.refused(a.resolve(idem.Completed))
				c.refused(a.resolve(idem.Retryable))
			}
		}},
		{"resolution with a large result", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			r := a.resolve(idem.Completed)
			r.Ending.Result = bytes.Repeat([]byte("resolved "), 50_000)
			c.lands(r)
			c.refused(a.complete("late"))
		}},
		{"only one of two resolutions", func(c *cell) {
			a := c.start()
			c.lands(a.park())
			one, two := a.resolve(idem.Retryable), a.resolve(idem.Completed)
			c.lands(one)
			c.refused(two)
			c.lands(a.next().acquire())
			c.refused(two)
		}},
	}
	if steps {
		cases = append(cases, check{"resolution clears the begin marks and keeps the steps", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", []byte("s_1")))
			c.lands(a.begin("charge"))
			c.lands(a.lapse())
			c.lands(a.resolve(idem.Retryable))
			rec := c.get(a.id())
			equal(c, "number of steps", 1, len(rec.Steps))
			equal(c, "step", "s_1", string(rec.Steps["ship"].Result))
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.begin("charge"))
		}}, check{"twin's park keeps the steps", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.lapse())
			equal(c, "Begun", true, c.get(a.id()).Steps["charge"].Begun)
		}})
	}
	return cases
}
