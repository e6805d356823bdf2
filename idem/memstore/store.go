package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Options of a store. The zero value is what [New] uses.
type Options struct {
	// MaxResult is the largest result in bytes, of an operation or a step, that the store
	// takes; a larger one is refused with [protocol.TooLargeError]. Zero or less means no
	// limit.
	MaxResult int
}

// Store is an in-memory [idem.Store]. It is safe for concurrent use. Results stay
// in the record, uncompressed. Of foreign writes it commits a [Unit]; anything else
// in Finish.Unit is refused with errors.ErrUnsupported. Nothing is ever deleted by
// itself; Delete plays the part of TTL.
type Store struct {
	maxResult int
	plain     bool // see NewPlain

	mu         sync.Mutex
	records    map[string]*protocol.Record // by id; in a plain store by owner
	audits     []protocol.Audit            // in the order in which they were made
	units      []protocol.Unit
	counters   map[string]int // see CountKey
	paused     protocol.Paused
	conditions func(action any) (holds bool, old any)
}

var (
	_ protocol.Store      = (*Store)(nil)
	_ protocol.AdminStore = (*Store)(nil)
	_ protocol.Scanner    = (*Store)(nil)
)

// New returns an empty store with the default options.
func New() *Store { return Options{}.New() }

// New returns an empty store with these options.
func (o Options) New() *Store {
	return &Store{maxResult: o.MaxResult, records: map[string]*protocol.Record{}, counters: map[string]int{}}
}

// Acquire writes a claim; see [idem.Store].
func (s *Store) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return s.write(ctx, "Acquire", s.place(c.Record.ID, c.Record.Owner), now, c.Apply, with{})
}

// Withdraw takes back a claim; see [idem.Store].
func (s *Store) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return s.write(ctx, "Withdraw", s.place(w.Claim.Record.ID, w.Claim.Record.Owner), now, w.Apply, with{})
}

// Extend raises a lease; see [idem.Store].
func (s *Store) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return s.write(ctx, "Extend", s.place(e.ID, e.Owner), now, e.Apply, with{})
}

// RecordStep writes a step; see [idem.Store].
func (s *Store) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	if err := s.fits(w.Result); err != nil {
		return err
	}
	return s.write(ctx, "RecordStep", s.place(w.ID, w.Owner), now, w.Apply, with{})
}

// RecordReference writes what the provider calls the effect; see [idem.Store].
func (s *Store) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return s.write(ctx, "RecordReference", s.place(r.ID, r.Owner), now, r.Apply, with{})
}

// Finish ends an attempt; see [idem.Store].
func (s *Store) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	unit, ok := f.Unit.(Unit)
	if f.Unit != nil && !ok {
		return fmt.Errorf("memstore: a %T commits in its database alone: test it there: %w", f.Unit, errors.ErrUnsupported)
	}
	if err := s.fits(f.Ending.Result); err != nil {
		return err
	}
	if how, ok := f.Attempt.(protocol.Atomic); ok {
		if err := s.fits(how.Claim.Record.Steps[protocol.AcceptedStep].Body.Data); err != nil {
			return err
		}
	}
	return s.write(ctx, "Finish", s.place(f.ID, f.Owner), now, f.Apply, with{unit: unit})
}

// Settle parks or resolves a record; see [idem.Store].
func (s *Store) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if err := s.fits(w.Ending.Result); err != nil {
		return err
	}
	for _, step := range w.Steps {
		if err := s.fits(step.Result); err != nil {
			return err
		}
	}
	return s.write(ctx, "Settle", w.ID, now, w.Apply, with{audit: w.Audit})
}

// Get reads a record; see [idem.Store].
func (s *Store) Get(ctx context.Context, id string) (*protocol.Record, error) {
	if err := alive(ctx, "Get"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[id].Clone(), nil
}

// Result returns a copy of the record's result; see [idem.Store].
func (s *Store) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if err := alive(ctx, "Result"); err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, fmt.Errorf("%w: there is no record to read a result of", protocol.ErrRecordUnreadable)
	}
	return plain(rec.Body)
}

// StepResult returns a copy of the result of a record's step; see [idem.Store].
func (s *Store) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	if err := alive(ctx, "StepResult"); err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, fmt.Errorf("%w: there is no record to read a step of", protocol.ErrRecordUnreadable)
	}
	step, ok := rec.Steps[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no step %q", protocol.ErrRecordUnreadable, name)
	}
	return plain(step.Body)
}

// plain returns a copy of what this store keeps as it is.
func plain(b protocol.Body) ([]byte, error) {
	if b.Parts != 0 || b.Encoding != "" || len(b.Data) != b.Size || b.Stored != b.Size {
		return nil, fmt.Errorf("%w: this store did not write its result", protocol.ErrRecordUnreadable)
	}
	return bytes.Clone(b.Data), nil
}

// Delete removes a record, as TTL would. Removing an absent record does nothing.
func (s *Store) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
}

// Records returns copies of all records, in the order of their IDs.
func (s *Store) Records() []*protocol.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*protocol.Record, 0, len(s.records))
	for _, rec := range s.records {
		all = append(all, rec.Clone())
	}
	slices.SortFunc(all, func(a, b *protocol.Record) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// place is where a record is kept.
func (s *Store) place(id, owner string) string {
	if s.plain {
		return owner
	}
	return id
}

// write makes one atomic change, in which a unit and an audit entry commit if there are any.
// What apply returns may share memory with its arguments, so that what is kept and what is
// handed out are copies.
func (s *Store) write(ctx context.Context, op, id string, now time.Time,
	apply func(*protocol.Record, time.Time) (*protocol.Record, error), w with) error {
	if err := alive(ctx, op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[id]
	next, err := apply(old, now)
	if conflict, ok := errors.AsType[*protocol.ConflictError](err); ok {
		return &protocol.ConflictError{Existing: conflict.Existing.Clone()}
	}
	if err != nil {
		return err
	}
	if next == old {
		return nil // it has landed already
	}
	if w.unit != nil {
		if err := w.unit.CommitInMemory(s.conditions); err != nil {
			return err
		}
		s.units = append(s.units, w.unit)
	}
	if w.audit != nil {
		s.audits = append(s.audits, cloned(*w.audit))
	}
	if next == nil {
		delete(s.records, id)
		return nil
	}
	s.records[id] = next.Clone()
	return nil
}

// with is what commits with a write.
type with struct {
	unit  Unit
	audit *protocol.Audit
}

func (s *Store) fits(result []byte) error {
	if s.maxResult > 0 && len(result) > s.maxResult {
		return &protocol.TooLargeError{Size: len(result), Limit: s.maxResult}
	}
	return nil
}

// alive refuses a call whose context has ended: nothing was, or will be, written.
func alive(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &protocol.StoreError{Op: op, Err: err}
	}
	return nil
}

// Traits are none: steps count as they are, and units commit; see [idem.Store].
func (s *Store) Traits() protocol.Traits { return protocol.Traits{} }

// NewPlain returns a store that turns every wrapper over it into a plain call: each
// attempt has a record of its own, which no other call finds. Every call runs its handler,
// whatever came before it or runs at the same time, and nothing is replayed, in flight or
// refused for its key. Tokens, steps and units of work are as ever, within the
// attempt. It is the switch for tests that are about something else:
//
//	store, err := memstore.NewPlain()
//	engine, err := idem.New(store, nil)
//
// Inside Lambda it would protect no caller, so that it returns an [*idem.ConfigError] there:
// where AWS_LAMBDA_RUNTIME_API is set, as in every function's process.
func NewPlain() (*Store, error) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		return nil, &protocol.ConfigError{
			What: "memstore.NewPlain",
			Problem: "this is Lambda, where a store that forgets protects no caller: use dynamostore.New, and keep " +
				"NewPlain to tests",
		}
	}
	s := New()
	s.plain = true
	return s, nil
}

// Unit is a unit of work that can commit in memory, such as a *dynamostore.Tx. The
// store keeps it together with the outcome; [Store.Units] shows what has committed.
type Unit interface {
	protocol.Unit
	// CommitInMemory returns nil if the unit may commit, else an [*protocol.RefusedError].
	// It changes nothing. conditions is what was given to [Store.Conditions], or nil.
	CommitInMemory(conditions func(action any) (holds bool, old any)) error
}

// Conditions sets what decides about the conditions of actions from now on: whether one
// holds, and if not, what the item was like. Memory has no tables, applies no update to
// an item and evaluates no expression. Without the function an action that has a
// condition is refused, so that no test passes for a condition that was not looked
// at. Action and old item are of the unit's own kind: those of a *dynamostore.Tx are a
// types.TransactWriteItem of the SDK, and a map[string]types.AttributeValue or nil for
// no item. The function is called while the store is locked and must not call it.
func (s *Store) Conditions(decide func(action any) (holds bool, old any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conditions = decide
}

// Units returns the units of work that have committed, in the order of their commits.
func (s *Store) Units() []protocol.Unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.units)
}

// CountKey implements limit.Counter. No counter is ever forgotten.
func (s *Store) CountKey(ctx context.Context, counter string, bound int, _ time.Time) (counted bool, err error) {
	if err := alive(ctx, "CountKey"); err != nil {
		return false, err
	}
	if s.plain {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters[counter] >= bound {
		return false, nil
	}
	s.counters[counter]++
	return true, nil
}
