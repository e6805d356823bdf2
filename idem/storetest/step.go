package storetest

import (
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// stepCases record steps, or check that a store without them says so.
func stepCases(steps bool) []check {
	if !steps {
		return []check{{"is refused as unsupported", func(c *cell) { c.unsupported(c.start().step("ship", nil)) }}}
	}
	needed, others := verdicts()
	return []check{
		{"results of all sizes", func(c *cell) {
			a := c.start()
			for name, size := range map[string]int{"none": 0, "small": 10, "1 KB": 1 << 10, "4 KB": 4 << 10,
				"100 KB": 100 << 10} {
				c.lands(a.step(name, noise(size)))
			}
			a.next().lands(acquires, completes)
		}},
		{"go with an end that commits writes", func(c *cell) {
			c.committed(having(chargesAtLength)(c).next().lands(acquires, ships).complete("done"), true)
		}},
		{"begin mark on a begin mark", func(c *cell) { c.start().lands(begins).refused(begins) }},
		{"begin mark on a recorded step", func(c *cell) { c.start().lands(charges).refused(begins) }},
		{"begin mark of a later attempt on a recorded step", func(c *cell) {
			having(charges)(c).next().lands(acquires).refused(begins)
		}},
		{"result on a recorded step", func(c *cell) { c.start().lands(charges).refused(charges, chargesAtLength) }},
		{"not executed after a begin mark, then again", func(c *cell) {
			having(begins, takesBack)(c).next().lands(acquires, begins).refused(begins).lands(charges)
		}},
		{"not executed lands late over the next begin mark", func(c *cell) {
			a := having(begins)(c).holds(takesBack).late(true).lands(begins).late(false)
			unseen := a.notExecuted("charge")
			unseen.Seen = ""
			c.refused(unseen)
		}},
		{"begin mark lands late over what took it back", func(c *cell) {
			a := having(ships)(c)
			late, back := a.begin("charge"), a.notExecuted("charge")
			back.Seen = late.Write
			c.lands(back) // it has not landed yet, and cannot any more
			c.refused(late)
			a.holds(begins).late(true).lands(takesBack).late(false)
		}},
		{"result on a step not executed", func(c *cell) { c.start().lands(begins, takesBack, charges) }},
		{"failure is an outcome", func(c *cell) {
			a := c.start()
			c.lands(a.stepFails("charge"))
			a.refused(begins, charges).lands(takesOver)
		}},
		{"done without its result", func(c *cell) {
			a := having(begins)(c)
			c.lands(a.stepOmitted("charge"))
			a.refused(charges).lands(takesOver)
		}},
		{"result next to a full record", func(c *cell) {
			a := c.start()
			for name, size := range map[string]int{"small": 128, "larger": 129, "1 KB": 1 << 10} {
				w := a.step(name, noise(size))
				w.InParts = true
				c.lands(w)
			}
			a.next().lands(acquires, completes)
		}},
		{"up to the room for steps, with what ends them", fillRoom},
		{"what a resolution has recorded is read once", func(c *cell) {
			for _, verdict := range needed {
				a := c.start().resolvedStep(verdict)
				b := a.next().lands(acquires)
				a.refused(reads)
				late := b.unread("charge")
				b.again(reads)
				c.refused(late)
				b.refused(begins).lands(extends).late(true)
				d := b.next().lands(acquires)
				b.late(false)
				d.refused(unreads).lands(completes)
			}
		}},
		{"what no attempt could read is a begin mark again", func(c *cell) {
			for _, verdict := range needed {
				for _, parked := range []bool{false, true} {
					a := c.start().resolvedStep(verdict)
					b := a.next().lands(acquires)
					a.refused(unreads)
					c.refused(b.unread("absent"))
					c.refused(b.read("absent"))
					w, late := b.unread("charge"), b.read("charge")
					if parked {
						b.lands(lapses)
					} else {
						w.Due = c.now.Add(lease)
					}
					c.twice(w)
					c.refused(late)
					d := b.next().lands(acquires)
					c.refused(w)
					d.refused(begins).lands(charges, completes)
				}
			}
		}},
		{"a verdict without a result that anything needs is not read", func(c *cell) {
			for _, done := range others {
				having(begins, lapses, recordsOfStep(done))(c).next().lands(acquires).refused(unreads)
			}
		}},
		{"compensation is noted", func(c *cell) {
			w := c.start().step("charge", []byte("ch_1"))
			w.Compensates = true
			c.lands(w)
		}},
		{"hint of a first step that is wrong", func(c *cell) {
			a := c.start()
			for _, name := range []string{"charge", "ship"} {
				w := a.step(name, []byte("1"))
				w.First = true
				c.lands(w)
			}
		}},
		{"go with a completion and a failure", func(c *cell) {
			for _, size := range []int{10, 10 << 10} {
				for _, end := range []move{completes, fails} {
					having(func(a *attempt) write { return a.step("charge", noise(size)) }, end)(c)
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
	}
}

// fillRoom records as many steps as an operation may have, and then what must still
// fit: why it is undone, and each way to end.
func fillRoom(c *cell) {
	text := func(n int) *protocol.Failure {
		third := func(s string) string { return strings.Repeat(s, n/3) }
		return &protocol.Failure{Message: third("m"), Type: third("t"), Code: third("c")}
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
		if err := c.send(w); err != nil {
			c.fatalf("step %d, with %d bytes taken: %v", n, taken, err)
		}
	}
	mark := a.step("mark", nil)
	mark.Failure = text(6 << 10)
	park, complete := a.park(), a.complete("done")
	park.Ending.Failure = text(6 << 10)
	for _, w := range []write{mark, park, complete} {
		if err := c.send(w); err != nil {
			c.fatalf("%v together with the steps: %v", w, err)
		}
	}
}
