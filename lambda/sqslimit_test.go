package idemlambda

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/limit"
)

// A message over the limit is returned to its queue unrun and unrecorded, until the next window: only
// the queue counts its receives.
func TestSQSMessageOverTheLimitIsReturnedUnrecorded(t *testing.T) {
	op := fulfil
	op.MaxAttempts = 1
	var seen told
	store := memory()
	limited, err := limit.Over(store, map[string]limit.PerTenant{op.Name: {Keys: 1, Window: time.Minute}})
	require.NoError(t, err)
	now := time.Date(2030, 1, 2, 3, 4, 15, 0, time.UTC)
	e, err := idem.New(limited, &idem.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	ran := 0
	h := SQS(e, op, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, func(context.Context, order) error {
		ran++
		return nil
	})
	send := func(id, key string) []string {
		t.Helper()
		res, err := h(t.Context(), batchOf(messageOf(id, key, `{"id":"`+id+`"}`)))
		require.NoError(t, err)
		return named(res)
	}
	require.Empty(t, send("m1", "k1"))
	for range 3 {
		require.Equal(t, []string{"m2"}, send("m2", "k2"))
		out := seen.outcomes["m2"]
		require.Equal(t, ReasonLimitExceeded, out.Reason)
		require.ErrorIs(t, out.Err, idem.ErrLimitExceeded)
		require.Zero(t, out.Attempt)
		require.WithinDuration(t, time.Now().Add(45*time.Second), out.LeaseUntil, 30*time.Second)
		require.Len(t, store.Records(), 1)
		require.Empty(t, send("m1", "k1"), "a duplicate has its answer")
	}
	require.Equal(t, 1, ran)
	now = now.Add(45 * time.Second)
	require.Empty(t, send("m2", "k2"))
	require.Equal(t, 1, seen.outcomes["m2"].Attempt)
	require.Equal(t, 2, ran)
}
