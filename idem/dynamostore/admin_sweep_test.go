package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
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

// A sweep on DynamoDB: what it calls, that it reads only what is due, and that what was
// escalated is listed no more.
func TestSweepOnDynamoDB(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	leaseEnd := base.Add(30 * time.Second)
	f.watched(t, "t#refund#completed", leaseEnd)
	f.watched(t, "t#refund#unknown", leaseEnd)
	f.watched(t, "t#refund#running", base.Add(time.Hour))
	r := must(reconcile.New(q, &reconcile.Options{Now: func() time.Time { return base.Add(time.Minute) }}))
	var people []string
	op := reconcile.Operation{Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		if q.ID == "t#refund#completed" {
			return reconcile.CompletedWith("receipt").WithRef("ch_1"), nil
		}
		return reconcile.CannotBeKnown("it keeps a day"), nil
	}}
	op.Operation.Name = "refund"
	s := must(reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{op}, Concurrency: 1, Log: slog.New(slog.DiscardHandler),
		Escalate: func(_ context.Context, g reconcile.Escalation) error { people = append(people, g.Record); return nil },
	}))
	f.wire.set(nil)
	report, err := s.Sweep(t.Context())
	require.NoError(t, err)
	report.Actions = nil
	require.Equal(t, reconcile.Report{Listed: 2, Parked: 2, Resolved: 1, Escalated: 1}, report)
	require.Equal(t, map[string]int{
		"Query": protocol.Shards, "GetItem": 2, // one each
		"TransactWriteItems": 4, // two parked, one resolved, one escalated: each with its entry
		"UpdateItem":         3, // two claimed for the probe, one locked for people
	}, tally(f.wire.calls()))
	require.Equal(t, []string{"t#refund#unknown"}, people)
	require.Equal(t, protocol.Completed, f.get(t, "t#refund#completed").State)
	require.Equal(t, base.Add(time.Minute), f.get(t, "t#refund#unknown").EscalatedAt)

	report, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Listed)
	history, err := r.History(t.Context(), "t#refund#unknown")
	require.NoError(t, err)
	require.Len(t, history, 2)
}

// What throttles one shard of the index, or one record, does not keep a sweep from all
// others. The sweep has a deadline, as in a function.
func TestASweepPassesByWhatIsThrottled(t *testing.T) {
	for name, hit := range map[string]func(op, body string) bool{
		"a shard": func(op, body string) bool {
			return op == "Query" && strings.Contains(body, strconv.Quote(shard("t#refund#3")))
		},
		"a record": func(op, body string) bool {
			return op == "GetItem" && strings.Contains(body, "t#refund#3")
		},
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
			s := must(reconcile.NewSweeper(r,
				&reconcile.SweepOptions{Concurrency: 1, Log: slog.New(slog.DiscardHandler)}))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, _ = s.Sweep(ctx) // it reports what it could not do
			f.wire.set(nil)
			for i := range 8 {
				id := "t#refund#" + strconv.Itoa(i)
				if shard(id) != shard("t#refund#3") {
					require.Equal(t, protocol.Unknown, f.get(t, id).State, id)
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

// A claim that an at-most-once step has watched leaves the index with its end, whatever a
// sweep has written in between, and whether or not the begin mark was answered.
func TestAClaimThatABeginMarkWatchesLeavesTheIndex(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	once := &idem.StepConfig[int]{Semantics: idem.AtMostOnce}
	for name, end := range map[string]error{"completed": nil, "failed": idem.Permanent(errors.New("declined"))} {
		for _, lost := range []bool{false, true} {
			faults := idemtest.NewFaults(q)
			engine := must(idem.New(faults, &unhurried))
			key := op.Key("t", fmt.Sprint(name, lost))
			call := func() error {
				_, err := idem.Do(t.Context(), engine, key, 1, func(ctx context.Context, _ int) (int, error) {
					_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) {
						require.Equal(t, []string{key.ID()}, dueOf(t, q))
						rec := f.get(t, key.ID())
						return 1, q.Postpone(ctx, time.Now(), protocol.Postponement{
							ID: rec.ID, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: "sweep " + name,
							Due: time.Now().Add(time.Hour), Probes: 2,
						})
					}, once)
					if err != nil {
						return 0, err
					}
					return 1, end
				})
				return err
			}
			if lost {
				faults.Next(idemtest.RecordStep, idemtest.LoseReply)
				require.ErrorIs(t, call(), idem.ErrStoreUnavailable)
				require.Equal(t, []string{key.ID()}, dueOf(t, q), "released with steps")
			}
			require.Equal(t, end == nil, call() == nil)
			require.Empty(t, dueOf(t, q))
			it := f.raw(t, key.ID())
			for _, left := range []string{schema.OpenShard, schema.OpenDue, schema.OpenSince, schema.Sweep, schema.Probes} {
				require.NotContains(t, it, left)
			}
		}
	}
}
