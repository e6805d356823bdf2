package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// reporter is the part of *testing.T that a case needs.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Skip(args ...any)
}

// cell is one case in progress: a store, its reference, and a clock.
type cell struct {
	reporter
	ctx   context.Context
	h     Harness
	store protocol.Store
	now   time.Time
	keys  int
	ref   map[string]*protocol.Record
	// trail is what was sent so far, for the message of a failure.
	trail []string
}

// newCell starts the clock far in the future, so that no real TTL deletes what a
// case takes for expired.
func newCell(r reporter, ctx context.Context, h Harness) *cell {
	return &cell{
		reporter: r, ctx: ctx, h: h, store: h.Store, ref: map[string]*protocol.Record{},
		now: time.Date(2100, 2, 3, 4, 5, 6, 789e6, time.UTC),
	}
}

func (c *cell) fatalf(format string, args ...any) {
	c.Helper()
	c.Errorf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(c.trail, ", "))
	c.FailNow()
}

func (c *cell) must(err error) {
	c.Helper()
	if err != nil {
		c.fatalf("unexpected error: %v", err)
	}
}

func equal[T comparable](c *cell, what string, want, got T) {
	c.Helper()
	if want != got {
		c.fatalf("%s: want %v, got %v", what, want, got)
	}
}

// newID is an owner token or a write id.
func newID() string { return rand.Text() }

// send sends a write that the reference does not learn of.
func (c *cell) send(w write) error { return send(c.ctx, c.store, c.now, w) }

// tooLarge requires that a write is refused because its result is over the store's limit, and that
// nothing was written.
func (c *cell) tooLarge(w write) {
	c.Helper()
	var refused *protocol.TooLargeError
	if err := c.send(w); !errors.As(err, &refused) {
		c.fatalf("%v: want a TooLargeError, got %v", w, err)
	}
	equal(c, "TooLargeError", protocol.TooLargeError{Size: c.h.MaxResult + 1, Limit: c.h.MaxResult}, *refused)
	c.check(w.id())
}

// unsupported requires that a write is refused as none of the store's, and that nothing was written.
func (c *cell) unsupported(w write) {
	c.Helper()
	if err := c.send(w); !errors.Is(err, errors.ErrUnsupported) {
		c.fatalf("%v: want errors.ErrUnsupported, got %v", w, err)
	}
	c.check(w.id())
}

// conflicting sends a write that must be refused, and returns the record that comes with the refusal.
func (c *cell) conflicting(w write) *protocol.Record {
	c.Helper()
	var conflict *protocol.ConflictError
	if err := c.send(w); !errors.As(err, &conflict) || conflict.Existing == nil {
		c.fatalf("%v: want a ConflictError with the record, got %v", w, err)
	}
	return conflict.Existing
}

// do sends a write and compares everything with the reference: whether it lands,
// the conflicting record, and what a read gives afterwards.
func (c *cell) do(w write) error {
	c.Helper()
	c.now = c.now.Add(time.Second)
	c.trail = append(c.trail, w.String())
	before := c.ref[w.id()]
	want, wantErr := w.Apply(before.Clone(), c.now)
	switch err := c.send(w); {
	case wantErr == nil && err != nil:
		c.fatalf("%v must land on %s, but: %v", w, describe(before), err)
	case wantErr != nil && err == nil:
		c.fatalf("%v must be refused on %s, but landed", w, describe(before))
	case wantErr != nil:
		c.conflict(w, before, err)
	default:
		c.ref[w.id()] = want.Clone()
	}
	c.check(w.id())
	return wantErr
}

// lands requires that the write takes effect, or had taken it.
func (c *cell) lands(w write) {
	c.Helper()
	c.expect(w, true)
}

// twice sends a write again that has landed, as after a lost reply.
func (c *cell) twice(w write) {
	c.Helper()
	c.lands(w)
	c.lands(w)
}

// refused requires that the write's condition does not hold.
func (c *cell) refused(w write) {
	c.Helper()
	c.expect(w, false)
}

func (c *cell) expect(w write, lands bool) {
	c.Helper()
	if err := c.do(w); lands != (err == nil) {
		c.fatalf("%v: by the reference it lands: %v, want %v", w, err == nil, lands)
	}
}

// conflict requires a ConflictError with the record as it stands, result included.
func (c *cell) conflict(w write, standing *protocol.Record, err error) {
	c.Helper()
	var conflict *protocol.ConflictError
	if !errors.As(err, &conflict) {
		c.fatalf("%v on %s must give a ConflictError, got %T: %v", w, describe(standing), err, err)
	}
	c.same(fmt.Sprintf("%v: ConflictError.Existing", w), standing, conflict.Existing)
}

// check reads the record and compares it with the reference.
func (c *cell) check(id string) {
	c.Helper()
	got := c.get(id)
	c.same("Get", c.ref[id], got)
	if got == nil {
		return
	}
	for name, want := range c.ref[id].Steps {
		if want.Begun || want.NotExecuted || want.Failure != nil {
			continue
		}
		body, err := c.store.StepResult(c.ctx, got, name)
		if err != nil || !bytes.Equal(want.Body.Data, body) {
			c.fatalf("StepResult of %q: want %d bytes, got %d, error %v", name, len(want.Body.Data), len(body), err)
		}
	}
}

func (c *cell) get(id string) *protocol.Record {
	c.Helper()
	rec, err := c.store.Get(c.ctx, id)
	c.must(err)
	return rec
}

// delete removes the record as TTL would.
func (c *cell) delete(id string) {
	c.Helper()
	c.must(c.h.Delete(c.ctx, id))
	delete(c.ref, id)
	c.check(id)
}

// race sends all writes at once and returns the errors in their order. The
// reference is left to the caller.
func (c *cell) race(ws ...write) []error {
	c.Helper()
	c.now = c.now.Add(time.Second)
	errs := make([]error, len(ws))
	start := make(chan struct{})
	var done sync.WaitGroup
	for i, w := range ws {
		done.Go(func() {
			<-start
			errs[i] = c.send(w)
		})
	}
	close(start)
	done.Wait()
	return errs
}

// many makes as many writes.
func many(n int, one func(i int) write) []write {
	ws := make([]write, n)
	for i := range ws {
		ws[i] = one(i)
	}
	return ws
}

// oneOf races writes of one move.
func (c *cell) oneOf(a *attempt, m move) {
	c.Helper()
	c.oneWins(many(racers, func(int) write { return m(a) })...)
}

// committed sends an end with a unit of work, which is applied exactly if the end lands.
func (c *cell) committed(f finish, lands bool) {
	c.Helper()
	if c.h.Unit == nil {
		c.Skip("the harness has no Unit: only that the store refuses units is tested")
	}
	unit, applied, err := c.h.Unit(c.ctx)
	c.must(err)
	f.Unit = unit
	c.expect(f, lands)
	if lands {
		c.lands(f) // sent again, as after a lost reply
	}
	ok, err := applied(c.ctx)
	c.must(err)
	equal(c, "applied", lands, ok)
}

// oneWins races writes that exclude each other: one lands, the rest conflict with the record
// that it made.
func (c *cell) oneWins(ws ...write) {
	c.Helper()
	id := ws[0].id()
	errs := c.race(ws...)
	var won []write
	for i, err := range errs {
		if err == nil {
			won = append(won, ws[i])
		}
	}
	if len(won) != 1 {
		c.fatalf("%d of %d racing writes landed, want exactly one: %v", len(won), len(ws), won)
	}
	c.landed(won[0])
	for i, err := range errs {
		if err != nil {
			c.conflict(ws[i], c.ref[id], err)
		}
	}
}

// landed has the reference apply a write that the store has taken, and compares the record.
func (c *cell) landed(w write) {
	c.Helper()
	after, err := w.Apply(c.ref[w.id()].Clone(), c.now)
	c.must(err)
	c.ref[w.id()] = after.Clone()
	c.check(w.id())
}

func describe(rec *protocol.Record) string {
	if rec == nil {
		return "no record"
	}
	return fmt.Sprintf("a record %s, attempt %d, write %s", rec.State, rec.Attempt, rec.Write)
}

// same requires that the store's record says what the reference's does, its
// result included, which only a completed one has. How a result is stored is the store's own.
func (c *cell) same(where string, want, got *protocol.Record) {
	c.Helper()
	if want == nil || got == nil {
		if want != nil || got != nil {
			c.fatalf("%s: want %s, got %s", where, describe(want), describe(got))
		}
		return
	}
	if d := differences(want, got); len(d) > 0 {
		c.fatalf("%s differs from the reference:\n\t%s", where, strings.Join(d, "\n\t"))
	}
	body, err := c.store.Result(c.ctx, got)
	c.must(err)
	if !bytes.Equal(want.Body.Data, body) {
		c.fatalf("%s: the result differs: want %d bytes %.40q, got %d bytes %.40q",
			where, len(want.Body.Data), want.Body.Data, len(body), body)
	}
}

// own are the fields of a record and of a step that are not compared here.
var own = map[string]bool{"Steps": true, "Sealed": true}

func differences(want, got *protocol.Record) []string {
	d := fields("", *want, *got)
	if want.State != protocol.Completed && got.Body.Parts+len(got.Body.Data) > 0 {
		d = append(d, fmt.Sprintf("Body: want none, got %d bytes and %d parts", len(got.Body.Data), got.Body.Parts))
	}
	if w, g := stepNames(want), stepNames(got); w != g {
		return append(d, fmt.Sprintf("names of Steps: want %s, got %s", w, g))
	}
	for name, s := range want.Steps {
		d = append(d, fields(" of step "+name, s, got.Steps[name])...)
	}
	return d
}

// fields compares the fields of two structs: times as instants, results by their size.
func fields(of string, want, got any) (d []string) {
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		name := w.Type().Field(i).Name
		if own[name] {
			continue
		}
		if w, g := plain(w.Field(i).Interface()), plain(g.Field(i).Interface()); w != g {
			d = append(d, fmt.Sprintf("%s%s: want %v, got %v", name, of, w, g))
		}
	}
	return d
}

// plain is what of a field is compared.
func plain(field any) any {
	switch v := field.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case protocol.Body:
		return v.Size
	case *protocol.Failure:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("%q", *v)
	}
	return field
}

func stepNames(r *protocol.Record) string {
	return fmt.Sprintf("%q", slices.Sorted(maps.Keys(r.Steps)))
}
