package idem_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A step for which there might be no room does not run, and what came before it can
// still be undone.
func TestStepsBeyondTheRoom(t *testing.T) {
	long := strings.Repeat("n", 90) // fewer steps fill the room
	for name, result := range map[string]string{"small": "", "large": strings.Repeat("x", 2000)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			key := safe.Key("t", "k")
			var last string
			ran, undone := 0, 0
			handler := func(end func(error) error) func(context.Context) (string, error) {
				return func(ctx context.Context) (string, error) {
					for n := 0; ; n++ {
						last = fmt.Sprintf("%s-%d", long, n)
						_, err := idem.Step(ctx, last, func(context.Context) (string, error) { ran++; return result, nil },
							&idem.StepConfig[string]{Compensate: func(context.Context, string) error { undone++; return nil }})
						if err != nil {
							return "", end(err)
						}
					}
				}
			}
			_, err := doSteps(t, r, key, handler(func(err error) error { return err }))
			require.ErrorAs(t, err, new(*idem.StepLimitError))
			var limit *idem.StepLimitError
			require.ErrorAs(t, err, &limit)
			require.Equal(t, last, limit.Name)
			require.LessOrEqual(t, limit.Taken, limit.Limit)
			require.Equal(t, protocol.StepRoom, limit.Limit)
			require.Greater(t, ran, 300)
			require.NotContains(t, r.record(t, key).Steps, last)
			require.Equal(t, idem.Released, r.state(t, key))
			before, where := ran, last

			_, err = doSteps(t, r, key, handler(idem.Permanent))
			require.ErrorAs(t, err, new(*idem.StepLimitError))
			require.Equal(t, where, last, "the same one in every attempt")
			require.Equal(t, before, ran)
			require.Equal(t, ran, undone)
			require.Equal(t, idem.Failed, r.state(t, key))
		})
	}
}

// Steps that end side by side share what the record keeps of results.
func TestStepsSideBySideKeepToTheRoom(t *testing.T) {
	const steps, size = 400, 1000
	synctest.Test(t, func(t *testing.T) {
		store := &stepWatch{Store: memstore.New(), all: make(chan struct{})}
		engine, err := idem.New(store, nil)
		require.NoError(t, err)
		_, err = idem.Do(t.Context(), engine, safe.Key("t", "k"), "in", func(ctx context.Context, _ string) (string, error) {
			var done sync.WaitGroup
			for n := range steps {
				done.Go(func() {
					_, err := idem.Step(ctx, fmt.Sprint("step-", n), func(context.Context) (string, error) { return strings.Repeat("x", size), nil }, nil)
					if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			close(store.all)
			done.Wait()
			return "", nil
		})
		require.NoError(t, err)
		require.Equal(t, steps, store.writes)
		require.Greater(t, store.inline, 32<<10)
		require.LessOrEqual(t, store.inline, 64<<10, "else the record is too large for what ends it")
	})
}

// stepWatch is a store that adds up what the record is to keep of steps' results.
type stepWatch struct {
	idem.Store
	all chan struct{}

	mu             sync.Mutex
	writes, inline int
}

func (s *stepWatch) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	<-s.all
	s.mu.Lock()
	s.writes++
	if !w.InParts {
		s.inline += len(w.Result) - 128 // so much it keeps of every one
	}
	s.mu.Unlock()
	return s.Store.RecordStep(ctx, now, w)
}

// Errors that are steps' outcomes are cut where there is room for no more.
func TestErrorsOfStepsDoNotFillTheRecord(t *testing.T) {
	r := newRig(t, nil)
	key := safe.Key("t", "k")
	taken := 0
	_, err := doSteps(t, r, key, func(ctx context.Context) (string, error) {
		for n := 0; ; n++ {
			_, err := idem.Step(ctx, fmt.Sprintf("step-%d", n), func(context.Context) (int, error) {
				return 0, idem.Permanent(fmt.Errorf("%s: %w", strings.Repeat("x", 1<<20), declinedError{}))
			}, nil)
			if _, full := err.(*idem.StepLimitError); full {
				break
			}
		}
		for name, s := range r.record(t, key).Steps {
			taken += 192 + len(name) + len(s.Failure.Message) + len(s.Failure.Type) + len(s.Failure.Code)
		}
		return "", nil
	})
	require.NoError(t, err)
	require.Greater(t, taken, protocol.StepRoom*9/10)
	require.LessOrEqual(t, taken, protocol.StepRoom)
}
