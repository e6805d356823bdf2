package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// placeCases: a store that keeps places has as many as it is told, however many calls take them at once, and
// changes them as [protocol.PlaceState] does.
func placeCases(h Harness) []check {
	if _, ok := h.Store.(protocol.Places); !ok {
		return []check{{"none", func(c *cell) { c.Skip("the store keeps no places: a limit of an operation is refused over it") }}}
	}
	const group = "acme#charge"
	id := func(i int) string { return fmt.Sprintf("%s#%s%d", group, "digest-_", i) }
	// changes plays changes on the store and on the reference.
	type change struct {
		what  string
		send  func(protocol.Places, *cell) error
		apply func(*protocol.PlaceState, time.Time) (*protocol.PlaceState, error)
	}
	take := func(i, attempt, maxOpen, maxNew int) change {
		t := protocol.PlaceTaking{ID: id(i), Attempt: attempt, MaxOpen: maxOpen, MaxNew: maxNew}
		return change{fmt.Sprintf("take %+v", t), func(p protocol.Places, c *cell) error { return p.TakePlace(c.ctx, c.now, t) }, t.Apply}
	}
	giveBack := func(i, attempt int) change {
		r := protocol.PlaceReturn{ID: id(i), Attempt: attempt}
		return change{fmt.Sprintf("return %+v", r), func(p protocol.Places, c *cell) error { return p.ReturnPlace(c.ctx, c.now, r) }, r.Apply}
	}
	look := func(seen time.Time, to string) change {
		k := protocol.PlaceCheck{ID: id(0), Seen: seen, To: to}
		return change{fmt.Sprintf("check %+v", k), func(p protocol.Places, c *cell) error { return p.CheckPlaces(c.ctx, c.now, k) }, k.Apply}
	}
	play := func(c *cell, state *protocol.PlaceState, ch change) *protocol.PlaceState {
		c.Helper()
		c.trail = append(c.trail, ch.what)
		next, want := ch.apply(state, c.now)
		got := ch.send(c.store.(protocol.Places), c)
		var no, wanted *protocol.NoPlaceError
		switch {
		case want == nil:
			c.must(got)
			return next
		case !errors.As(want, &wanted) || !errors.As(got, &no):
			c.fatalf("%s: want %v, got %v", ch.what, want, got)
		}
		equal(c, "Why", wanted.Why, no.Why)
		equal(c, "State", places(state), places(no.State))
		return state
	}
	return []check{
		{"every change as in the reference", func(c *cell) {
			var state *protocol.PlaceState
			step := func(ch change) { state = play(c, state, ch) }
			step(giveBack(0, 1)) // nothing was taken yet
			step(look(time.Time{}, "x"))
			step(look(time.Time{}, "y"))
			step(look(c.now, "y"))
			for range 2 {
				for i := range 5 {
					step(take(i, 1+i, 3, 0))
				}
			}
			step(take(0, 4, 3, 0)) // a later attempt takes it over
			step(take(0, 3, 3, 0))
			step(take(0, 4, 3, 0))
			step(giveBack(0, 3))
			step(giveBack(9, 1))
			step(take(8, 1, 3, 0))
			for _, since := range []time.Duration{time.Second, 0, 0} {
				r := protocol.PlaceReturn{ID: id(1), Attempt: 2, Since: time.Unix(c.now.Add(since).Unix(), 0)}
				if since == 0 && state.Taken["digest-_1"].Attempt == 2 {
					step(change{"return another attempt's", func(p protocol.Places, c *cell) error {
						other := r
						other.Attempt = 3
						return p.ReturnPlace(c.ctx, c.now, other)
					}, protocol.PlaceReturn{ID: r.ID, Attempt: 3, Since: r.Since}.Apply})
				}
				step(change{fmt.Sprintf("return %+v", r), func(p protocol.Places, c *cell) error { return p.ReturnPlace(c.ctx, c.now, r) }, r.Apply})
			}
			step(giveBack(0, 9))
			step(giveBack(0, 4))
			step(take(8, 1, 3, 7))
			step(take(9, 1, 4, 2))
			step(take(10, 1, 0, 2))
			step(take(11, 1, 0, 2))
			step(take(12, 1, 1, 9))
			c.now = c.now.Add(999 * time.Millisecond)
			step(take(12, 1, 9, 2))
			for i := range 3 * protocol.MaxSeconds {
				step(take(20+i, 1, 0, 1))
				step(take(20+i, 1, 0, 1))
				c.now = c.now.Add(time.Second)
				if i%7 == 3 {
					step(take(3, 4, 9, 3))
				}
			}
			c.now = c.now.Add(-2 * time.Second) // a clock that is slow
			step(take(60, 1, 0, 1))
			for i := range 5 {
				step(giveBack(i, 99))
			}
			step(take(61, 1, 1, 0))
		}},
		{"what is of another operation counts apart", func(c *cell) {
			p := c.store.(protocol.Places)
			for _, other := range []string{"acme#charge#a", "acme#refund#a", "#charge#a", "b%23#charge#a"} {
				c.must(p.TakePlace(c.ctx, c.now, protocol.PlaceTaking{ID: other, Attempt: 1, MaxOpen: 1, MaxNew: 1}))
			}
		}},
		{"places are no records", func(c *cell) {
			a := c.start()
			c.must(c.store.(protocol.Places).TakePlace(c.ctx, c.now, protocol.PlaceTaking{ID: a.id(), Attempt: 1, MaxOpen: 1, MaxNew: 1}))
			c.check(a.id())
			if h.Scanner != nil {
				equal(c, "records", 1, len(c.scan(protocol.ScanQuery{Segments: 1})))
			}
		}},
		{"never more places than there are", func(c *cell) {
			p, most := c.store.(protocol.Places), 5
			for round := range 4 {
				var wg sync.WaitGroup
				errs := make([]error, 4*racers)
				for i := range errs {
					wg.Go(func() {
						errs[i] = p.TakePlace(c.ctx, c.now, protocol.PlaceTaking{ID: id(i), Attempt: 1 + round, MaxOpen: most})
					})
				}
				wg.Wait()
				held := 0
				for i, err := range errs {
					var no *protocol.NoPlaceError
					switch {
					case err == nil:
						held++
						wg.Go(func() {
							errs[i] = p.ReturnPlace(c.ctx, c.now, protocol.PlaceReturn{ID: id(i), Attempt: 1 + round})
						})
					case !errors.As(err, &no) || no.Why != protocol.PlacesFull:
						c.fatalf("a place too many: %v", err)
					}
				}
				wg.Wait()
				equal(c, "places", most, held)
			}
		}},
		{"never more new keys in a second", func(c *cell) {
			p, errs := c.store.(protocol.Places), make([]error, 4*racers)
			for round := range 4 {
				c.now = c.now.Add(time.Second)
				var wg sync.WaitGroup
				for i := range errs {
					wg.Go(func() {
						errs[i] = p.TakePlace(c.ctx, c.now, protocol.PlaceTaking{ID: id(100*round + i), Attempt: 1, MaxNew: 7})
					})
				}
				wg.Wait()
				passed := 0
				for _, err := range errs {
					var no *protocol.NoPlaceError
					switch {
					case err == nil:
						passed++
					case !errors.As(err, &no) || no.Why != protocol.PlacesNew:
						c.fatalf("a key too many: %v", err)
					}
				}
				equal(c, "new keys", 7, passed)
			}
		}},
	}
}

// places is the state as a text, by which two can be compared.
func places(p *protocol.PlaceState) string {
	p = p.Clone()
	for name, place := range p.Taken {
		place.Since = place.Since.UTC()
		p.Taken[name] = place
	}
	return fmt.Sprint(p.Taken, p.New, p.CheckedAt.UnixMilli(), p.CheckedTo)
}
