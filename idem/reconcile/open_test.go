package reconcile_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// What still runs is no open question, and what has ended neither.
func TestOpenQuestionsAreCountedByOperation(t *testing.T) {
	h := idemtest.New(t, nil)
	now := h.Clock.Now().Truncate(time.Millisecond)
	put := func(operation, value string, state idem.State, age time.Duration) {
		rec := idem.Record{
			ID: (idem.Operation{Name: operation}).Key("acme", value).ID(), State: state, Owner: "o", Write: "w", Attempt: 1,
			LeaseUntil: now.Add(-age), OpenSince: now.Add(-age), Due: now.Add(time.Hour),
		}
		if state == idem.InProgress {
			rec.OpenSince = time.Time{}
		}
		require.NoError(t, h.Store.Acquire(t.Context(), now, protocol.Claim{Record: rec}))
	}
	put("refund", "1", idem.Unknown, 10*time.Minute)
	put("refund", "2", idem.Unknown, 40*time.Minute)
	put("refund", "lapsed", idem.InProgress, 20*time.Minute)
	put("refund", "runs", idem.InProgress, -time.Minute)
	put("refund", "within the margin", idem.InProgress, time.Second)
	put("charge", "1", idem.Released, time.Minute)
	put("other", "runs", idem.InProgress, -time.Minute)
	r, err := reconcile.New(h.Faults, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	open, err := r.OpenQuestions(t.Context())
	require.NoError(t, err)
	says := map[string]map[string]int{}
	for _, o := range open {
		says[o.Operation] = maps.Collect(o.Counts())
	}
	require.Equal(t, map[string]map[string]int{
		"": {"open": 4, "oldest_open": 2400}, "refund": {"open": 3, "oldest_open": 2400}, "charge": {"open": 1, "oldest_open": 60},
	}, says)
	require.Empty(t, open[0].Operation, "all together come first")
}

// An error says that there may be more, and costs nothing of what was counted.
func TestOpenQuestionsThatCannotAllBeRead(t *testing.T) {
	h := idemtest.New(t, nil)
	h.Faults.Always(idemtest.Refuse, idemtest.Due)
	r, err := reconcile.New(h.Faults, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	open, err := r.OpenQuestions(t.Context())
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Len(t, open, 1)
	require.Zero(t, open[0].Count)
	require.Zero(t, open[0].Oldest)
}
