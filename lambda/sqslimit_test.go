package idemlambda

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/schema"
)

// A message over the limit is returned to its queue unrun and unrecorded, until there is room: only
// the queue counts its receives.
func TestSQSMessageOverTheLimitIsReturnedUnrecorded(t *testing.T) {
	op := fulfil
	op.Limit, op.MaxAttempts = limit.PerTenant{Open: 1}, 1
	var seen told
	var h SQSHandler
	store := memory()
	h = SQS(newEngine(t, store), op, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, func(_ context.Context, o order) error {
		if o.ID != "holds" {
			return nil
		}
		for range 3 {
			res, err := h(t.Context(), batchOf(messageOf("m2", "k2", `{"id":"waits"}`)))
			require.NoError(t, err)
			require.Equal(t, []string{"m2"}, named(res))
			out := seen.outcomes["m2"]
			require.Equal(t, ReasonTooMany, out.Reason)
			require.ErrorIs(t, out.Err, idem.ErrTooMany)
			require.Zero(t, out.Attempt)
			require.WithinDuration(t, time.Now().Add(time.Second), out.LeaseUntil, time.Minute)
			require.Len(t, store.Records(), 1)
		}
		return nil
	})
	_, err := h(t.Context(), batchOf(messageOf("m1", "k1", `{"id":"holds"}`)))
	require.NoError(t, err)
	res, err := h(t.Context(), batchOf(messageOf("m2", "k2", `{"id":"waits"}`)))
	require.NoError(t, err)
	require.Empty(t, named(res))
	require.Equal(t, ReasonExecuted, seen.outcomes["m2"].Reason)
	require.Equal(t, 1, seen.outcomes["m2"].Attempt)
}

// A queue with few receives loses messages that wait for room.
func TestSQSFewReceivesAreTold(t *testing.T) {
	op := fulfil
	op.Limit = limit.PerTenant{Open: 1}
	for receives, told := range map[int]int{sqsLimitedReceives - 1: 1, sqsLimitedReceives: 0} {
		t.Setenv(schema.EnvQueueMaxReceives, strconv.Itoa(receives))
		setup, err := readSQSSetup()
		require.NoError(t, err)
		require.Len(t, setup.warnings(op, 1), told)
		require.Empty(t, setup.warnings(fulfil, 1))
	}
}
