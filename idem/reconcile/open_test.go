package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// What still runs is no open question, and what has ended neither.
func TestOpenQuestionsAreCountedByOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refund)
		now := r.Clock.Now().Truncate(time.Millisecond)
		put := func(operation, value string, state idem.State, age time.Duration) {
			rec := idem.Record{
				ID: (idem.Operation{Name: operation}).Key("acme", value).ID(), State: state, Owner: "o", Write: "w", Attempt: 1,
				LeaseUntil: now.Add(-age), OpenSince: now.Add(-age), Due: now.Add(time.Hour),
			}
			if state == idem.InProgress {
				rec.OpenSince, rec.Due = time.Time{}, rec.LeaseUntil.Add(idem.DefaultMargin)
			}
			r.put(now, rec)
		}
		put("refund", "1", idem.Unknown, 10*time.Minute)
		put("refund", "2", idem.Unknown, 40*time.Minute)
		put("refund", "lapsed", idem.InProgress, 20*time.Minute)
		put("refund", "runs", idem.InProgress, -time.Minute)
		put("refund", "within the margin", idem.InProgress, time.Second)
		put("charge", "1", idem.Released, time.Minute)
		put("other", "runs", idem.InProgress, -time.Minute)
		open, err := r.OpenQuestions(t.Context())
		require.NoError(t, err)
		says := map[string]map[string]int{}
		for _, o := range open {
			says[o.Operation] = maps.Collect(o.Counts())
		}
		require.Equal(t, map[string]map[string]int{
			"": {"open": 4, "oldest_open": 2400}, "refund": {"open": 3, "oldest_open": 2400},
			"charge": {"open": 1, "oldest_open": 60},
		}, says)
		require.Empty(t, open[0].Operation, "all together come first")
	})
}

// question is an open question that operators have.
func question(id string, now time.Time) idem.Record {
	return idem.Record{
		ID: id, State: idem.Unknown, Repeat: idem.NotRepeatable, Owner: "o", Write: "w", Attempt: 1,
		LeaseUntil: now, OpenSince: now, Due: now.Add(24 * time.Hour),
	}
}

// What waits is read once. What may have become something else at its place in the index is read each time.
func TestOpenQuestionsThatHaveNotChangedAreNotReadAgain(t *testing.T) {
	r := newRig(t, refund)
	now := r.Clock.Now().UTC().Truncate(time.Millisecond) // as records are read
	key := func(n int) idem.Key { return refund.Key("acme", fmt.Sprint(n)) }
	for n := range 39 {
		r.put(now, question(key(n).ID(), now))
	}
	again := refund.Key("acme", "again")
	r.end(again, errPlain)
	repeatable := question(refund.Key("acme", "repeatable").ID(), now)
	repeatable.Repeat = idem.Repeatable
	r.put(now, repeatable)
	half := question(refund.Key("acme", "half done").ID(), now)
	half.Steps = map[string]protocol.RecordedStep{"reserve": {}}
	r.put(now, half)
	running := question(refund.Key("acme", "running").ID(), now)
	running.State, running.LeaseUntil = idem.InProgress, now.Add(time.Hour)
	r.put(now, running)
	count := func(open, reads int) {
		t.Helper()
		require.Equal(t, now, r.counts(open, reads).Oldest)
	}
	count(42, 42)
	count(42, 2)

	require.NoError(t, r.Resolve(t.Context(), key(1).ID(), toCompleted, alice))
	count(41, 2)
	rec := r.Record(key(2))
	require.NoError(t, r.Store.Postpone(t.Context(),
		now, protocol.Postponement{ID: rec.ID, Seen: rec.Write, Sweep: "s", Due: now.Add(time.Hour)}))
	count(41, 3)

	r.lapse()
	// What was known may run again in the meantime: its claim is another entry.
	require.NoError(t, r.Resolve(t.Context(), again.ID(), toReleased, alice))
	_, err := r.call(again, func(context.Context, int) (int, error) {
		count(40, 2)
		return 1, nil
	})
	require.NoError(t, err)
	count(40, 2)
}

// counts counts the open questions of an operation, and what is read for it.
func (r *rig) counts(open, reads int) reconcile.OpenCount {
	r.t.Helper()
	r.Faults.Reset()
	all, err := r.OpenQuestions(r.t.Context())
	require.NoError(r.t, err)
	require.Equal(r.t, open, all[0].Count)
	require.Equal(r.t, reads, r.called(idemtest.Get))
	return all[0]
}

// Claims that run are no questions, however many there are: they are not read before their lease is over.
func TestOpenQuestionsReadNoClaimThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes while records are put
		r := newRig(t, refund)
		now := r.Clock.Now().UTC().Truncate(time.Millisecond)
		lease := now.Add(time.Minute)
		for n := range 500 {
			rec := question(refund.Key("acme", fmt.Sprint("running ", n)).ID(), time.Time{})
			rec.State, rec.LeaseUntil, rec.Due = idem.InProgress, lease, lease.Add(idem.DefaultMargin)
			r.put(now, rec)
		}
		for n := range 3 {
			r.put(now, question(refund.Key("acme", fmt.Sprint(n)).ID(), now))
		}
		r.counts(3, 3)
		r.Clock.Advance(time.Minute)
		r.counts(3, 0)
		r.Clock.Advance(idem.DefaultMargin + time.Millisecond) // and no sweep has seen them
		r.counts(503, 500)
		report := r.report(r.sweeper(reconcile.SweepOptions{}))
		require.Equal(t, 500, report.Parked)
		r.counts(503, 500)
		r.counts(503, 0)
	})
}

// What a shard that cannot be read had before is counted still, or the alarm about its oldest
// question would end. What the call has come to is counted as it is now.
func TestOpenQuestionsOfAShardThatCannotBeReadStayOpen(t *testing.T) {
	r := newRig(t, refund)
	now := r.Clock.Now().Truncate(time.Millisecond)
	put := func(id string, since time.Time) { r.put(now, question(id, since)) }
	old, others := refund.Key("acme", "old").ID(), []string(nil)
	put(old, now)
	bad := shardOf(t, old)
	for n := 0; len(others) < 2; n++ {
		id := refund.Key("acme", fmt.Sprint(n)).ID()
		if put(id, now.Add(time.Hour)); shardOf(t, id) != bad {
			others = append(others, id)
		}
	}
	r.Clock.Advance(2 * time.Hour)
	none := -1
	store := r.down(&none)
	rc := r.over(store)
	all, err := rc.OpenQuestions(t.Context())
	require.NoError(t, err)
	none = bad
	fewer := func(n int, oldest time.Time) {
		t.Helper()
		open, err := rc.OpenQuestions(t.Context())
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Len(t, open, len(all))
		require.Equal(t, all[0].Count-n, open[0].Count)
		require.WithinDuration(t, oldest, open[0].Oldest, 0)
	}
	fewer(0, now)
	fewer(0, now)
	require.NoError(t, rc.Resolve(t.Context(), others[0], toCompleted, alice))
	fewer(1, now)
	require.NoError(t, rc.Resolve(t.Context(), old, toCompleted, alice))
	fails := store.due
	store.due = func(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
		if q.Shard != bad || q.Page != "" {
			return fails(ctx, q)
		}
		// The shard's first page is read, and the next one is not.
		page, err := r.Faults.Due(ctx, q)
		page.IDs, page.Due, page.Next = append(page.IDs, old), nil, "next" // the index is late
		return page, err
	}
	fewer(2, now.Add(time.Hour)) // what was come to is settled
}

// Also those that the call reads again each time, since a call may take them over at their place.
func TestOpenQuestionsOfAllKindsStayOpenWhileTheirShardCannotBeRead(t *testing.T) {
	kinds := map[string]func(rec *idem.Record){
		"with steps": func(rec *idem.Record) {
			rec.Steps = map[string]protocol.RecordedStep{"charge": {Begun: true, Write: "w1"}}
		},
		"repeatable": func(rec *idem.Record) { rec.Repeat = idem.Repeatable },
		"accepted":   func(rec *idem.Record) { rec.State = idem.Pending },
		"a lapsed claim": func(rec *idem.Record) {
			rec.State, rec.Due = idem.InProgress, rec.LeaseUntil.Add(idem.DefaultMargin)
		},
		"released": func(rec *idem.Record) {
			rec.State, rec.Steps = idem.Released, map[string]protocol.RecordedStep{"reserve": {Write: "w1"}}
		},
	}
	r := newRig(t, refund)
	now := r.Clock.Now().Truncate(time.Millisecond)
	for name, of := range kinds {
		rec := question(idem.Operation{Name: name}.Key("acme", "old").ID(), now)
		of(&rec)
		r.put(now, rec)
	}
	r.Clock.Advance(2 * time.Hour)
	for _, want := range []error{nil, idem.ErrStoreUnavailable, idem.ErrStoreUnavailable} {
		open, err := r.OpenQuestions(t.Context())
		require.ErrorIs(t, err, want)
		require.Len(t, open, 1+len(kinds), "%+v", open)
		for _, o := range open[1:] {
			require.Equal(t, 1, o.Count, o.Operation)
			require.WithinDuration(t, now, o.Oldest, 0, o.Operation)
		}
		r.Faults.Always(idemtest.Refuse, idemtest.Due)
	}
}

// An outage of a provider leaves more than there is time to read. No shard waits for another, or
// the oldest question might never be read; and the next call goes on.
func TestOpenQuestionsOfAllShardsAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const questions = 3000
		r := newRig(t, refund)
		now := r.Clock.Now().Truncate(time.Millisecond)
		for n := range questions {
			r.put(now, question(refund.Key("acme", fmt.Sprint(n)).ID(), now))
		}
		shards := map[string]int{}
		for shard := range protocol.Shards {
			page, err := r.Store.Due(t.Context(), protocol.DueQuery{Shard: shard, Until: now.Add(48 * time.Hour)})
			require.NoError(t, err)
			for _, id := range page.IDs {
				shards[id] = shard
			}
		}
		var mu sync.Mutex
		reads := map[int]int{}
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return &idem.StoreError{Op: "Get", Err: ctx.Err()}
			}
			mu.Lock()
			defer mu.Unlock()
			reads[shards[c.ID]]++
			return c.Do(ctx)
		}, idemtest.Get)
		count := func() (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			open, err := r.OpenQuestions(ctx)
			return open[0].Count, err
		}
		first, err := count()
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Less(t, first, questions/2)
		require.Greater(t, first, questions/5)
		for shard := range protocol.QuestionShards {
			require.Greater(t, reads[shard], first/protocol.QuestionShards/2, "shard %d", shard)
		}
		counts := []int{first}
		for err != nil {
			var n int
			n, err = count()
			counts = append(counts, n)
			require.LessOrEqual(t, len(counts), 5, "%v", counts)
		}
		require.Equal(t, questions, counts[len(counts)-1], "%v", counts)
		before := maps.Clone(reads)
		_, err = count()
		require.NoError(t, err)
		require.Equal(t, before, reads)
	})
}
