package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// segments is a table, of whose segments each has so many pages of 250 items.
type segments struct {
	pages int
	asked []protocol.ExpiredQuery
	err   error
}

func (s *segments) RemoveExpired(_ context.Context, q protocol.ExpiredQuery) (protocol.ExpiredPage, error) {
	time.Sleep(100 * time.Millisecond)
	s.asked = append(s.asked, q)
	page := protocol.ExpiredPage{Looked: 250, Removed: 2, Next: q.Page + "."}
	if len(page.Next) == s.pages {
		page.Next = ""
	}
	return page, s.err
}

func TestASweepRemovesWhatHasExpired(t *testing.T) {
	for name, tc := range map[string]struct {
		table    segments
		dry      bool
		asked    int
		problems int
		failed   bool
	}{
		"a small segment": {segments{pages: 3}, false, 3, 0, false},
		"a large segment": {segments{pages: 100}, false, 20, 1, false},
		"an error":        {segments{pages: 3, err: errPlain}, false, 1, 1, true},
		"a dry run":       {segments{pages: 3}, true, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.sweeper(reconcile.SweepOptions{Expired: &tc.table, ExpireSegments: 7, DryRun: tc.dry})
				report, err := s.Sweep(t.Context())
				require.Equal(t, tc.failed, err != nil)
				require.Len(t, tc.table.asked, tc.asked)
				require.Len(t, report.Problems, tc.problems)
				require.Equal(t, 2*tc.asked, report.Expired)
				for _, q := range tc.table.asked {
					require.Equal(t, []any{7, tc.table.asked[0].Segment}, []any{q.Segments, q.Segment})
					require.GreaterOrEqual(t, r.Clock.Now().Sub(q.Before), 24*time.Hour+idem.DefaultMargin)
				}
			})
		})
	}
}

// All segments have their turn, and what is due comes first.
func TestRemovingTakesTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, table := newRig(t), &segments{pages: 1}
		s := r.sweeper(reconcile.SweepOptions{Expired: table, ExpireSegments: 4})
		seen := map[int]bool{}
		for range 100 {
			_, err := s.Sweep(t.Context())
			require.NoError(t, err)
			seen[table.asked[len(table.asked)-1].Segment] = true
		}
		require.Len(t, seen, 4)

		table.pages, table.asked = 1000, nil
		ctx, cancel := context.WithTimeout(t.Context(), 2100*time.Millisecond)
		defer cancel()
		report, err := s.Sweep(ctx)
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		require.Empty(t, report.Problems)
		require.Len(t, table.asked, 16, "a quarter of the time is for the last writes")
	})
}
