package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// cell is one case in progress: a store, the reference beside it, and a clock.
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

// do sends a write and compares everything with the reference: whether it lands,
// the conflicting record, and what a read gives afterwards.
func (c *cell) do(w write) error {
	c.Helper()
	c.now = c.now.Add(time.Second)
	c.trail = append(c.trail, w.String())
	before := c.ref[w.id()]
	want, wantErr := w.apply(before.Clone(), c.now)
	err := w.send(c.ctx, c.store, c.now)
	c.judge(w, before, wantErr, err)
	if wantErr == nil {
		c.ref[w.id()] = want.Clone()
	}
	c.check(w.id())
	return wantErr
}

// lands requires that the write takes effect, or had taken it.
func (c *cell) lands(w write) {
	c.Helper()
	if err := c.do(w); err != nil {
		c.fatalf("%v: the reference refuses it: %v", w, err)
	}
}

// refused requires that the write's condition does not hold.
func (c *cell) refused(w write) {
	c.Helper()
	if c.do(w) == nil {
		c.fatalf("%v: the reference lets it land", w)
	}
}

func (c *cell) judge(w write, before *protocol.Record, wantErr, err error) {
	c.Helper()
	switch {
	case wantErr == nil && err != nil:
		c.fatalf("%v must land on %s, but: %v", w, describe(before), err)
	case wantErr != nil && err == nil:
		c.fatalf("%v must be refused on %s, but landed", w, describe(before))
	case wantErr != nil:
		c.conflict(w, before, err)
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
	if err != nil {
		c.fatalf("Get: %v", err)
	}
	return rec
}

// stepResult reads what the record keeps of a step; empty if the step has no result.
func (c *cell) stepResult(rec *protocol.Record, name string) string {
	c.Helper()
	if s := rec.Steps[name]; s.Body.Size == 0 {
		return ""
	}
	b, err := c.store.StepResult(c.ctx, rec, name)
	if err != nil {
		c.fatalf("StepResult of %q: %v", name, err)
	}
	return string(b)
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
			errs[i] = w.send(c.ctx, c.store, c.now)
		})
	}
	close(start)
	done.Wait()
	return errs
}

// oneWins races writes of which any one excludes all others: one lands, the rest
// conflict with the record that it made.
func (c *cell) oneWins(ws ...write) write {
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
	after, err := won[0].apply(c.ref[id].Clone(), c.now)
	c.must(err)
	c.ref[id] = after.Clone()
	for i, err := range errs {
		if err != nil {
			c.conflict(ws[i], after, err)
		}
	}
	c.check(id)
	return won[0]
}

func describe(rec *protocol.Record) string {
	if rec == nil {
		return "no record"
	}
	return fmt.Sprintf("a record %s, attempt %d, write %s", rec.State, rec.Attempt, rec.Write)
}
