package reconcile_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// list reads all pages.
func (r *rig) list(f reconcile.Filter) (values []string, pages int) {
	r.t.Helper()
	rc := r.reconciler()
	for page := ""; ; {
		l, err := rc.List(r.t.Context(), f, page)
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
	r := newRig(t)
	refund := idem.Operation{Name: "refund", KeepValue: true}
	payout := idem.Operation{Name: "payout", KeepValue: true}
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
	r.end(payout.Key(idem.NoTenant, "p-3"), errPlain)
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
		"given up":  {reconcile.Filter{GivenUp: true}, nil},
	} {
		values, _ := r.list(c.f)
		require.Equal(t, c.want, values, name)
	}
	r.lapse()
	r.lapse()
	for range 3 { // those that were due at once are left to people when they are old enough
		r.Clock.Advance(reconcile.DefaultGiveUpAfter)
		r.sweep(r.sweeper(reconcile.SweepOptions{}))
	}
	values, _ = r.list(reconcile.Filter{GivenUp: true})
	require.Len(t, values, 104)
}

func TestAListNamesWhatItCannotRead(t *testing.T) {
	r := newRig(t)
	r.end(refund.Key("acme", "r-1"), errPlain)
	r.Faults.Next(idemtest.Get, idemtest.Unreadable)
	l, err := r.reconciler().List(t.Context(), reconcile.Filter{}, "")
	require.NoError(t, err)
	require.Equal(t, []string{refund.Key("acme", "r-1").ID()}, l.Unreadable)
	require.Empty(t, l.Records)
}

func TestMistakesOfAList(t *testing.T) {
	rc := newRig(t).reconciler()
	for _, page := range []string{"x", "1", "16 ", "-1 ", "0 nothing"} {
		_, err := rc.List(t.Context(), reconcile.Filter{}, page)
		require.ErrorContains(t, err, "pass what the page before returned as Next", page)
	}
	_, err := rc.List(t.Context(), reconcile.Filter{Limit: -1}, "")
	require.ErrorContains(t, err, "Limit is -1")
}
