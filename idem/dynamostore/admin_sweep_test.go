package dynamostore

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// watched makes a claim of an operation that is not repeatable.
func (f *fixture) watched(t *testing.T, id string, due time.Time) {
	t.Helper()
	c := claim(id, "o")
	c.Record.Repeat, c.Record.ExpiresAt, c.Record.Due = protocol.NotRepeatable, time.Time{}, due
	require.NoError(t, f.Acquire(t.Context(), base, c))
}

// What throttles one shard of the index, or one record, does not keep a sweep from all
// others. The sweep has a deadline, as in a function.
func TestASweepPassesByWhatIsThrottled(t *testing.T) {
	for name, hit := range map[string]func(op, body string) bool{
		"a shard": func(op, body string) bool {
			return op == "Query" && strings.Contains(body, strconv.Quote(claimShard("t#refund#3")))
		},
		"a record": func(op, body string) bool { return op == "GetItem" && strings.Contains(body, "t#refund#3") },
		"a record's writes": func(op, body string) bool {
			return op == "TransactWriteItems" && strings.Contains(body, "t#refund#3")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, nil)
			for i := range 8 {
				f.watched(t, "t#refund#"+strconv.Itoa(i), base.Add(30*time.Second))
			}
			q := must(NewAdminStore(f.clientAs(asOperator), f.table, nil))
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if hit(op, bodyOf(t, req)) {
					return answer(400, throttled), nil
				}
				return nil, nil
			})
			r := must(reconcile.New(q, &reconcile.Options{Now: func() time.Time { return base.Add(time.Minute) }}))
			s := must(reconcile.NewSweeper(r, &reconcile.SweepOptions{Concurrency: 1, Log: slog.New(slog.DiscardHandler)}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			report, err := s.Sweep(ctx) // it reports what it could not do
			f.wire.set(nil)
			for i := range 8 {
				id := "t#refund#" + strconv.Itoa(i)
				if claimShard(id) != claimShard("t#refund#3") {
					require.Equal(t, protocol.Unknown, f.get(t, id).State, "%s: %+v, %v", id, report, err)
				}
			}
		})
	}
}

// On DynamoDB too a watched claim is in the index while its handler runs, and not after.
func TestWatchedClaimsAreInTheIndex(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	engine := must(idem.New(q, &unhurried))
	for n, tc := range []struct {
		op      idem.Operation
		watched bool
	}{
		{idem.Operation{Name: "refund"}, true},
		{idem.Operation{Name: "refund", Watch: idem.WatchNever}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable}, false},
		{idem.Operation{Name: "webhook", Repeat: idem.Repeatable, Watch: idem.WatchAlways}, true},
	} {
		t.Run(fmt.Sprint(tc.op.Name, tc.op.Watch), func(t *testing.T) {
			key := tc.op.Key("t", fmt.Sprint(n))
			due := func() []string { return dueOf(t, q) }
			_, err := idem.Do(t.Context(), engine, key, 1, func(context.Context, int) (int, error) {
				it := f.raw(t, key.ID())
				_, expires := it[schema.ExpiresAt]
				if tc.watched {
					require.Equal(t, []string{key.ID()}, due())
					require.False(t, expires)
				} else {
					require.Empty(t, due())
					require.Equal(t, tc.op.Repeat == idem.Repeatable, expires)
				}
				return 1, nil
			})
			require.NoError(t, err)
			require.Empty(t, due())
		})
	}
}

// dueOf lists what is in the index.
func dueOf(t *testing.T, q *AdminStore) (ids []string) {
	for shard := range protocol.Shards {
		p, err := q.Due(t.Context(), protocol.DueQuery{Shard: shard, Until: time.Now().Add(24 * time.Hour), Limit: 100})
		require.NoError(t, err)
		ids = append(ids, p.IDs...)
	}
	return ids
}
