package memstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
)

var now = time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)

func TestConformance(t *testing.T) {
	for name, o := range map[string]memstore.Options{"no limit": {}, "5.5 MB": {MaxResult: 5632 << 10}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Harness {
				s := o.New()
				return storetest.Harness{
					Store: s, Scanner: s, MaxResult: o.MaxResult,
					Delete: func(_ context.Context, id string) error { s.Delete(id); return nil },
					Unit: func(context.Context) (protocol.Unit, func(context.Context) (bool, error), error) {
						u := new(unit)
						others := func(committed protocol.Unit) bool { return committed != u }
						return u, func(context.Context) (bool, error) { return len(slices.DeleteFunc(s.Units(), others)) == 1, nil }, nil
					},
				}
			})
		})
	}
}

func claim(t *testing.T, s *memstore.Store, id string) {
	t.Helper()
	require.NoError(t, s.Acquire(t.Context(), now, protocol.Claim{Record: protocol.Record{
		ID: id, State: protocol.InProgress, Owner: "owner-" + id, Write: "write-" + id, Attempt: 1,
	}}))
}

func TestRecordsAreSortedCopies(t *testing.T) {
	s := memstore.New()
	require.Empty(t, s.Records())
	claim(t, s, "b")
	claim(t, s, "a")
	all := s.Records()
	require.Len(t, all, 2)
	require.Equal(t, "a", all[0].ID)
	require.Equal(t, "b", all[1].ID)
	all[0].Owner = "changed"
	require.Equal(t, "owner-a", s.Records()[0].Owner)
}

// A record that another store handed out must not pass for one with a result.
func TestResultOfAForeignRecord(t *testing.T) {
	s := memstore.New()
	for name, rec := range map[string]*protocol.Record{
		"nil":        nil,
		"in parts":   {Body: protocol.Body{Parts: 2, Size: 10, Stored: 10}},
		"compressed": {Body: protocol.Body{Data: []byte("x"), Encoding: "zlib", Size: 1, Stored: 1}},
		"cut short":  {Body: protocol.Body{Data: []byte("x"), Size: 2, Stored: 2}},
		"too long":   {Body: protocol.Body{Data: []byte("xyz"), Size: 2, Stored: 2}},
		"stored":     {Body: protocol.Body{Data: []byte("xy"), Size: 2, Stored: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Result(t.Context(), rec)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
		})
	}
}

func TestResultWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := memstore.New().Result(ctx, &protocol.Record{})
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

// unit has one action with a condition.
type unit struct{ name string }

func (u *unit) Seal() bool { return true }

func (u *unit) Size() int { return len(u.name) }

func (u *unit) CommitInMemory(conditions func(any) (bool, any)) error {
	if conditions == nil {
		return nil
	}
	if holds, old := conditions(u.name); !holds {
		return &protocol.RefusedError{Err: old.(error)}
	}
	return nil
}

func TestAUnitIsRefusedWithTheReasonOfItsCondition(t *testing.T) {
	s := memstore.New()
	claim(t, s, "a")
	f := protocol.Finish{ID: "a", Owner: "owner-a", Write: "w", Ending: protocol.Ending{State: protocol.Completed},
		Unit: &unit{"first"}}

	reason := errors.New("the condition does not hold")
	s.Conditions(func(action any) (bool, any) {
		require.Equal(t, "first", action)
		return false, reason
	})
	var refused *protocol.RefusedError
	require.ErrorAs(t, s.Finish(t.Context(), now, f), &refused)
	require.Equal(t, reason, refused.Err)
	require.Empty(t, s.Units())
	require.Equal(t, protocol.InProgress, s.Records()[0].State, "neither is written")
}

func plain(t *testing.T) (*memstore.Store, *idem.Engine) {
	store, err := memstore.NewPlain()
	require.NoError(t, err)
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	return store, engine
}

// TestPlainRunsEveryCall: the same again, another input, one at the same time, one
// after a failure; of operations of every kind.
func TestPlainRunsEveryCall(t *testing.T) {
	for name, op := range map[string]idem.Operation{
		"not repeatable": {Name: "charge"},
		"repeatable":     {Name: "charge", Repeat: protocol.Repeatable},
		"atomic":         {Name: "charge", Repeat: protocol.Repeatable, Mode: idem.Atomic},
	} {
		t.Run(name, func(t *testing.T) {
			_, engine := plain(t)
			key := op.Key("acme", "1")
			var tokens []string
			call := func(in string, end error) {
				res, err := idem.Run(t.Context(), engine, key, in, func(ctx context.Context, in string) (string, error) {
					tokens = append(tokens, idem.Token(ctx))
					return in, end
				})
				if end != nil {
					require.EqualError(t, err, end.Error())
					return
				}
				require.NoError(t, err)
				require.Equal(t, in, res.Value)
				require.False(t, res.Outcome.Replayed)
			}
			call("a", nil)
			call("a", nil)
			call("b", nil)
			call("a", errors.New("unknown"))
			call("a", idem.Permanent(errors.New("never")))
			call("a", nil)
			require.Len(t, tokens, 6)
			for _, token := range tokens {
				require.Equal(t, tokens[0], token, "it depends on the key alone")
			}
		})
	}
}

// TestPlainConcurrentDuplicatesRunSideBySide, each with its own steps.
func TestPlainConcurrentDuplicatesRunSideBySide(t *testing.T) {
	_, engine := plain(t)
	key := idem.Operation{Name: "book", Repeat: protocol.Repeatable}.Key("acme", "1")
	var both, done sync.WaitGroup
	both.Add(2)
	for _, seat := range []string{"1A", "2B"} {
		done.Go(func() {
			got, err := idem.Do(t.Context(), engine, key, seat, func(ctx context.Context, seat string) (string, error) {
				both.Done()
				both.Wait()
				return idem.Step(ctx, "seat", func(context.Context) (string, error) { return seat, nil }, nil)
			})
			if err != nil || got != seat {
				t.Errorf("%s got %q and %v", seat, got, err)
			}
		})
	}
	done.Wait()
}

// TestPlainUndoesAndCommits: compensations run, and units commit with each attempt.
func TestPlainUndoesAndCommits(t *testing.T) {
	store, engine := plain(t)
	key := idem.Operation{Name: "book", Repeat: protocol.Repeatable}.Key("acme", "1")
	var log []string
	for range 2 {
		_, err := idem.Do(t.Context(), engine, key, "", func(ctx context.Context, _ string) (string, error) {
			_, err := idem.Step(ctx, "seat", func(context.Context) (string, error) {
				log = append(log, "booked")
				return "1A", nil
			}, &idem.StepConfig[string]{Compensate: func(context.Context, string) error {
				log = append(log, "cancelled")
				return nil
			}})
			require.NoError(t, err)
			return "", idem.Permanent(errors.New("declined"))
		})
		require.EqualError(t, err, "declined")
	}
	require.Equal(t, []string{"booked", "cancelled", "booked", "cancelled"}, log)

	for range 2 {
		_, err := idem.Do(t.Context(), engine, key, "", func(ctx context.Context, _ string) (string, error) {
			_, err := idem.UnitOf(ctx, func() idem.Unit { return &unit{"first"} })
			return "", err
		})
		require.NoError(t, err)
	}
	require.Len(t, store.Units(), 2)
}

func TestPlainIsRefusedInLambda(t *testing.T) {
	t.Setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
	store, err := memstore.NewPlain()
	require.Nil(t, store)
	var mistake *protocol.ConfigError
	require.ErrorAs(t, err, &mistake)
	require.ErrorContains(t, err, "dynamostore.New")
}
