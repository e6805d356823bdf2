package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// stepCases record steps, or check that a store without them says so.
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
			rec := c.get(a.id())
			equal(c, "Begun", false, rec.Steps["charge"].Begun)
			equal(c, "Result", "ch_1", c.stepResult(rec, "charge"))
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
			equal(c, "Result", "ch_1", c.stepResult(c.get(a.id()), "charge"))
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
			equal(c, "Result", "ch_1", c.stepResult(c.get(a.id()), "charge"))
		}},
		{"not executed after a begin mark, then again", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.notExecuted("charge"))
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.begin("charge"))
			c.refused(b.begin("charge"))
			c.lands(b.step("charge", []byte("ch_1")))
		}},
		{"not executed lands late over the next begin mark", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			late := a.notExecuted("charge")
			c.lands(late)
			c.lands(a.begin("charge"))
			c.refused(late)
			c.refused(step{protocol.StepWrite{ID: late.ID, Owner: late.Owner, Write: newID(), Name: late.Name, NotExecuted: true}})
			equal(c, "Begun", true, c.get(a.id()).Steps["charge"].Begun)
		}},
		{"begin mark lands late over what took it back", func(c *cell) {
			a := c.start()
			c.lands(a.step("ship", nil))
			late := a.begin("charge")
			back := a.notExecuted("charge")
			back.Seen = late.Write
			c.lands(back) // it has not landed yet, and cannot any more
			c.refused(late)
			again := a.begin("charge")
			c.lands(again)
			c.lands(a.notExecuted("charge"))
			c.refused(again)
			equal(c, "NotExecuted", true, c.get(a.id()).Steps["charge"].NotExecuted)
		}},
		{"result on a step not executed", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.notExecuted("charge"))
			c.lands(a.step("charge", []byte("ch_1")))
		}},
		{"failure is an outcome", func(c *cell) {
			a := c.start()
			c.lands(a.stepFails("charge"))
			c.refused(a.begin("charge"))
			c.refused(a.step("charge", []byte("ch_1")))
			b := a.next()
			c.lands(b.acquire())
			equal(c, "Failure", "card declined", c.get(a.id()).Steps["charge"].Failure.Message)
		}},
		{"done without its result", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			c.lands(a.stepOmitted("charge"))
			c.refused(a.step("charge", []byte("ch_1")))
			equal(c, "Omitted", true, c.get(a.id()).Steps["charge"].Omitted)
			b := a.next()
			c.lands(b.acquire())
		}},
		{"time of a begin mark", func(c *cell) {
			a := c.start()
			c.lands(a.begin("charge"))
			equal(c, "BegunAt", c.now.UnixMilli(), c.get(a.id()).Steps["charge"].BegunAt.UnixMilli())
			c.lands(a.notExecuted("charge"))
			equal(c, "BegunAt", true, c.get(a.id()).Steps["charge"].BegunAt.IsZero())
		}},
		{"result beside a full record", func(c *cell) {
			a := c.start()
			for name, size := range map[string]int{"small": 128, "larger": 129, "1 KB": 1 << 10} {
				w := a.step(name, noise(size))
				w.InParts = true
				c.lands(w)
			}
			b := a.next()
			c.lands(b.acquire())
			c.lands(b.complete("done"))
		}},
		{"up to the room for steps, with what ends them", fillRoom},
		{"what a resolution has recorded is read once", func(c *cell) {
			for _, verdict := range verdicts() {
				a := c.start()
				c.resolvedStep(a, verdict)
				equal(c, "FromResolution", true, c.get(a.id()).Steps["charge"].FromResolution)
				b := a.next()
				c.lands(b.acquire())
				c.refused(a.read("charge"))
				read, late := b.read("charge"), b.unread("charge")
				c.lands(read)
				c.lands(read)
				c.refused(late)
				c.refused(b.begin("charge"))
				c.lands(b.extend(2 * lease))
				c.lands(read)
				equal(c, "FromResolution", false, c.get(a.id()).Steps["charge"].FromResolution)
				equal(c, "Done", true, c.get(a.id()).Steps["charge"].Done())
				d := b.next()
				c.lands(d.acquire())
				c.refused(read)
				c.refused(d.unread("charge"))
				c.lands(d.complete("done"))
			}
		}},
		{"what no attempt could read is a begin mark again", func(c *cell) {
			for _, verdict := range verdicts() {
				for _, parked := range []bool{false, true} {
					a := c.start()
					c.resolvedStep(a, verdict)
					began := c.get(a.id()).Steps["charge"].BegunAt
					equal(c, "BegunAt", false, began.IsZero())
					b := a.next()
					c.lands(b.acquire())
					c.refused(a.unread("charge"))
					c.refused(b.unread("absent"))
					w, late := b.unread("charge"), b.read("charge")
					if parked {
						c.lands(b.lapse())
					} else {
						w.Due = c.now.Add(lease)
					}
					c.lands(w)
					c.lands(w)
					c.refused(late)
					s := c.get(a.id()).Steps["charge"]
					equal(c, "Begun", true, s.Begun)
					equal(c, "FromResolution", true, s.FromResolution)
					equal(c, "Compensates", verdict.Compensates, s.Compensates)
					equal(c, "Omitted", false, s.Omitted)
					equal(c, "Failure", true, s.Failure == nil)
					equal(c, "BegunAt", began.UnixMilli(), s.BegunAt.UnixMilli())
					d := b.next()
					c.lands(d.acquire())
					c.refused(w)
					c.refused(d.begin("charge"))
					c.lands(d.step("charge", []byte("ch_1")))
					equal(c, "FromResolution", false, c.get(a.id()).Steps["charge"].FromResolution)
					c.lands(d.complete("done"))
				}
			}
		}},
		{"a verdict without a result that anything needs is not read", func(c *cell) {
			for _, done := range []protocol.StepWrite{
				{Name: "charge", Failure: &protocol.Failure{Message: "declined"}}, {Name: "charge", Omitted: true, Failure: &protocol.Failure{Message: "not known"}},
				{Name: "charge", Compensates: true, Failure: &protocol.Failure{Message: "declined"}},
			} {
				a := c.start()
				c.lands(a.begin("charge"))
				c.lands(a.lapse())
				r := a.resolve(protocol.Released)
				r.ClearSteps, r.Ending.ExpiresAt, r.Steps = nil, time.Time{}, []protocol.StepWrite{done}
				c.lands(r)
				equal(c, "FromResolution", false, c.get(a.id()).Steps["charge"].FromResolution)
				b := a.next()
				c.lands(b.acquire())
				c.refused(b.unread("charge"))
			}
		}},
		{"compensation is noted", func(c *cell) {
			a := c.start()
			w := a.step("charge", []byte("ch_1"))
			w.Compensates = true
			c.lands(w)
			equal(c, "Compensates", true, c.get(a.id()).Steps["charge"].Compensates)
		}},
		{"hint of a first step that is wrong", func(c *cell) {
			a := c.start()
			first := a.step("charge", []byte("ch_1"))
			first.First = true
			c.lands(first)
			second := a.step("ship", []byte("s_1"))
			second.First = true
			c.lands(second)
		}},
		{"go with a completion and a failure", func(c *cell) {
			for _, large := range []bool{false, true} {
				for _, end := range []func(*attempt) finish{func(a *attempt) finish { return a.complete("done") }, (*attempt).fail} {
					a := c.start()
					c.lands(a.step("charge", noise(10<<10)))
					f := end(a)
					f.LargeSteps = large
					c.lands(f)
					equal(c, "number of steps", 0, len(c.get(a.id()).Steps))
				}
			}
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

// fillRoom records as many steps as an operation may have, and then what must still
// fit: why it is undone, and each way to end.
func fillRoom(c *cell) {
	text := func(n int) *protocol.Failure {
		return &protocol.Failure{Message: strings.Repeat("m", n/3), Type: strings.Repeat("t", n/3), Code: strings.Repeat("c", n/3)}
	}
	a := c.start()
	const long, overhead = 3000, 192
	last := ""
	for n, taken := 0, 0; ; n++ {
		last = fmt.Sprintf("step-%d-%s", n, strings.Repeat("n", 80))
		if taken += overhead + len(last) + long; taken > protocol.StepRoom {
			break
		}
		w := a.step(last, nil)
		w.Failure = text(long)
		if err := w.send(c.ctx, c.store, c.now); err != nil {
			c.fatalf("step %d, with %d bytes taken: %v", n, taken, err)
		}
	}
	mark := a.step("mark", nil)
	mark.Failure = text(6 << 10)
	park, complete := a.park(), a.complete("done")
	park.Ending.Failure = text(6 << 10)
	for _, w := range []write{mark, park, complete} {
		if err := w.send(c.ctx, c.store, c.now); err != nil {
			c.fatalf("%v beside the steps: %v", w, err)
		}
	}
}
