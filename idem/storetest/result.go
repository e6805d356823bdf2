package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/idem-go/idempotency/idem/protocol"
)

// sizes of results, in bytes: around the limits at which a store may compress,
// split, or run into its item's size, and what Lambda can return at most.
var sizes = []struct {
	name  string
	bytes int
}{
	{"0 B", 0}, {"1 B", 1}, {"1 KB", 1 << 10}, {"2 KB", 2 << 10}, {"4 KB", 4 << 10}, {"4 KB and one", 4<<10 + 1},
	{"256 KB", 256 << 10}, {"256 KB and one", 256<<10 + 1}, {"390 KB", 390 << 10}, {"450 KB", 450 << 10},
	{"5.5 MB", 5632 << 10},
}

// noise does not compress, and is the same for the same size.
func noise(size int) []byte {
	b := make([]byte, size)
	seed := [32]byte{byte(size), byte(size >> 8), byte(size >> 16)}
	rand.NewChaCha8(seed).Read(b)
	return b
}

// text compresses well.
func text(size int) []byte {
	return bytes.Repeat([]byte(`{"id":"pay_1","amount":1200,"currency":"CHF"},`), size/46+1)[:size]
}

func resultCases(h Harness) []check {
	var cases []check
	for _, s := range sizes {
		if h.MaxResult > 0 && s.bytes > h.MaxResult {
			continue
		}
		for kind, body := range map[string]func(int) []byte{"noise": noise, "text": text} {
			cases = append(cases, check{fmt.Sprintf("%s of %s", s.name, kind), func(c *cell) {
				a := c.start()
				w := a.complete(string(body(s.bytes)))
				c.lands(w)
				c.lands(w)
				c.refused(c.fresh(func(r *protocol.Record) { r.ID = a.id() }).acquire())
			}})
		}
	}
	large := string(noise(450 << 10))
	other := string(noise(300 << 10))
	cases = append(cases, []check{
		{"what was kept of an omitted result", func(c *cell) {
			a := c.start()
			w := a.complete(`{"status":201}`)
			w.Ending.Omitted = true
			c.lands(w)
			equal(c, "Omitted", true, c.get(a.id()).Omitted)
			b := a.replacement()
			c.lands(b.acquire())
			equal(c, "Omitted", false, c.get(a.id()).Omitted)
		}},
		{"omitted with nothing kept", func(c *cell) {
			a := c.start()
			w := a.complete("")
			w.Ending.Result, w.Ending.Omitted = nil, true
			c.lands(w)
		}},
		{"response version", func(c *cell) {
			a := c.start()
			w := a.complete("done")
			w.Ending.ResponseVersion = 12
			c.lands(w)
			equal(c, "ResponseVersion", 12, c.get(a.id()).ResponseVersion)
		}},
		{"a large result of a lost claim is never read", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.refused(a.complete(large))
			c.lands(b.complete(other))
			c.refused(a.complete(large))
		}},
		{"a small result after a lost claim's large one", func(c *cell) {
			a := c.start()
			b := a.next()
			c.lands(b.acquire())
			c.refused(a.complete(large))
			c.lands(b.complete("small"))
		}},
		{"a large result replaces an expired one", func(c *cell) {
			a := c.start()
			c.lands(a.complete(large))
			b := a.replacement()
			c.lands(b.acquire())
			c.lands(b.complete(other))
			d := a.replacement()
			c.lands(d.acquire())
			c.lands(d.complete("small"))
		}},
		// An owner has one large result; a store may name the parts by owner.
		{"a second, small completion of the same owner", func(c *cell) {
			a := c.start()
			c.lands(a.complete(large))
			c.refused(a.complete("small"))
		}},
		{"a large result of one record is not another's", func(c *cell) {
			a, b := c.start(), c.start()
			c.lands(a.complete(large))
			c.lands(b.complete(other))
			c.check(a.id())
			c.check(b.id())
		}},
	}...)
	if h.MaxResult > 0 {
		cases = append(cases, check{"a result over the limit is refused and nothing written", func(c *cell) {
			a := c.start()
			w := a.complete(string(noise(h.MaxResult + 1)))
			var tooLarge *protocol.TooLargeError
			if err := w.send(c.ctx, c.store, c.now); !errors.As(err, &tooLarge) {
				c.fatalf("want a TooLargeError, got %v", err)
			}
			equal(c, "Size", h.MaxResult+1, tooLarge.Size)
			equal(c, "Limit", h.MaxResult, tooLarge.Limit)
			c.check(a.id())
			w.Ending.Result, w.Ending.Omitted = []byte("kept"), true
			c.lands(w)
			b := c.start()
			c.lands(b.complete(string(noise(h.MaxResult))))
			if h.WithoutSteps {
				return
			}
			d := c.start()
			var large *protocol.TooLargeError
			if err := d.step("ship", noise(h.MaxResult+1)).send(c.ctx, c.store, c.now); !errors.As(err, &large) {
				c.fatalf("RecordStep: want a TooLargeError, got %v", err)
			}
			c.check(d.id())
			c.lands(d.stepOmitted("ship"))
		}})
	}
	return cases
}
