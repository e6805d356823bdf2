package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// simulated is a store of many records that answers as late as DynamoDB does. It has what a sweep calls.
type simulated struct {
	reconcile.Store

	mu      sync.Mutex
	shards  [protocol.Shards][]string
	records map[string]*idem.Record
	queries int
}

const (
	aQuery, aRead, aWrite, aTransaction = 10 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond,
		16 * time.Millisecond
)

// simulate leaves n lapsed claims.
func simulate(n int) *simulated {
	s := &simulated{records: map[string]*idem.Record{}}
	lease := time.Now().Add(-time.Minute).UTC()
	for i := range n {
		id := refund.Key("acme", fmt.Sprint(i)).ID()
		shard := protocol.QuestionShards + i%(protocol.Shards-protocol.QuestionShards)
		s.shards[shard] = append(s.shards[shard], id)
		s.records[id] = &idem.Record{ID: id, State: idem.InProgress, Repeat: idem.NotRepeatable, Owner: "o", Write: "w",
			Attempt: 1, LeaseUntil: lease, Due: lease.Add(idem.DefaultMargin), CreatedAt: lease, UpdatedAt: lease}
	}
	return s
}

func (s *simulated) Due(ctx context.Context, q protocol.DueQuery) (p protocol.DuePage, err error) {
	time.Sleep(aQuery)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	at, _ := strconv.Atoi(q.Page)
	for ids := s.shards[q.Shard]; at < len(ids); at++ {
		if len(p.IDs) == q.Limit {
			p.Next = strconv.Itoa(at)
			break
		}
		if due := s.records[ids[at]].Due; !due.IsZero() && !due.After(q.Until) {
			p.IDs, p.Due = append(p.IDs, ids[at]), append(p.Due, due)
		}
	}
	return p, nil
}

func (s *simulated) Get(ctx context.Context, id string) (*idem.Record, error) {
	time.Sleep(aRead)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[id], nil
}

func (s *simulated) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	time.Sleep(aTransaction)
	return s.write(w.ID, now, w.Apply)
}

func (s *simulated) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	time.Sleep(aWrite)
	return s.write(p.ID, now, p.Apply)
}

func (s *simulated) write(id string, now time.Time, apply func(*idem.Record, time.Time) (*idem.Record, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := apply(s.records[id], now)
	if err == nil {
		s.records[id] = rec
	}
	return err
}

// How many claims whose processes have died one sweep of a function handles, one a minute, and what listing
// them costs. There are always more than that, and 100,000 where they cost the least. The page of the sweeper
// has the numbers.
func TestSweepsOfAHundredThousand(t *testing.T) {
	for _, tc := range []struct {
		name        string
		concurrency int
		probe       time.Duration
		lapsed      int
		least       int
	}{
		{"parked", 8, 0, 20_000, 10_000},
		{"parked, 64 at once", 64, 0, 100_000, 80_000},
		{"asked", 8, 200 * time.Millisecond, 5_000, 800},
		{"asked, 64 at once", 64, 200 * time.Millisecond, 20_000, 7_000},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			store := simulate(tc.lapsed)
			rc, err := reconcile.New(store, nil)
			require.NoError(t, err)
			op := reconcile.Operation{Operation: refund}
			if tc.probe > 0 {
				op.Probe = func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					time.Sleep(tc.probe)
					return reconcile.CompletedWithoutResult(), nil
				}
			}
			s, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{Concurrency: tc.concurrency,
				Operations: []reconcile.Operation{op}, Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second) // a function has 50, and keeps 10 for counting
			defer cancel()
			report, err := s.Sweep(ctx)
			require.NoError(t, err)
			require.Zero(t, report.Failed)
			require.Equal(t, tc.lapsed, report.Listed)
			require.LessOrEqual(t, store.queries, 500)
			done := report.Parked
			if tc.probe > 0 {
				done = report.Resolved
			}
			t.Logf("%d queries, %d parked, %d resolved: 100,000 in %d minutes", store.queries, report.Parked, report.Resolved,
				(100_000+done-1)/done)
			require.GreaterOrEqual(t, done, tc.least)
			require.Less(t, done, tc.lapsed, "it runs out of time, not of claims")
		})
	}
}

// claims is how many shards have claims.
const claims = protocol.Shards - protocol.QuestionShards

// keysOf leaves n lapsed claims in the first shard of claims, and one in each other one.
func keysOf(t *testing.T, r *rig, n int) map[int][]idem.Key {
	t.Helper()
	shards := map[int][]idem.Key{}
	for i := 0; len(shards) < claims || len(shards[protocol.QuestionShards]) < n; i += 1000 {
		var ids []string
		for j := range 1000 {
			ids = append(ids, refund.Key("acme", fmt.Sprint(i+j)).ID())
		}
		of := shardsAs(t, idem.InProgress, ids...)
		for j, id := range ids {
			shard, key := of[id], refund.Key("acme", fmt.Sprint(i+j))
			if len(shards[shard]) == 0 || shard == protocol.QuestionShards && len(shards[shard]) < n {
				r.killed(key)
				shards[shard] = append(shards[shard], key)
			}
		}
	}
	return shards
}

// shardOf is the shard of a question.
func shardOf(t *testing.T, id string) int { return shardsAs(t, idem.Unknown, id)[id] }

// shardsAs are the shards of records in the state. A store of its own tells.
func shardsAs(t *testing.T, state idem.State, ids ...string) map[string]int {
	t.Helper()
	store, now, shards := memstore.New(), time.Now(), map[string]int{}
	for _, id := range ids {
		claim := protocol.Claim{Record: protocol.Record{ID: id, State: state, Owner: "o", Write: "w", Due: now}}
		require.NoError(t, store.Acquire(t.Context(), now, claim))
	}
	for shard := range protocol.Shards {
		p, err := store.Due(t.Context(), protocol.DueQuery{Shard: shard, Until: now, Limit: len(ids)})
		require.NoError(t, err)
		for _, id := range p.IDs {
			shards[id] = shard
		}
	}
	require.Len(t, shards, len(ids))
	return shards
}

// Throttled shards fail late, one after the other. The others are read to their ends, and handled meanwhile.
func TestThrottledShardsDoNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		keysOf(t, r, 600) // three pages
		r.lapse()
		throttled := []int{20, 35, 50}
		store := &indexed{r.Faults, func(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
			if slices.Contains(throttled, q.Shard) {
				<-ctx.Done()
				return protocol.DuePage{}, &idem.StoreError{Op: "Due", Err: ctx.Err()}
			}
			return r.Faults.Due(ctx, q)
		}}
		begun, first := time.Now(), time.Duration(-1)
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if first < 0 {
				first = time.Since(begun)
			}
			return c.Do(ctx)
		}, idemtest.Get)
		s, err := reconcile.NewSweeper(r.over(store), &reconcile.SweepOptions{Concurrency: 1})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		report, err := s.Sweep(ctx)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Equal(t, 600+claims-1-len(throttled), report.Listed)
		require.False(t, report.More)
		require.LessOrEqual(t, first, time.Second, "the first record was read")
	})
}

// A shard with very much that is due takes turns with the others.
func TestAFullShardDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		shards := keysOf(t, r, 300)
		r.lapse()
		s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{Operation: refund,
			Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				time.Sleep(time.Second)
				return tookEffect, nil
			}}}})
		report := r.within(time.Minute, s)
		require.Positive(t, report.Left)
		require.Less(t, report.Resolved, 60)
		for shard, keys := range shards {
			if shard > protocol.QuestionShards {
				require.Equal(t, idem.Completed, r.Record(keys[0]).State)
			}
		}
		for report.More || report.Left > 0 {
			report = r.within(45*time.Second, s)
		}
		for _, key := range shards[protocol.QuestionShards] {
			require.Equal(t, idem.Completed, r.Record(key).State)
		}
	})
}

// Time that runs out over a slow store is reported, and the next sweep goes on.
func TestASweepStopsBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		keysOf(t, r, 30)
		r.lapse()
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(500 * time.Millisecond)
			return c.Do(ctx)
		})
		s := r.sweeper(reconcile.SweepOptions{Concurrency: 2})
		parked := 0
		for range 20 {
			report := r.within(30*time.Second, s)
			require.Zero(t, report.Failed)
			parked += report.Parked
			if !report.More && report.Left == 0 {
				break
			}
			require.Positive(t, report.Left)
		}
		require.Equal(t, 30+claims-1, parked)
	})
}

// Of more than fits into a sweep's memory the rest is left to the next one.
func TestABacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const due = 110_000
		rc, err := reconcile.New(simulate(due), nil)
		require.NoError(t, err)
		s, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{Concurrency: 256, Operations: []reconcile.Operation{
			{Operation: refund}}})
		require.NoError(t, err)
		first, err := s.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, due, first.Listed)
		require.Positive(t, first.Left)
		require.Equal(t, due, first.Parked+first.Left)
		second, err := s.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{first.Left, first.Left, 0}, []int{second.Listed, second.Parked, second.Left})
	})
}

// A provider that answers slowly does answer: no circuit opens. It is asked as many questions at once as any other
// one, and in the same sweep the others' are all served, also those that are due later.
func TestAProviderThatIsSlowTakesNoTimeOfTheOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		concurrency int
		sweep       time.Duration
	}{
		"by default":       {0, 50 * time.Second},
		"one at a time":    {1, 50 * time.Second},
		"with little time": {0, 12 * time.Second},
		"one, little time": {1, 12 * time.Second},
		"forty at a time":  {40, 12 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, refund)
			slow, sibling := refund, idem.Operation{Name: "chargeback"}
			quick, unasked := idem.Operation{Name: "transfer"}, idem.Operation{Name: "booking"}
			due := func(op idem.Operation, n int) {
				for i := range n {
					r.due(op.Key("acme", fmt.Sprint(i)))
				}
			}
			due(slow, 150)
			due(sibling, 50)
			r.Clock.Advance(time.Second)
			due(quick, 30)
			due(unasked, 30)
			r.lapse()
			var mu sync.Mutex
			running, most := 0, 0
			slowly := func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				deadline, _ := ctx.Deadline()
				left := time.Until(deadline)
				require.Equal(t, min(reconcile.DefaultProbeTimeout, tc.sweep/2), left, "never more than the sweep has")
				time.Sleep(left * 9 / 10)
				mu.Lock()
				running--
				mu.Unlock()
				return stillUnknown, nil
			}
			s := r.sweeper(reconcile.SweepOptions{Concurrency: tc.concurrency, Operations: []reconcile.Operation{
				{Operation: slow, Provider: "bank", Probe: slowly}, {Operation: sibling, Provider: "bank", Probe: slowly},
				{Operation: quick, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					time.Sleep(20 * time.Millisecond)
					return reconcile.CompletedWith(1), nil
				}},
			}})
			report := r.within(tc.sweep, s)
			for i := range 30 {
				require.Equal(t, idem.Completed, r.Record(quick.Key("acme", fmt.Sprint(i))).State)
				require.Equal(t, idem.Unknown, r.Record(unasked.Key("acme", fmt.Sprint(i))).State)
			}
			want := tc.concurrency
			if want == 0 {
				want = reconcile.DefaultConcurrency
			}
			require.Equal(t, want, most)
			require.Equal(t, 30, report.Resolved)
			require.Equal(t, 260, report.Listed)
			require.False(t, report.More)
			require.Positive(t, report.Left)
			require.Equal(t, 260, report.Resolved+report.Postponed+report.Probed+report.Left)
			require.NotContains(t, kinds(report), notice.SweepFailed)
		})
	}
}
