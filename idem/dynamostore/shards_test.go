package dynamostore

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
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

// The share of the index's ceiling that operations with random keys reach without more writes to any shard than
// DynamoDB takes in a second, even if each writes its entry and removes it in one second. The page has the numbers.
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

// A claim whose lease is renewed again and again is postponed by each sweep that it is due for, and read when
// it is due, not whenever questions are counted. A claim of a version before is among the questions.
func TestOpenQuestionsReadNoRenewedClaim(t *testing.T) {
	f := open(t, nil)
	const id, before = "t#refund#1", "t#refund#2"
	f.watched(t, id, base.Add(32*time.Second))
	f.watched(t, before, base.Add(time.Hour))
	f.change(t, before, func(it item) { it[schema.OpenShard] = str(questionShard(before)) })
	now := base
	q := must(NewAdminStore(f.clientAs(asOperator), f.table, f.o))
	r := must(reconcile.New(q, &reconcile.Options{Now: func() time.Time { return now }}))
	s := must(reconcile.NewSweeper(r, &reconcile.SweepOptions{Log: slog.New(slog.DiscardHandler)}))
	count := func(open, reads int) {
		t.Helper()
		var gets atomic.Int32
		f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
			if op == "GetItem" {
				gets.Add(1)
			}
			return nil, nil
		})
		require.Equal(t, open, must(r.OpenQuestions(t.Context()))[0].Count)
		f.wire.set(nil)
		require.EqualValues(t, reads, gets.Load())
	}
	renew := func(name string) {
		for _, id := range []string{id, before} {
			require.NoError(t, f.Extend(t.Context(), now, protocol.Extension{ID: id, Owner: "o", Write: name,
				LeaseUntil: now.Add(90 * time.Second)}))
		}
	}
	renew("w1")
	count(0, 1)
	for n := range 3 {
		now = now.Add(time.Minute)
		count(0, 1+(n+1)%2)
		renew(fmt.Sprint("w2.", n))
		require.Equal(t, 1-n%2, must(s.Sweep(t.Context())).Postponed)
		count(0, 1)
	}
	now = now.Add(2 * time.Minute) // the process has died
	count(2, 2)
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
