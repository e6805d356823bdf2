package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

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
			call("a", errors.New("nobody knows"))
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
