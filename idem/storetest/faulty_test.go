package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// faulty is a store made to be broken: each of its parts can be exchanged for a
// faulty one. As it comes it is healthy.
type faulty struct {
	mu      sync.Mutex
	records map[string]*protocol.Record
	// parts are large results by record and owner.
	parts map[string][]byte
	// broken records and bad parts by id, as damages leave them.
	broken, bad map[string]bool

	claim    apply[protocol.Claim]
	withdraw apply[protocol.Withdrawal]
	extend   apply[protocol.Extension]
	step     apply[protocol.StepWrite]
	finish   apply[protocol.Finish]
	settle   apply[protocol.Settlement]
	refer    apply[protocol.ReferenceWrite]
	postpone apply[protocol.Postponement]
	prolong  apply[protocol.Prolongation]
	forget   apply[protocol.Erasure]
	due      func(protocol.DueQuery, []*protocol.Record) protocol.DuePage
	audits   []protocol.Audit
	audit    bool // entries are kept

	keep       func(*protocol.Record) *protocol.Record                // what is kept of a record given
	hand       func(*protocol.Record) *protocol.Record                // what is handed out of a record kept
	conflict   func(*protocol.Record) error                           // how a refusal is reported
	get        func(id string, now *protocol.Record) *protocol.Record // what a read sees
	partKey    func(id, owner string) string
	join       func(bad bool, data []byte) ([]byte, error)
	stepResult func(protocol.RecordedStep) []byte
	alive      func(context.Context, string) error
	unreadable func() error
	gap        func() // between check and act; not nil means no lock around them
	withEarly  bool   // foreign writes are applied before the condition is checked
	limit      int
	tooLate    bool // a result is measured after it is written
	largeSteps bool // a step's result is not measured
}

// apply does to a record, nil for none, what a write does.
type apply[W any] = func(w W, rec *protocol.Record, now time.Time) (*protocol.Record, error)

// inParts is the size from which on a result lies in parts.
const inParts = 4 << 10

var errDamaged = fmt.Errorf("faulty store: %w", protocol.ErrRecordUnreadable)

// newFaulty breaks a healthy store with change.
func newFaulty(change func(*faulty)) *faulty {
	s := &faulty{
		records: map[string]*protocol.Record{}, parts: map[string][]byte{},
		broken: map[string]bool{}, bad: map[string]bool{}, limit: 6 << 20,
		claim: protocol.Claim.Apply, withdraw: protocol.Withdrawal.Apply, extend: protocol.Extension.Apply,
		step: protocol.StepWrite.Apply, finish: protocol.Finish.Apply, settle: protocol.Settlement.Apply,
		refer: protocol.ReferenceWrite.Apply, postpone: protocol.Postponement.Apply, prolong: protocol.Prolongation.Apply,
		forget: protocol.Erasure.Apply,
		due:    duePage, audit: true, keep: (*protocol.Record).Clone, hand: (*protocol.Record).Clone,
		conflict: func(r *protocol.Record) error { return &protocol.ConflictError{Existing: r} },
		get:      func(_ string, now *protocol.Record) *protocol.Record { return now },
		partKey:  func(id, owner string) string { return id + "#" + owner },
		join: func(bad bool, data []byte) ([]byte, error) {
			if bad {
				return nil, errDamaged
			}
			return data, nil
		},
		alive: func(ctx context.Context, op string) error {
			if err := ctx.Err(); err != nil {
				return &protocol.StoreError{Op: op, Err: err}
			}
			return nil
		},
		unreadable: func() error { return errDamaged },
		stepResult: func(s protocol.RecordedStep) []byte { return bytes.Clone(s.Body.Data) },
	}
	change(s)
	return s
}

// put applies a write to a record, and keeps the entry of one from outside that changes something.
func put[W any](
	ctx context.Context, s *faulty, op, id string, a *protocol.Audit, apply apply[W], w W, now time.Time,
) error {
	if err := s.alive(ctx, op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[id]
	next, err := apply(w, old, now)
	if s.audit && a != nil && err == nil && next != old {
		s.audits = append(s.audits, *a)
	}
	if s.gap != nil {
		s.mu.Unlock()
		s.gap()
		s.mu.Lock()
	}
	var conflict *protocol.ConflictError
	if errors.As(err, &conflict) {
		if s.broken[id] {
			return s.unreadable()
		}
		return s.conflict(s.hand(conflict.Existing))
	}
	switch {
	case err != nil || next == old:
	case next == nil:
		delete(s.records, id)
	default:
		s.records[id] = s.keep(next)
	}
	return err
}

func (s *faulty) RecordReference(ctx context.Context, now time.Time, w protocol.ReferenceWrite) error {
	return put(ctx, s, "RecordReference", w.ID, nil, s.refer, w, now)
}

func (s *faulty) Postpone(ctx context.Context, now time.Time, w protocol.Postponement) error {
	return put(ctx, s, "Postpone", w.ID, w.Audit, s.postpone, w, now)
}

func (s *faulty) Prolong(ctx context.Context, now time.Time, w protocol.Prolongation) error {
	return put(ctx, s, "Prolong", w.ID, w.Audit, s.prolong, w, now)
}

func (s *faulty) Forget(ctx context.Context, now time.Time, w protocol.Erasure) error {
	return put(ctx, s, "Forget", w.ID, w.Audit, s.forget, w, now)
}

func (s *faulty) Due(_ context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []*protocol.Record
	for _, rec := range s.records {
		if q.Shard == 0 && !rec.Due.IsZero() && !rec.Due.After(q.Until) {
			due = append(due, rec)
		}
	}
	slices.SortFunc(due, func(a, b *protocol.Record) int { return strings.Compare(dueAt(a), dueAt(b)) })
	return s.due(q, due), nil
}

// dueAt is the record's place among those that are due.
func dueAt(r *protocol.Record) string { return fmt.Sprint(r.Due.UnixNano(), " ", r.ID) }

// duePage has what follows the record that the page before ended with, which may be due no more.
func duePage(q protocol.DueQuery, due []*protocol.Record) (p protocol.DuePage) {
	last := ""
	for _, rec := range due {
		if dueAt(rec) <= q.Page {
			continue
		}
		if q.Limit > 0 && len(p.IDs) == q.Limit {
			p.Next = last
			break
		}
		last = dueAt(rec)
		p.IDs, p.Due = append(p.IDs, rec.ID), append(p.Due, rec.Due)
	}
	return p
}

func (s *faulty) AuditOf(_ context.Context, id, _ string) (protocol.AuditPage, error) {
	return s.entries(func(a protocol.Audit) bool { return a.ID == id }), nil
}

func (s *faulty) AuditBetween(_ context.Context, shard int, from, to time.Time, _ string) (protocol.AuditPage, error) {
	return s.entries(func(a protocol.Audit) bool { return shard == 0 && !a.At.Before(from) && a.At.Before(to) }), nil
}

func (s *faulty) entries(wanted func(protocol.Audit) bool) (p protocol.AuditPage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.audits {
		if wanted(a) {
			p.Entries = append(p.Entries, a)
		}
	}
	return p
}

func (s *faulty) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	return put(ctx, s, "Acquire", c.Record.ID, nil, s.claim, c, now)
}

func (s *faulty) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return put(ctx, s, "Withdraw", w.Claim.Record.ID, nil, s.withdraw, w, now)
}

func (s *faulty) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return put(ctx, s, "Extend", e.ID, nil, s.extend, e, now)
}

func (s *faulty) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	if len(w.Result) > s.limit && !s.largeSteps {
		return &protocol.TooLargeError{Size: len(w.Result), Limit: s.limit}
	}
	return put(ctx, s, "RecordStep", w.ID, nil, s.step, w, now)
}

func (s *faulty) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	with, ok := f.Unit.(*labWrite)
	if f.Unit != nil && !ok {
		return errors.ErrUnsupported
	}
	if how, ok := f.Attempt.(protocol.Atomic); ok && !s.largeSteps {
		if n := len(how.Claim.Record.Steps[protocol.AcceptedStep].Body.Data); n > s.limit {
			return &protocol.TooLargeError{Size: n, Limit: s.limit}
		}
	}
	tooLarge := &protocol.TooLargeError{Size: len(f.Ending.Result), Limit: s.limit}
	if len(f.Ending.Result) > s.limit && !s.tooLate {
		return tooLarge
	}
	if err := s.alive(ctx, "Finish"); err != nil {
		return err
	}
	if with != nil && s.withEarly {
		with.applied = true
	}
	if len(f.Ending.Result) >= inParts {
		s.mu.Lock()
		owner := f.Owner
		if f.NewOwner != "" {
			owner = f.NewOwner
		}
		s.parts[s.partKey(f.ID, owner)] = bytes.Clone(f.Ending.Result)
		s.mu.Unlock()
	}
	err := put(ctx, s, "Finish", f.ID, nil, s.finish, f, now)
	if err == nil && with != nil {
		with.applied = true
	}
	if len(f.Ending.Result) > s.limit {
		return tooLarge
	}
	return err
}

func (s *faulty) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if len(w.Ending.Result) > s.limit {
		return &protocol.TooLargeError{Size: len(w.Ending.Result), Limit: s.limit}
	}
	inParts := func(w protocol.Settlement, r *protocol.Record, now time.Time) (*protocol.Record, error) {
		next, err := s.settle(w, r, now)
		if err == nil {
			s.parts[s.partKey(next.ID, next.Owner)] = bytes.Clone(next.Body.Data)
		}
		return next, err
	}
	return put(ctx, s, "Settle", w.ID, w.Audit, inParts, w, now)
}

func (s *faulty) Traits() protocol.Traits { return protocol.Traits{} }

func (s *faulty) Get(ctx context.Context, id string) (*protocol.Record, error) {
	if err := s.alive(ctx, "Get"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken[id] {
		return nil, s.unreadable()
	}
	return s.hand(s.get(id, s.records[id])), nil
}

func (s *faulty) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if err := s.alive(ctx, "Result"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec.Body.Size < inParts {
		return bytes.Clone(rec.Body.Data), nil
	}
	return s.join(s.bad[rec.ID], bytes.Clone(s.parts[s.partKey(rec.ID, rec.Owner)]))
}

func (s *faulty) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	if err := s.alive(ctx, "StepResult"); err != nil {
		return nil, err
	}
	return s.stepResult(rec.Steps[name]), nil
}

// labWrite is a unit of work that commits with Finish.
type labWrite struct{ applied bool }

func (*labWrite) Seal() bool { return true }
func (*labWrite) Size() int  { return 0 }

func (s *faulty) harness() Harness {
	mark := func(ids map[string]bool) func(context.Context, string) error {
		return func(_ context.Context, id string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			ids[id] = true
			return nil
		}
	}
	return Harness{
		Store: s, MaxResult: s.limit,
		Delete: func(_ context.Context, id string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.records, id)
			return nil
		},
		Damages: []Damage{
			{Name: "newer version", Do: mark(s.broken)},
			{Name: "part cut short", Parts: true, Do: mark(s.bad)},
		},
		Unit: func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
			w := &labWrite{}
			return w, func(context.Context) (bool, error) { return w.applied, nil }, nil
		},
	}
}

// recorder stands in for *testing.T: a case may fail in it, and no test fails.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// errStop ends a case, as FailNow does.
var errStop = errors.New("stop")

func (r *recorder) FailNow() { panic(errStop) }

func (r *recorder) Skip(...any) { r.Errorf("a case is skipped"); r.FailNow() }

// try runs one case against a store and returns what it complained about.
func try(t *testing.T, tc check, s *faulty) (said []string) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil && p != any(errStop) {
			panic(p)
		}
		said = r.said
	}()
	tc.run(newCell(r, t.Context(), s.harness()))
	return
}
