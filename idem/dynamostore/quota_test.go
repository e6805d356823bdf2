package dynamostore

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// overloaded is a store whose client answers each try as the function says of its number.
func overloaded(answer func(n int64) error) (*Store, *atomic.Int64) {
	tries := new(atomic.Int64)
	return faked(func(context.Context, any) (item, error) { return nil, answer(tries.Add(1)) }), tries
}

// throttledIf throttles a try.
func throttledIf(throttled bool) error {
	if throttled {
		return api("ThrottlingException")
	}
	return nil
}

func throttles(int64) error { return throttledIf(true) }

// useUp takes all retries that a throttled store has in hand, and counts the tries again.
func useUp(t *testing.T, s *Store, tries *atomic.Int64) {
	t.Helper()
	for s.retry.quota.Remaining() >= retryCost {
		isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o")), false)
	}
	tries.Store(0)
}

// usedUp is a throttled store without a retry in hand, and the tries since.
func usedUp(t *testing.T) (*Store, *atomic.Int64) {
	t.Helper()
	s, tries := overloaded(throttles)
	useUp(t, s, tries)
	return s, tries
}

// What DynamoDB answers while it works is tried again whatever others have used up: here another
// transaction has the item.
func TestRetriesOfAnswersNeedNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := false
		s, tries := overloaded(func(n int64) error {
			if busy && n < 4 {
				return api("TransactionConflictException")
			}
			return throttledIf(!busy)
		})
		useUp(t, s, tries)
		busy = true
		require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o")))
		require.EqualValues(t, 4, tries.Load())
	})
}

// Every third try is throttled, for an hour of calls: what is answered earns a fifth.
func TestLoadThatLastsGetsAFifthMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 3000
		s, tries := overloaded(func(n int64) error { return throttledIf(n%3 != 0) })
		for range calls {
			_, _ = s.Get(t.Context(), "k")
		}
		require.LessOrEqual(t, tries.Load(), int64(calls*12/10)+retries)
	})
}

// A claim or read without a retry in hand says so, and that nothing was to be had of the
// store: an operation that fails open may run.
func TestNoRetriesLeftIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := usedUp(t)
		start := time.Now()
		failed := isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o")), false)
		require.True(t, failed.Down && failed.Throttled)
		require.ErrorContains(t, failed, "no retry is left for claims and reads")
		require.ErrorContains(t, failed, "ThrottlingException")
		require.EqualValues(t, 1, tries.Load())
		require.Zero(t, time.Since(start))
		_, err := s.Get(t.Context(), "k")
		require.ErrorIs(t, err, errNoRetries)
		_, err = s.CountKey(t.Context(), "k", 10, base) // of a call under a limit
		require.ErrorIs(t, err, errNoRetries)
		_, err = s.Result(t.Context(), &protocol.Record{ID: "k", State: protocol.Completed, Owner: "o",
			Body: protocol.Body{Parts: 1, Stored: 5000, Digest: make([]byte, 32)}})
		require.ErrorIs(t, err, errNoRetries)
	})
}

// What has run, or may have landed, is written whatever others have used up.
func TestWritesOfWhatHasRunNeedNoQuota(t *testing.T) {
	for name, write := range map[string]func(context.Context, *Store) error{
		"withdrawal": func(ctx context.Context, s *Store) error {
			return s.Withdraw(ctx, base, protocol.Withdrawal{Claim: claim("k", "o"), Owner: "w", Write: "w"})
		},
		"outcome": func(ctx context.Context, s *Store) error { return s.Finish(ctx, base, completion("k", "o", nil)) },
		"step": func(ctx context.Context, s *Store) error {
			return s.RecordStep(ctx, base, protocol.StepWrite{ID: "k", Owner: "o", Write: "w", Name: "s"})
		},
		"lease": func(ctx context.Context, s *Store) error {
			return s.Extend(ctx, base, protocol.Extension{ID: "k", Owner: "o", Write: "w", LeaseUntil: base})
		},
		"read that decides": func(ctx context.Context, s *Store) error {
			_, err := s.Get(protocol.WithoutRetryQuota(ctx), "k")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, tries := usedUp(t)
				left := s.retry.quota.Remaining()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				require.NotErrorIs(t, isStoreError(t, write(ctx, s), false), errNoRetries)
				require.Greater(t, tries.Load(), int64(3))
				require.Equal(t, left, s.retry.quota.Remaining())
			})
		})
	}
}

// One bad moment of a table that works otherwise costs no call a retry for long.
func TestRetryThatSucceedsIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := overloaded(func(n int64) error { return throttledIf(n%2 == 1) })
		for range 10 * retries {
			require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o")))
		}
		require.EqualValues(t, 20*retries, tries.Load())
		require.EqualValues(t, retries*retryCost, s.retry.quota.Remaining())
	})
	// A refused condition is an answer too.
	synctest.Test(t, func(t *testing.T) {
		s, _ := scripted(api("ThrottlingException"), refusal)
		isConflict(t, s.Acquire(t.Context(), base, claim("k", "o")))
		require.EqualValues(t, retries*retryCost, s.retry.quota.Remaining())
	})
}

func TestCallsWithoutRetriesEarnSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heals := false
		s, tries := overloaded(func(int64) error { return throttledIf(!heals) })
		useUp(t, s, tries)
		heals = true
		for range retryCost {
			require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o")))
		}
		heals = false
		tries.Store(0)
		isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o")), false)
		require.EqualValues(t, 2, tries.Load())
	})
}
