package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// list reads all pages.
func (r *rig) list(f reconcile.Filter) (values []string, pages int) {
	r.t.Helper()
	for page := ""; ; {
		l, err := r.List(r.t.Context(), f, page)
		require.NoError(r.t, err)
		if f.Limit > 0 {
			require.LessOrEqual(r.t, len(l.Records), f.Limit)
		}
		for _, rec := range l.Records {
			values = append(values, rec.Value)
		}
		pages++
		if page = l.Next; page == "" {
			slices.Sort(values)
			return values, pages
		}
	}
}

func TestAListHasWhatIsOpenPageByPage(t *testing.T) {
	r := newRig(t, refund)
	refund := idem.Operation{Name: "refund", Values: idem.KeepValues}
	payout := idem.Operation{Name: "payout", Values: idem.KeepValues}
	var all []string
	for i := range 100 {
		value := fmt.Sprintf("r-%03d", i)
		r.end(refund.Key("acme", value), errPlain)
		all = append(all, value)
	}
	r.end(refund.Key("acme", "done"), nil)
	values, pages := r.list(reconcile.Filter{Limit: 7})
	require.Equal(t, all, values)
	require.GreaterOrEqual(t, pages, 100/7)
	require.LessOrEqual(t, pages, 100/7+2)

	since := r.Clock.Now()
	r.lapse()
	r.end(payout.Key("acme", "p-1"), errPlain)
	r.end(payout.Key("globex", "p-2"), errPlain)
	r.end(payout.Key(idem.SingleTenant, "p-3"), errPlain)
	r.killed(payout.Key("acme", "p-4"))
	for name, c := range map[string]struct {
		f    reconcile.Filter
		want []string
	}{
		"operation": {reconcile.Filter{Operations: []string{"payout"}}, []string{"p-1", "p-2", "p-3", "p-4"}},
		"tenant":    {reconcile.Filter{Operations: []string{"payout"}, Tenants: []string{"globex"}}, []string{"p-2"}},
		"no tenant": {reconcile.Filter{Tenants: []string{""}}, []string{"p-3"}},
		"state":     {reconcile.Filter{States: []idem.State{idem.InProgress}}, []string{"p-4"}},
		"age":       {reconcile.Filter{Before: since}, all},
		"escalated": {reconcile.Filter{Escalated: true}, nil},
	} {
		values, _ := r.list(c.f)
		require.Equal(t, c.want, values, name)
	}
	r.lapse()
	r.lapse()
	for range 3 { // those that were due at once are escalated when they are old enough
		r.Clock.Advance(reconcile.DefaultEscalateAfter)
		r.report(r.sweeper(reconcile.SweepOptions{}))
	}
	values, _ = r.list(reconcile.Filter{Escalated: true})
	require.Len(t, values, 104)
}

// A filter finds all that a tenant has, ended or not; what is open must be settled first.
func TestAllOfATenantIsForgotten(t *testing.T) {
	r := newRig(t, refund)
	for i := range 30 {
		r.end(refund.Key([]string{"acme", "globex", "acme"}[i%3], fmt.Sprint(i)), nil)
	}
	ended := r.Clock.Now()
	r.Clock.Advance(time.Second)
	r.end(refund.Key("acme", "open"), errPlain)
	all := reconcile.Filter{Tenants: []string{"acme"}}
	old := reconcile.Filter{Tenants: []string{"acme"}, Before: ended, States: []idem.State{idem.Completed}}
	found, settled := 0, 0
	for _, rec := range r.Store.Records() {
		if !all.Matches(rec) {
			continue
		}
		found++
		by := alice
		by.IfWrite = rec.Write
		err := r.Forget(t.Context(), rec.ID, by)
		if !old.Matches(rec) {
			require.ErrorIs(t, err, reconcile.ErrOpen)
			continue
		}
		require.NoError(t, err)
		settled++
	}
	require.Equal(t, []int{21, 20}, []int{found, settled})
	require.Len(t, r.Store.Records(), 11)
	r.Faults.Next(idemtest.Scan, idemtest.Refuse)
	_, err := r.Faults.Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.Error(t, err)
	_, err = idemtest.NewFaults(bare{r.Faults}).Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// bare is a store that keeps no questions and lists no records.
type bare struct{ protocol.Store }

func TestWhatAListCannotRead(t *testing.T) {
	r := newRig(t, refund)
	r.end(r.key, errPlain)
	r.Faults.Next(idemtest.Get, idemtest.Unreadable)
	l, err := r.List(t.Context(), reconcile.Filter{}, "")
	require.NoError(t, err)
	require.Equal(t, []string{r.key.ID()}, l.Unreadable)
	require.Empty(t, l.Records)
	for _, page := range []string{"x", "1", "64 ", "-1 ", "0 nothing"} {
		_, err := r.List(t.Context(), reconcile.Filter{}, page)
		require.ErrorContains(t, err, "pass what the page before returned as Next", page)
	}
	_, err = r.List(t.Context(), reconcile.Filter{Limit: -1}, "")
	require.ErrorContains(t, err, "Limit is -1")
	_, err = r.Changes(t.Context(), r.Clock.Now(), r.Clock.Now(), "x")
	require.ErrorContains(t, err, "pass what the page before returned as Next")
	r.Faults.Next(idemtest.AuditBetween, idemtest.Refuse)
	_, err = r.Changes(t.Context(), r.Clock.Now(), r.Clock.Now().Add(time.Hour), "")
	require.ErrorContains(t, err, "refused")
}

// A filter that lets few keys through costs a query for a thousand entries, whatever the limit.
func TestAListOfFewAmongManyReadsTheIndexInLargePages(t *testing.T) {
	r := newRig(t, refund)
	for i := range 200 {
		r.end(refund.Key("acme", fmt.Sprint("r-", i)), errPlain)
	}
	one := webhook.Key("acme", "w-1")
	r.killed(one)
	r.Faults.Reset()
	l, err := r.List(t.Context(), reconcile.Filter{Operations: []string{"webhook"}, Limit: 1}, "")
	require.NoError(t, err)
	require.Len(t, l.Records, 1)
	require.Equal(t, one.ID(), l.Records[0].ID)
	require.LessOrEqual(t, r.called(idemtest.Due), protocol.Shards)

	// Among many that it lets through, it has the limit.
	l, err = r.List(t.Context(), reconcile.Filter{Operations: []string{"refund"}, Limit: 3}, "")
	require.NoError(t, err)
	require.Len(t, l.Records, 3)
}

// Most shards are empty: a list does not wait for one after the other, and its order is theirs.
func TestAListReadsShardsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(10 * time.Millisecond)
			return c.Do(ctx)
		}, idemtest.Due)
		began := time.Now()
		l, err := r.List(t.Context(), reconcile.Filter{}, "")
		require.NoError(t, err)
		require.Empty(t, l.Records)
		require.LessOrEqual(t, time.Since(began), 80*time.Millisecond)

		now := r.Clock.Now().Truncate(time.Millisecond)
		for n := range 200 {
			r.put(now, question(refund.Key("acme", fmt.Sprint(n)).ID(), now.Add(time.Duration(n)*time.Second)))
		}
		all, err := r.List(t.Context(), reconcile.Filter{Limit: 1000}, "")
		require.NoError(t, err)
		require.Len(t, all.Records, 200)
		for i, rec := range all.Records[1:] {
			before := all.Records[i]
			if a, b := shardOf(t, before.ID), shardOf(t, rec.ID); a == b {
				require.False(t, rec.Due.Before(before.Due))
			} else {
				require.Less(t, a, b)
			}
		}
		var paged []*idem.Record
		for page := ""; ; {
			l, err := r.List(t.Context(), reconcile.Filter{Limit: 7}, page)
			require.NoError(t, err)
			require.LessOrEqual(t, len(l.Records), 7)
			paged = append(paged, l.Records...)
			if page = l.Next; page == "" {
				break
			}
		}
		require.Equal(t, all.Records, paged)
	})
}

// inPages is a store whose pages of changes have at most so many.
type inPages struct {
	reconcile.Store
	limit int
}

func (s inPages) AuditBetween(ctx context.Context, shard int, from, to time.Time,
	page string) (protocol.AuditPage, error) {
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
	r := newRig(t, refund)
	random := rand.New(rand.NewPCG(1, 1))
	from := r.Clock.Now()
	want := map[string]bool{}
	for i := range 300 {
		if random.IntN(3) == 0 { // else in the same millisecond
			r.Clock.Advance(time.Duration(1+random.IntN(3)) * time.Millisecond)
		}
		key := refund.Key("acme", fmt.Sprint("r-", i))
		r.end(key, nil)
		require.NoError(t, r.Forget(t.Context(), key.ID(), alice))
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
	for name, span := range map[string][2]time.Time{"before": {from.Add(-time.Hour), from},
		"after": {to, to.Add(time.Hour)}, "no time": {to, from}} {
		p, err := r.Changes(t.Context(), span[0], span[1], "")
		require.NoError(t, err)
		require.Empty(t, p, name)
	}
}
