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

// table has in each segment so many pages of items.
type table struct {
	pages, items int
	asked        []protocol.ExpiredQuery
	err          error
}

func (s *table) RemoveExpired(_ context.Context, q protocol.ExpiredQuery) (protocol.ExpiredPage, error) {
	time.Sleep(100 * time.Millisecond)
	s.asked = append(s.asked, q)
	page := protocol.ExpiredPage{Looked: s.items, Removed: 2, Next: q.Page + "."}
	if len(page.Next) == s.pages {
		page.Next = ""
	}
	return page, s.err
}

func TestASweepRemovesWhatHasExpired(t *testing.T) {
	for name, tc := range map[string]struct {
		table    table
		dry      bool
		asked    int
		problems int
		failed   bool
	}{
		"a small table":            {table{pages: 1}, false, 100, 0, false},
		"a table":                  {table{pages: 1, items: 100}, false, 50, 0, false},
		"a table of many segments": {table{pages: 3, items: 250}, false, 21, 0, false},
		"a large segment":          {table{pages: 150, items: 250}, false, 150, 0, false},
		"an error":                 {table{pages: 3, err: errPlain}, false, 1, 1, true},
		"a dry run":                {table{pages: 3}, true, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.sweeper(reconcile.SweepOptions{Expired: &tc.table, DryRun: tc.dry})
				report, err := s.Sweep(t.Context())
				require.Equal(t, tc.failed, err != nil)
				require.Len(t, tc.table.asked, tc.asked)
				require.Len(t, report.Problems, tc.problems)
				require.Equal(t, 2*tc.asked, report.Expired)
				for n, q := range tc.table.asked {
					first := tc.table.asked[0].Segment
					require.Equal(t, []int{8192, (first + n/tc.table.pages) % 8192}, []int{q.Segments, q.Segment})
					require.Len(t, q.Page, n%tc.table.pages)
					require.LessOrEqual(t, q.Limit, 250)
					require.GreaterOrEqual(t, r.Clock.Now().Sub(q.Before), 24*time.Hour+idem.DefaultMargin)
				}
			})
		})
	}
}

// Another sweep begins at another segment, and what is due comes first.
func TestRemovingTakesTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, table := newRig(t), &table{pages: 1, items: 5000}
		s := r.sweeper(reconcile.SweepOptions{Expired: table})
		seen := map[int]bool{}
		for range 100 {
			_, err := s.Sweep(t.Context())
			require.NoError(t, err)
			seen[table.asked[len(table.asked)-1].Segment] = true
		}
		require.Len(t, table.asked, 100)
		require.Greater(t, len(seen), 50)

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
