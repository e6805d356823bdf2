package idemlambda

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// A poison message runs as often as its operation may, and no more: every later delivery
// of it, a redrive from the dead-letter queue among them, goes back unrun, as one whose
// outcome nobody knows. The messages beside it are not held up.
func TestSQSPoisonMessageRunsAsOftenAsItMay(t *testing.T) {
	for _, do := range []string{"fail", "panic"} {
		t.Run(do, func(t *testing.T) {
			op := fulfil
			op.MaxAttempts = 3
			var told told
			var mu sync.Mutex // a batch's messages run concurrently
			runs := map[string]int{}
			h := SQS(newEngine(t, memory()), op, byAttribute, &SQSOptions{OnOutcome: told.hook, Logger: quiet},
				func(ctx context.Context, o order) error {
					mu.Lock()
					runs[o.ID]++
					mu.Unlock()
					return work(ctx, o)
				})
			body := `{"id":"poison","do":"` + do + `"}`
			deliver := func(id string) Reason {
				res, err := h(t.Context(), batchOf(messageOf(id, "k1", body), messageOf("beside-"+id, "beside-"+id, `{"id":"good"}`)))
				require.NoError(t, err)
				require.Equal(t, []string{id}, named(res), "it goes back, also once it is parked: a dead-letter queue must get it")
				return told.outcomes[id].Reason
			}
			for range 2 {
				require.NotEqual(t, ReasonUnknown, deliver("m1"))
			}
			last := deliver("m1")
			if do == "fail" {
				require.Equal(t, ReasonUnknown, last, "the last attempt says itself that it was the last")
			}
			require.Equal(t, ReasonUnknown, deliver("m1"))
			require.ErrorIs(t, told.outcomes["m1"].Err, idem.ErrOutcomeUnknown)
			require.Equal(t, ReasonUnknown, deliver("m1-redriven"))
			require.Equal(t, map[string]int{"poison": 3, "good": 2}, runs, "the good ones are replayed")
		})
	}
}
