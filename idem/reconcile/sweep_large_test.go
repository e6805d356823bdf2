package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
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
