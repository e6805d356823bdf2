package dynamostore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// Packages that do not know each other have the same numbers.
func TestShards(t *testing.T) {
	require.Equal(t, protocol.Shards, schema.ShardCount)
	require.Equal(t, protocol.QuestionShards, schema.QuestionShards)
	require.Equal(t, protocol.AuditShards, schema.AuditShardCount)
}

// The share of the index's ceiling that operations with random keys reach without more writes to any
// shard than DynamoDB takes in a second, even if each writes its entry and removes it in one second. The page has
// the numbers.
func TestTheCeilingOfTheIndex(t *testing.T) {
	const minute = 60
	random := rand.New(rand.NewPCG(1, 2))
	for name, tc := range map[string]struct {
		ceiling int
		shard   func(id string) string
	}{
		"watched operations": {schema.MaxWatched, claimShard},
		"messages":           {schema.MaxMessages, func(id string) string { return outboxShard("", id, &outbox.Message{}) }},
	} {
		fullest := 0
		for range minute {
			writes := map[string]int{}
			for range tc.ceiling * schema.SpreadPercent / 100 {
				writes[tc.shard(fmt.Sprintf("acme#refund#%016x%016x", random.Uint64(), random.Uint64()))] += 2
			}
			for _, n := range writes {
				fullest = max(fullest, n)
			}
		}
		t.Logf("%s: %d a second if even, %d: %d writes to the fullest shard of a minute",
			name, tc.ceiling, tc.ceiling*schema.SpreadPercent/100, fullest)
		require.LessOrEqual(t, fullest, schema.ShardWrites, name)
		page, err := os.ReadFile("../../infra/README.md")
		require.NoError(t, err)
		for _, n := range []int{tc.ceiling, tc.ceiling * schema.SpreadPercent / 100} {
			require.Contains(t, string(page), fmt.Sprintf("%d,%03d", n/1000, n%1000), name)
		}
	}
}

// Records that the version before has written: its sixteen shards have claims that run too.
func TestRecordsOfSixteenShards(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	for n := range 40 {
		id := fmt.Sprint("t#refund#", n)
		c := claim(id, "o")
		c.Record.Repeat, c.Record.ExpiresAt = protocol.NotRepeatable, time.Time{}
		c.Record.LeaseUntil = base.Add(time.Duration(n%2) * time.Hour) // half of them run
		c.Record.Due = c.Record.LeaseUntil.Add(idem.DefaultMargin)
		require.NoError(t, f.Acquire(t.Context(), base, c))
		f.change(t, id, func(it item) { it[schema.OpenShard] = str(questionShard(id)) })
	}
	later := base.Add(10 * time.Minute)
	r := must(reconcile.New(q, &reconcile.Options{Now: func() time.Time { return later }}))
	list := must(r.List(t.Context(), reconcile.Filter{}, ""))
	require.Len(t, list.Records, 40)
	s := must(reconcile.NewSweeper(r, nil))
	report := must(s.Sweep(t.Context()))
	require.Equal(t, 20, report.Parked)
	require.Zero(t, report.Failed)
	require.Equal(t, 20, must(r.OpenQuestions(t.Context()))[0].Count)
	for n := range 40 {
		id := fmt.Sprint("t#refund#", n)
		it := f.raw(t, id)
		require.Equal(t, questionShard(id), text(it, schema.OpenShard))
		if n%2 == 1 {
			end := completion(id, "o", nil)
			end.Watched = true
			require.NoError(t, q.Finish(t.Context(), base, end))
		} else {
			require.NoError(t, r.Resolve(t.Context(), id, reconcile.Resolution{To: idem.Completed},
				reconcile.Change{Actor: "alice", Reason: "re_1"}))
		}
		require.NotContains(t, f.raw(t, id), schema.OpenShard)
	}
	require.Empty(t, dueOf(t, q))
}

// A claim is among the claims until it ends or a sweep postpones it, except while its lease runs.
func TestShardsOfAClaim(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	shard := func(id string) string { return text(f.raw(t, id), schema.OpenShard) }
	const id = "t#refund#1"
	f.watched(t, id, base.Add(time.Minute))
	require.Equal(t, claimShard(id), shard(id))
	p := protocol.Postponement{ID: id, Seen: f.get(t, id).Write, Sweep: "s1", Due: base.Add(time.Hour), Runs: true}
	require.NoError(t, q.Postpone(t.Context(), base, p))
	require.Equal(t, claimShard(id), shard(id))
	p.SeenSweep, p.Sweep, p.Runs = "s1", "s2", false
	require.NoError(t, q.Postpone(t.Context(), base, p))
	require.Equal(t, questionShard(id), shard(id))
	p.SeenSweep, p.Sweep, p.Runs = "s2", "s3", true
	require.NoError(t, q.Postpone(t.Context(), base, p))
	require.Equal(t, questionShard(id), shard(id), "it may be read there, and moves to no other shard")
}
