package paths

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// Path is one way through the protocol: what leads up to it, and the call that
// is metered.
type Path struct {
	// Name of the path. local/proof/readme says which rows of the README it is.
	Name string
	// Calls that it makes, by DynamoDB operation.
	Calls map[string]int
	// Before brings the record where the path begins. May be nil.
	Before func(ctx context.Context, s *Stage) error
	// Play is the metered call.
	Play func(ctx context.Context, s *Stage) error
	// WithoutTransactions says that the stage's store is for a table that has none.
	WithoutTransactions bool
}

const (
	put, update, get, batchGet = "PutItem", "UpdateItem", "GetItem", "BatchGetItem"
	query, transact            = "Query", "TransactWriteItems"
	lease                      = 30 * time.Second
)

var (
	repeatable    = idem.Operation{Name: "path", Repeat: idem.Repeatable}
	notRepeatable = idem.Operation{Name: "path"}
	unnoticed     = idem.Operation{Name: "path", Watch: idem.WatchNever}
	silent        = idem.Operation{Name: "path", Repeat: idem.Repeatable, Watch: idem.WatchNever}
	watched       = idem.Operation{Name: "path", Repeat: idem.Repeatable, Watch: idem.WatchAlways}
	observed      = idem.Operation{Name: "path", Shadow: true}
	atomic        = idem.Operation{Name: "path", Repeat: idem.Repeatable, Mode: idem.Atomic}
	errBroken     = errors.New("the connection broke")
)

// calls count by DynamoDB operation.
type calls = map[string]int

// All returns the paths that are played.
func All() []Path {
	return []Path{
		{Name: "first execution, repeatable", Calls: calls{put: 1, update: 1}, Play: run(repeatable, small)},
		{Name: "first execution, not repeatable", Calls: calls{put: 1, update: 1}, Play: run(notRepeatable, small)},
		{Name: "first execution, not repeatable, unnoticed", Calls: calls{put: 1, update: 1}, Play: run(unnoticed, small)},
		{Name: "first execution, repeatable, watched", Calls: calls{put: 1, update: 1}, Play: run(watched, small)},
		{Name: "replay", Calls: calls{put: 1}, Before: run(repeatable, small), Play: replayed(repeatable)},
		{Name: "replay of a hot key", Calls: calls{get: 1}, Before: both(run(repeatable, small), replayed(repeatable)),
			Play: replayed(repeatable)},
		{Name: "failed, recorded", Calls: calls{put: 1, update: 1}, Play: fails(repeatable, idem.Permanent(errBroken))},
		{Name: "failed, replayed", Calls: calls{put: 1}, Before: fails(repeatable, idem.Permanent(errBroken)),
			Play: refused(repeatable, nil)},
		{Name: "released", Calls: calls{put: 1, update: 1}, Play: fails(repeatable, idem.NotExecuted(errBroken))},
		{Name: "parked after an error", Calls: calls{put: 1, update: 1}, Play: fails(notRepeatable, errBroken)},
		{Name: "in flight", Calls: calls{put: 1}, Before: killed(repeatable), Play: refused(repeatable, idem.ErrInFlight)},
		{Name: "key reused", Calls: calls{put: 1}, Before: run(repeatable, small), Play: reused},
		{Name: "outcome unknown", Calls: calls{put: 1}, Before: fails(notRepeatable, errBroken),
			Play: refused(notRepeatable, idem.ErrOutcomeUnknown)},
		{Name: "lapsed, parked", Calls: calls{put: 1, update: 1}, Before: both(killed(notRepeatable), after(lease)),
			Play: refused(notRepeatable, idem.ErrOutcomeUnknown)},
		{Name: "lapsed, taken over", Calls: calls{put: 1, update: 2}, Before: both(killed(repeatable), after(lease)),
			Play: run(repeatable, small)},
		{Name: "late, taken over", Calls: calls{update: 1},
			Before: both(killed(repeatable), both(after(lease), run(repeatable, small))), Play: late(repeatable, false)},
		{Name: "late, parked", Calls: calls{update: 2}, Before: both(killed(notRepeatable),
			both(after(lease), refused(notRepeatable, idem.ErrOutcomeUnknown))), Play: late(notRepeatable, true)},
		{Name: "released, claimed", Calls: calls{put: 1, update: 2}, Before: fails(repeatable, errBroken),
			Play: run(repeatable, small)},
		{Name: "expired, claimed", Calls: calls{put: 2, update: 1},
			Before: both(run(repeatable, small), after(idem.DefaultRetention)), Play: run(repeatable, small)},
		{Name: "in shadow, first", Calls: calls{put: 1, update: 1}, Play: run(observed, small)},
		{Name: "in shadow, first, an error", Calls: calls{put: 1, update: 1}, Play: fails(observed, errBroken)},
		{Name: "in shadow, duplicate", Calls: calls{put: 1}, Before: run(observed, small), Play: run(observed, small)},
		{Name: "in shadow, duplicate, unknown", Calls: calls{put: 1}, Before: fails(observed, errBroken),
			Play: run(observed, small)},
		{Name: "lease renewed", Calls: calls{update: 1}, Before: killed(repeatable), Play: renew(repeatable)},
		{Name: "lease renewed, watched", Calls: calls{update: 1}, Before: killed(notRepeatable),
			Play: renew(notRepeatable)},
		{Name: "reference", Calls: calls{update: 1}, Before: killed(repeatable), Play: refer(repeatable)},
		{Name: "reference, watched", Calls: calls{update: 1}, Before: killed(notRepeatable), Play: refer(notRepeatable)},
		{Name: "a step", Calls: calls{put: 1, update: 2}, Play: stepped(repeatable, idem.AtLeastOnce, "look")},
		{Name: "at-most-once step", Calls: calls{put: 1, update: 3}, Play: stepped(repeatable, idem.AtMostOnce, "charge")},
		{Name: "at-most-once step, watched", Calls: calls{put: 1, update: 3},
			Play: stepped(watched, idem.AtMostOnce, "charge")},
		{Name: "at-most-once step, unnoticed", Calls: calls{put: 1, update: 3},
			Play: stepped(silent, idem.AtMostOnce, "charge")},
		{Name: "two at-most-once steps", Calls: calls{put: 1, update: 5},
			Play: stepped(repeatable, idem.AtMostOnce, "charge", "ship")},
		{Name: "two at-most-once steps, unnoticed", Calls: calls{put: 1, update: 5},
			Play: stepped(silent, idem.AtMostOnce, "charge", "ship")},
		{Name: "half done, taken over", Calls: calls{put: 1, update: 2},
			Before: both(halfDone(repeatable), after(lease)), Play: run(repeatable, small)},
		{Name: "half done, taken over, unnoticed", Calls: calls{put: 1, update: 2},
			Before: both(halfDone(silent), after(lease)), Play: run(silent, small)},
		{Name: "resolved", Calls: calls{get: 1, transact: 1}, Before: fails(notRepeatable, errBroken), Play: resolve},
		{Name: "resolved, without transactions", Calls: calls{get: 1, update: 1, put: 2},
			Before: fails(notRepeatable, errBroken), Play: resolve, WithoutTransactions: true},
		{Name: "business write, two calls", Calls: calls{put: 1, transact: 1}, Play: commits(repeatable)},
		{Name: "business write, atomic", Calls: calls{get: 1, transact: 1}, Play: commits(atomic)},
		{Name: "atomic, replay", Calls: calls{get: 1}, Before: commits(atomic), Play: replayed(atomic)},
		{Name: "atomic, failed, recorded", Calls: calls{get: 1, put: 1}, Play: fails(atomic, idem.Permanent(errBroken))},
		{Name: "atomic, failed, nothing written", Calls: calls{get: 1}, Play: fails(atomic, errBroken)},
		{Name: "first execution, 390 KB", Calls: calls{put: 3, update: 1}, Play: run(repeatable, 390<<10)},
		{Name: "replay, 390 KB", Calls: calls{put: 1, batchGet: 1}, Before: run(repeatable, 390<<10),
			Play: replayed(repeatable)},
		{Name: "replay of a hot key, 390 KB", Calls: calls{get: 1, batchGet: 1},
			Before: both(run(repeatable, 390<<10), replayed(repeatable)), Play: replayed(repeatable)},
		{Name: "first execution, 5.5 MB", Calls: calls{put: 23, update: 1}, Play: run(repeatable, 22<<18)},
		{Name: "replay, 5.5 MB", Calls: calls{put: 1, batchGet: 1}, Before: run(repeatable, 22<<18),
			Play: replayed(repeatable)},
	}
}

const small = 1 << 10

// Stage is where a path is played: a table, a clock that can be moved, and the
// key that is its record's.
type Stage struct {
	// Store under the engine, Engine over it.
	Store  reconcile.Store
	Engine *idem.Engine
	// Value of the key; a fresh one for every path.
	Value string
	// Table for business writes.
	Table string

	ahead time.Duration
}

// NewStage returns a stage over the store.
func NewStage(store reconcile.Store, table, value string) (*Stage, error) {
	s := &Stage{Store: store, Value: value, Table: table}
	var err error
	s.Engine, err = idem.New(store, &idem.Options{
		Now: func() time.Time { return time.Now().Add(s.ahead) }, Lease: lease,
		ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute,
	})
	return s, err
}

func (s *Stage) key(op idem.Operation) idem.Key { return op.Key("acme", s.Value) }

func both(a, b func(context.Context, *Stage) error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error { return errors.Join(a(ctx, s), b(ctx, s)) }
}

// after moves the clock past d and the observers' margin.
func after(d time.Duration) func(context.Context, *Stage) error {
	return func(_ context.Context, s *Stage) error {
		s.ahead += d + idem.DefaultMargin + time.Second
		return nil
	}
}

// handler is what a path's operation does.
type handler func(context.Context, *Stage) idem.Answer

// answers executes the handler for real, or gets a recorded result.
func answers(op idem.Operation, h handler, replayed bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		out, err := s.Engine.Execute(ctx, s.call(op, h))
		if err == nil && (out.Replayed != replayed || out.Queued) {
			err = fmt.Errorf("replayed: %v, queued: %v", out.Replayed, out.Queued)
		}
		return err
	}
}

// run executes a handler with a result of the size.
func run(op idem.Operation, size int) func(context.Context, *Stage) error {
	return answers(op, func(context.Context, *Stage) idem.Answer { return idem.Answer{Body: noise(size)} }, false)
}

// stepped executes a handler of such steps.
func stepped(op idem.Operation, semantics idem.StepSemantics, names ...string) func(context.Context, *Stage) error {
	return answers(op, func(ctx context.Context, _ *Stage) idem.Answer {
		for _, name := range names {
			_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 1, nil },
				&idem.StepConfig[int]{Semantics: semantics})
			if err != nil {
				return idem.Answer{Err: err}
			}
		}
		return idem.Answer{Body: noise(small)}
	}, false)
}

// halfDone leaves a claim as a process leaves it that is killed after an at-most-once step.
func halfDone(op idem.Operation) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		if err := killed(op)(ctx, s); err != nil {
			return err
		}
		now := time.Now().Add(s.ahead).UTC().Truncate(time.Millisecond)
		w := protocol.StepWrite{ID: s.key(op).ID(), Owner: "owner-" + s.Value, Write: "begin-" + s.Value,
			Name: "charge", Begin: true}
		if op.Watch != idem.WatchNever {
			w.Due = now.Add(lease + idem.DefaultMargin)
		}
		if err := s.Store.RecordStep(ctx, now, w); err != nil {
			return err
		}
		done := protocol.StepWrite{ID: w.ID, Owner: w.Owner, Write: "step-" + s.Value, Name: w.Name, Result: []byte("1")}
		return s.Store.RecordStep(ctx, now, done)
	}
}

// commits executes a handler whose one business write, of 200 bytes, commits with
// its outcome.
func commits(op idem.Operation) func(context.Context, *Stage) error {
	return answers(op, business, false)
}

func replayed(op idem.Operation) func(context.Context, *Stage) error { return answers(op, never, true) }

func business(ctx context.Context, s *Stage) idem.Answer {
	dynamostore.TxOf(ctx).Put(types.Put{TableName: &s.Table, Item: map[string]types.AttributeValue{
		schema.PK: &types.AttributeValueMemberS{Value: "account#" + s.Value},
		schema.SK: &types.AttributeValueMemberS{Value: "#"},
		"holder":  &types.AttributeValueMemberB{Value: noise(200)},
	}}, nil)
	return idem.Answer{Body: noise(small)}
}

func (s *Stage) call(op idem.Operation, h handler) idem.Call {
	return idem.Call{
		Key: s.key(op), Fingerprint: fingerprint.Bytes([]byte("input")),
		Run: func(ctx context.Context) idem.Answer { return h(ctx, s) },
	}
}

func fails(op idem.Operation, err error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		_, got := s.Engine.Execute(ctx,
			s.call(op, func(context.Context, *Stage) idem.Answer { return idem.Answer{Err: err} }))
		if !errors.Is(got, errBroken) {
			return fmt.Errorf("the handler's error was not returned: %w", got)
		}
		return nil
	}
}

func never(context.Context, *Stage) idem.Answer { panic("the handler ran where it must not") }

// refused is a call that gets an error instead of running: want, or a recorded
// failure if want is nil.
func refused(op idem.Operation, want error) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		_, err := s.Engine.Execute(ctx, s.call(op, never))
		var recorded *idem.RecordedError
		if want == nil && errors.As(err, &recorded) || want != nil && errors.Is(err, want) {
			return nil
		}
		return fmt.Errorf("want %v, got %w", want, err)
	}
}

func reused(ctx context.Context, s *Stage) error {
	c := s.call(repeatable, never)
	c.Fingerprint = fingerprint.Bytes([]byte("other input"))
	if _, err := s.Engine.Execute(ctx, c); !errors.Is(err, idem.ErrKeyReused) {
		return fmt.Errorf("want key reused, got %w", err)
	}
	return nil
}

// killed leaves a claim as a process that is killed in its handler leaves it.
func killed(op idem.Operation) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		now := time.Now().Add(s.ahead).UTC().Truncate(time.Millisecond)
		rec := idem.Record{
			ID: s.key(op).ID(), State: idem.InProgress, Repeat: op.Repeat, Owner: "owner-" + s.Value, Write: "write-" + s.Value,
			Attempt: 1, Fingerprint: fingerprint.Bytes([]byte("input")), LeaseUntil: now.Add(lease),
			Retention: idem.DefaultRetention, CreatedAt: now, UpdatedAt: now,
		}
		if op.Repeat == idem.Repeatable {
			rec.ExpiresAt = now.Add(lease + rec.Retention).Truncate(time.Second)
		} else {
			rec.Due = rec.LeaseUntil.Add(idem.DefaultMargin)
		}
		return s.Store.Acquire(ctx, now, protocol.Claim{Record: rec})
	}
}

func renew(op idem.Operation) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		now := time.Now().UTC().Truncate(time.Millisecond)
		e := protocol.Extension{ID: s.key(op).ID(), Owner: "owner-" + s.Value, Write: "renewal-" + s.Value,
			LeaseUntil: now.Add(2 * lease)}
		if op.Repeat == idem.Repeatable {
			e.ExpiresAt = now.Add(2*lease + idem.DefaultRetention).Truncate(time.Second)
		}
		return s.Store.Extend(ctx, now, e)
	}
}

// refer records what the provider calls the effect.
func refer(op idem.Operation) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		return s.Store.RecordReference(ctx, time.Now(), protocol.ReferenceWrite{
			ID: s.key(op).ID(), Owner: "owner-" + s.Value, Write: "reference-" + s.Value, Ref: "pay_3MtwBwLkdIwHu7ix28a3tqPa",
		})
	}
}

// late is the end of the attempt that was taken over or parked.
func late(op idem.Operation, lands bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		now := time.Now().Add(s.ahead).UTC().Truncate(time.Millisecond)
		err := s.Store.Finish(ctx, now, protocol.Finish{
			ID: s.key(op).ID(), Owner: "owner-" + s.Value, Write: "late-" + s.Value, Created: now,
			Ending: protocol.Ending{State: idem.Completed, Result: noise(small),
				ExpiresAt: now.Add(idem.DefaultRetention).Truncate(time.Second)},
		})
		if _, refused := errors.AsType[*protocol.ConflictError](err); refused != lands && (err == nil) == lands {
			return nil
		}
		return fmt.Errorf("a late outcome that lands: %v, got %w", lands, err)
	}
}

func resolve(ctx context.Context, s *Stage) error {
	r, err := reconcile.New(s.Store, nil)
	if err != nil {
		return err
	}
	result := &protocol.Encoded{Body: noise(small), Check: func([]byte) error { return nil }}
	return r.Resolve(ctx, s.key(notRepeatable).ID(), reconcile.Resolution{To: idem.Completed, Result: result},
		reconcile.Change{Actor: "alice", Reason: "the provider says so"})
}

// noise is a result that does not compress, so that its size is what is stored.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// Measure plays a path and returns what its metered call took. It is an error if
// the calls are not the path's.
func Measure(ctx context.Context, p Path, s *Stage, m *Meter) (Usage, error) {
	if p.Before != nil {
		if err := p.Before(ctx, s); err != nil {
			return Usage{}, fmt.Errorf("before: %w", err)
		}
	}
	m.Take()
	if err := p.Play(ctx, s); err != nil {
		return Usage{}, err
	}
	u := m.Take()
	if !maps.Equal(u.Calls, p.Calls) {
		return u, fmt.Errorf("made the calls %v instead of %v", u.Calls, p.Calls)
	}
	return u, nil
}
