package console_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// rates are the counts of an operation on the overview: opened, settled and escalated,
// each of the last hour and day.
func (r *rig) rates(operation string) string {
	r.t.Helper()
	_, table, found := strings.Cut(r.get("/ops/").text, `<h2 id="rates">`)
	require.True(r.t, found)
	table, _, _ = strings.Cut(table, "</table>")
	for row := range strings.SplitSeq(table, "<tr>") {
		if strings.Contains(row, ">"+operation+"</th>") {
			cells := regexp.MustCompile(`<td[^>]*>(.*?)</td>`).FindAllStringSubmatch(row, -1)
			var all []string
			for _, c := range cells {
				all = append(all, regexp.MustCompile(`<[^>]*>`).ReplaceAllString(c[1], ""))
			}
			return strings.Join(all, ", ")
		}
	}
	return "none"
}

func TestTheOverviewCountsWhatOpenedAndWasSettled(t *testing.T) {
	r := newRig(t, console.Options{})
	order := idem.Operation{Name: "order"}
	settle := func(key idem.Key, to idem.State, again bool) {
		t.Helper()
		by := reconcile.Change{Actor: "bob", Reason: "the provider says so", IfWrite: r.Record(key).Write}
		require.NoError(t, r.r.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: to, Replace: again}, by))
	}
	key := func(n int) idem.Key { return refund.Key("acme", fmt.Sprint(n)) }
	r.end(key(0), nil, errCut)
	r.lapse()
	settle(key(0), idem.Completed, false)
	r.Clock.Advance(25 * time.Hour) // out of sight
	for n := 1; n <= 3; n++ {
		r.end(key(n), nil, errCut)
	}
	r.lapse()
	settle(key(1), idem.Completed, false)
	settle(key(1), idem.Completed, true) // one question is settled once
	r.Clock.Advance(2 * time.Hour)
	sweeper, err := reconcile.NewSweeper(r.r, nil)
	require.NoError(t, err)
	_, err = sweeper.Sweep(t.Context())
	require.NoError(t, err)
	settle(key(2), idem.Released, false)
	r.end(order.Key("acme", "o"), nil, errCut)
	require.Equal(t, "0, 1, 1, 2, 2, 2", r.rates("refund"))
	require.Equal(t, "1, 1, 0, 0, 0, 0", r.rates("order"))
}

// crowded has more changes of a day than a page holds.
type crowded struct{ reconcile.Store }

func (s crowded) AuditBetween(ctx context.Context, shard int, from, to time.Time, page string) (protocol.AuditPage, error) {
	p, err := s.Store.AuditBetween(ctx, shard, from, to, page)
	if to.Sub(from) > 2*time.Hour && len(p.Entries) > 0 {
		p.Next = "more"
	}
	return p, err
}

func TestTheOverviewSaysWhatItHasNotCounted(t *testing.T) {
	r := newRig(t, console.Options{})
	require.NotContains(t, r.get("/ops/").text, `<h2 id="rates">`, "there is nothing to count")
	id := r.end(refund.Key("acme", "r-1"), nil, errCut)
	r.lapse()
	require.NoError(t, r.r.Resolve(t.Context(), id, reconcile.Resolution{To: idem.Completed}, reconcile.Change{Actor: "bob", Reason: "the provider says so"}))
	require.Equal(t, "0, 0, 1, 1, 0, 0", r.rates("refund"))
	var err error
	r.r, err = reconcile.New(crowded{r.Faults}, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(t, err)
	r.h, err = console.New(r.r, &console.Options{Who: console.ThisMachine, Prefix: "/ops", Now: r.Clock.Now})
	require.NoError(t, err)
	require.Regexp(t, `^0, 0, 1, \d or more, 0, 0 or more$`, r.rates("refund"))
}
