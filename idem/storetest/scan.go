package storetest

import (
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// scanCases: all records are listed, once, as a read gives them but for the results.
func scanCases(h Harness) []check {
	if h.Scanner == nil {
		return []check{{"none", func(c *cell) {
			c.Skip("the harness has no Scanner: that all records are listed is not tested")
		}}}
	}
	cases := []check{
		{"all records, in pages and segments", func(c *cell) {
			for _, s := range standing(!h.WithoutSteps) {
				s.make(c)
			}
			for range 12 {
				c.start()
			}
			if _, ok := c.store.(protocol.AdminStore); ok {
				a := c.start(watched)
				c.lands(a.refer("pay_1"))
				a.lands(escalates)
				c.removed(having(completes)(c).forget())
			}
			for _, q := range []protocol.ScanQuery{{Segments: 1}, {Segments: 1, Limit: 1}, {Segments: 3},
				{Segments: 4, Limit: 5}} {
				found := c.scan(q)
				for id, want := range c.ref {
					if got := found[id]; want != nil {
						c.listed(want, got)
					}
					delete(found, id)
				}
				equal(c, "records that were never written", "", strings.Join(slices.Sorted(maps.Keys(found)), " "))
			}
		}},
		{"results stay where they are", func(c *cell) {
			small, large, stepped := having(completes)(c), having(completesInParts)(c), c.start()
			if !h.WithoutSteps {
				stepped.lands(ships)
			}
			found := c.scan(protocol.ScanQuery{Segments: 1})
			_, err := c.store.Result(c.ctx, found[small.id()])
			unreadable(c, "Result of a record that was listed", err)
			if got, err := c.store.Result(c.ctx, found[large.id()]); err == nil && len(got) != 300<<10 {
				c.fatalf("the large result of a record that was listed is another one")
			} else if err != nil {
				unreadable(c, "Result of a record that was listed", err)
			}
			if !h.WithoutSteps {
				_, err := c.store.StepResult(c.ctx, found[stepped.id()], "ship")
				unreadable(c, "StepResult of a record that was listed", err)
			}
		}},
		{"results on request", func(c *cell) {
			small, large := having(completes)(c), having(completesInParts)(c)
			found := c.scan(protocol.ScanQuery{Segments: 1, Results: true})
			for _, a := range []*attempt{small, large} {
				want, err := c.store.Result(c.ctx, c.get(a.id()))
				c.must(err)
				got, err := c.store.Result(c.ctx, found[a.id()])
				c.must(err)
				equal(c, "Result of a record that was listed with it", string(want), string(got))
			}
		}},
		{"no such part", func(c *cell) {
			for _, q := range []protocol.ScanQuery{{}, {Segment: 1, Segments: 1}, {Segment: -1, Segments: 1}} {
				if _, err := c.h.Scanner.Scan(c.ctx, q); err == nil {
					c.fatalf("segment %d of %d is listed", q.Segment, q.Segments)
				}
			}
		}},
	}
	for i, d := range h.Damages {
		if d.Parts {
			continue
		}
		cases = append(cases, check{d.Name, func(c *cell) {
			a, untouched := having(completes)(c), c.start()
			c.must(c.h.Damages[i].Do(c.ctx, a.id()))
			p, err := c.h.Scanner.Scan(c.ctx, protocol.ScanQuery{Segments: 1})
			c.must(err)
			equal(c, "Unreadable", a.id(), strings.Join(p.Unreadable, " "))
			equal(c, "readable records", 1, len(p.Records))
			equal(c, "ID", untouched.id(), p.Records[0].ID)
		}})
	}
	return cases
}

// scan reads all pages of all segments.
func (c *cell) scan(q protocol.ScanQuery) map[string]*protocol.Record {
	c.Helper()
	found := map[string]*protocol.Record{}
	for q.Segment = range q.Segments {
		for q.Page = ""; ; {
			p, err := c.h.Scanner.Scan(c.ctx, q)
			c.must(err)
			if q.Limit > 0 && p.Looked > q.Limit {
				c.fatalf("a page that looks at %d items has looked at %d", q.Limit, p.Looked)
			}
			equal(c, "unreadable records", 0, len(p.Unreadable))
			for _, rec := range p.Records {
				if found[rec.ID] != nil {
					c.fatalf("%q is listed twice", rec.ID)
				}
				found[rec.ID] = rec
			}
			if q.Page = p.Next; q.Page == "" {
				break
			}
		}
	}
	return found
}

// listed requires that a record was listed as it is, without its results.
func (c *cell) listed(rec, got *protocol.Record) {
	c.Helper()
	if got == nil {
		c.fatalf("%s is not listed: %q", describe(rec), rec.ID)
	}
	want := rec.WithoutResults()
	if got.Body.Parts > 0 {
		want.Body.Size = rec.Body.Size
	}
	want.Steps = maps.Clone(want.Steps)
	for name, s := range got.Steps {
		if s.Body.Parts > 0 {
			want.Steps[name] = rec.Steps[name]
		}
		if len(s.Body.Data) > 0 {
			c.fatalf("the result of step %q is listed", name)
		}
	}
	if d := differences(want, got); len(d) > 0 {
		c.fatalf("%s is listed otherwise:\n\t%s", describe(rec), strings.Join(d, "\n\t"))
	}
	if len(got.Body.Data) > 0 {
		c.fatalf("the result of %s is listed", describe(rec))
	}
}
