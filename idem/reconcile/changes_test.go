package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// inPages is a store whose pages of changes have at most so many.
type inPages struct {
	reconcile.Store
	limit int
}

func (s inPages) AuditBetween(ctx context.Context, shard int, from, to time.Time, page string) (protocol.AuditPage, error) {
	p, err := s.Store.AuditBetween(ctx, shard, from, to, "")
	if err != nil {
		return p, err
	}
	at, _ := strconv.Atoi(page)
	end := min(at+s.limit, len(p.Entries))
	if p.Entries = p.Entries[at:end]; len(p.Entries) == s.limit {
		p.Next = strconv.Itoa(end) // perhaps of an empty page, as DynamoDB's may be
	}
	return p, nil
}

func TestChangesOfAllRecordsInTheOrderOfTime(t *testing.T) {
	r := newRig(t)
	rc := r.reconciler()
	random := rand.New(rand.NewPCG(1, 1))
	from := r.Clock.Now()
	want := map[string]bool{}
	for i := range 300 {
		if random.IntN(3) == 0 { // else in the same millisecond
			r.Clock.Advance(time.Duration(1+random.IntN(3)) * time.Millisecond)
		}
		key := refund.Key("acme", fmt.Sprint("r-", i))
		r.end(key, nil)
		require.NoError(t, rc.Forget(t.Context(), key.ID(), alice))
		want[key.ID()] = true
	}
	to := r.Clock.Now().Add(time.Millisecond)
	for _, limit := range []int{1, 2, 7, 1000} {
		paged, err := reconcile.New(inPages{r.Faults, limit}, &reconcile.Options{Now: r.Clock.Now})
		require.NoError(t, err)
		got, pages := map[string]bool{}, 0
		var last protocol.Audit
		for page := ""; pages == 0 || page != ""; pages++ {
			p, err := paged.Changes(t.Context(), from, to, page)
			require.NoError(t, err)
			for i, a := range p.Entries {
				require.False(t, got[a.ID], "twice: %s", a.ID)
				require.False(t, a.At.Before(last.At), "later changes come later, on every page")
				require.False(t, i > 0 && a.At.Equal(last.At) && a.ID < last.ID)
				require.False(t, i == 0 && a.At.Equal(last.At), "one millisecond is on one page")
				got[a.ID], last = true, a
			}
			require.True(t, p.Next == "" || p.Next > page, "it goes on")
			page = p.Next
		}
		require.True(t, maps.Equal(want, got), "%d of %d", len(got), len(want))
		require.Equal(t, limit == 1000, pages == 1, "%d pages", pages)
	}
	for name, span := range map[string][2]time.Time{"before": {from.Add(-time.Hour), from}, "after": {to, to.Add(time.Hour)}, "no time": {to, from}} {
		p, err := rc.Changes(t.Context(), span[0], span[1], "")
		require.NoError(t, err)
		require.Empty(t, p, name)
	}
}

func TestChangesThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	rc := r.reconciler()
	_, err := rc.Changes(t.Context(), r.Clock.Now(), r.Clock.Now(), "x")
	require.ErrorContains(t, err, "pass what the page before returned as Next")
	r.Faults.Next(idemtest.AuditBetween, idemtest.Refuse)
	_, err = rc.Changes(t.Context(), r.Clock.Now(), r.Clock.Now().Add(time.Hour), "")
	require.ErrorContains(t, err, "refused")
}
