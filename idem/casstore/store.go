package casstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Store is an [idem.Store] over a [Driver]. It is safe for concurrent use.
type Store struct {
	driver  Driver
	noUnits error
	claims  claims
}

var (
	_ protocol.Store      = (*Store)(nil)
	_ protocol.AdminStore = (*Store)(nil)
	_ protocol.Scanner    = (*Store)(nil)
)

// New returns a store over the driver. noUnits is why it commits no units of work, with what to do instead; nil if
// the driver commits some. It makes no call.
func New(d Driver, noUnits error) *Store { return &Store{driver: d, noUnits: noUnits} }

// none is the guess that there is no row.
var none = &Row{}

// Acquire writes a claim; see [idem.Store].
func (s *Store) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return s.write(ctx, "Acquire", c.Record.ID, absent(c), now, c.Apply, with{})
}

// absent is the guess about the row of a claim.
func absent(c protocol.Claim) *Row {
	if c.Seen == "" {
		return none
	}
	return nil
}

// Withdraw takes back a claim; see [idem.Store].
func (s *Store) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return s.write(ctx, "Withdraw", w.Claim.Record.ID, nil, now, w.Apply, with{})
}

// Extend raises a lease; see [idem.Store].
func (s *Store) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return s.write(ctx, "Extend", e.ID, s.claims.of(e.ID), now, e.Apply, with{})
}

// RecordStep writes a step; see [idem.Store].
func (s *Store) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	return s.write(ctx, "RecordStep", w.ID, s.claims.of(w.ID), now, w.Apply, with{})
}

// RecordReference writes what the provider calls the effect; see [idem.Store].
func (s *Store) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return s.write(ctx, "RecordReference", r.ID, s.claims.of(r.ID), now, r.Apply, with{})
}

// Finish ends an attempt; see [idem.Store].
func (s *Store) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	if f.Unit != nil && s.noUnits != nil {
		return fmt.Errorf("%w: %w", s.noUnits, errors.ErrUnsupported)
	}
	guess := s.claims.of(f.ID)
	// A commit lands whole or not at all. Any other outcome does not wait for a result that takes too long.
	large := len(f.Ending.Result) > inRow && f.Unit == nil && f.Attempt == nil
	if end, bounded := ctx.Deadline(); large && bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(largeShare*float64(time.Until(end))))
		defer cancel()
	}
	if how, ok := f.Attempt.(protocol.Atomic); ok {
		guess = absent(how.Claim)
	}
	err := s.write(ctx, "Finish", f.ID, guess, now, f.Apply, with{unit: f.Unit, created: f.Created, at: now})
	if failed, ok := errors.AsType[*protocol.StoreError](err); ok && large {
		failed.ResultNotStored = true
	}
	return err
}

// largeShare of a call's time is for an outcome with a large result. The rest is kept for the outcome without it.
const largeShare = 0.65

// Settle parks or resolves a record; see [idem.Store].
func (s *Store) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	return s.write(ctx, "Settle", w.ID, nil, now, w.Apply, with{audit: w.Audit})
}

// with is what is written with a record.
type with struct {
	unit        protocol.Unit
	created, at time.Time // of the unit
	audit       *protocol.Audit
}

// write makes one change of a record.
func (s *Store) write(ctx context.Context, op, id string, guess *Row, now time.Time,
	apply func(*protocol.Record, time.Time) (*protocol.Record, error), w with) error {
	return s.swap(ctx, op, id, guess, func(row Row, _ bool) (*Change, error) {
		old, err := decode(row)
		if err != nil {
			return nil, err
		}
		next, err := apply(old, now)
		switch landed := next == old; {
		case err != nil, landed && old == nil:
			return nil, err
		case landed: // a database may show a row that it has not confirmed: what it confirms after that, it has too
			return s.change(old, next, with{})
		}
		return s.change(old, next, w)
	})
}

// change is the change from a record to another one.
func (s *Store) change(old, next *protocol.Record, w with) (*Change, error) {
	c := &Change{Unit: w.unit, Created: w.created, At: w.at}
	if w.audit != nil {
		e, err := EntryOf(w.audit)
		if err != nil {
			return nil, err
		}
		c.Entry = e
	}
	if next != nil {
		if err := encode(next, c); err != nil {
			return nil, err
		}
	}
	kept := partsOf(next)
	for _, name := range partsOf(old) {
		if _, put := c.Put[name]; !put && !slices.Contains(kept, name) {
			c.Drop = append(c.Drop, name)
		}
	}
	return c, nil
}

// Get reads a record; see [idem.Store].
func (s *Store) Get(ctx context.Context, id string) (rec *protocol.Record, err error) {
	err = s.read(ctx, "Get", tryTime, 0, func(ctx context.Context) error {
		row, err := s.driver.Read(ctx, id)
		if err != nil {
			return err
		}
		rec, err = decode(row)
		return err
	})
	return rec, err
}

// read makes a call that changes nothing, and returns so many bytes. The first try gets most besides the time for them.
func (s *Store) read(ctx context.Context, op string, most time.Duration, size int,
	call func(context.Context) error) error {
	t := try{ctx: ctx, op: op}
	for {
		err := ctx.Err()
		if err == nil {
			if err = t.once(most, size, call); err == nil {
				return nil
			}
		}
		if !t.again(err) {
			t.maybe = false
			return t.failed(err)
		}
	}
}

// Stored returns what is stored of a record, in JSON and without its result, also if the record cannot be read; nil if
// there is none.
func (s *Store) Stored(ctx context.Context, id string) (data []byte, err error) {
	err = s.read(ctx, "Stored", tryTime, 0, func(ctx context.Context) error {
		row, err := s.driver.Read(ctx, id)
		data = row.Data
		return err
	})
	return data, err
}

// Result reads a record's result; see [idem.Store].
func (s *Store) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if rec == nil || rec.State != protocol.Completed {
		return nil, nil
	}
	return s.result(ctx, "Result", rec.ID, rec.Body)
}

// StepResult reads the result of a record's step; see [idem.Store].
func (s *Store) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	if rec == nil {
		return nil, nil
	}
	step := rec.Steps[name]
	if step.Write == "" || !step.Done() || step.Failure != nil {
		return nil, unreadable(rec.ID, "its step %q has no result", name)
	}
	return s.result(ctx, "StepResult", rec.ID, step.Body)
}

func (s *Store) result(ctx context.Context, op, id string, b protocol.Body) (data []byte, err error) {
	if b.Encoding != "" || b.Parts == 0 && (len(b.Data) != b.Size || b.Stored != b.Size) {
		return nil, unreadable(id, "this store did not write its result")
	}
	if b.Parts == 0 {
		return slices.Clone(b.Data), nil
	}
	err = s.read(ctx, op, listTime, b.Size, func(ctx context.Context) error {
		data, err = s.driver.Part(ctx, id, partName(b))
		return err
	})
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); len(data) != b.Size || string(sum[:]) != string(b.Digest) {
		return nil, unreadable(id, "its result of %d bytes is missing, cut short or altered", b.Size)
	}
	return data, nil
}

// Traits say whether units of work commit; see [idem.Store].
func (s *Store) Traits() protocol.Traits { return protocol.Traits{NoUnits: s.noUnits} }
