package dynamostore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// counting is a sender that counts by ordering key what it is given, and fails or ends the sweep where it should.
type counting struct {
	mu    sync.Mutex
	calls int
	sent  map[string]int
	err   error
	last  int // the call after which end is called
	end   func()
}

func (c *counting) Send(_ context.Context, messages []outbox.Message) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(messages))
	for i, m := range messages {
		c.sent[m.OrderingKey]++
		errs[i] = c.err
	}
	if c.calls++; c.calls == c.last {
		c.end()
	}
	return errs
}

// sweep sweeps in a process of its own, which ends after so many calls.
func (b *box) sweep(t *testing.T, c *counting, calls int) outbox.Report {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.calls, c.last, c.end = 0, calls, cancel
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	r := must(outbox.NewRelay(b.Outbox, map[string]outbox.Sender{"orders": c}, nil))
	report, err := r.Sweep(ctx)
	require.True(t, err == nil || ctx.Err() != nil, "%v", err)
	return report
}

// lanesIn returns ordering keys of a shard in the order of the index.
func lanesIn(shard string, count int) (keys []string) {
	for n := range count {
		keys = append(keys, laneIn(shard, "orders", n))
	}
	slices.SortFunc(keys, func(a, b string) int { return strings.Compare(laneHash(a), laneHash(b)) })
	return keys
}

// Long lanes are sent side by side, ten messages a call, and to their ends.
func TestASweepSendsLanesSideBySide(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	for _, key := range lanesIn("outbox-07", 10) {
		b.left(t, "orders", key, 25, base)
	}
	var c counting
	require.Equal(t, 250, b.sweep(t, &c, -1).Sent)
	require.LessOrEqual(t, c.calls, 40)
}

// A lane with more than a sweep can send holds up no other one of its shard, and does not hide the oldest message.
func TestASweepLooksBehindALongLane(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	keys := lanesIn("outbox-07", 31)
	b.left(t, "orders", keys[0], 120, base)
	for _, key := range keys[1:] {
		b.left(t, "orders", key, 1, base.Add(-3*time.Hour))
	}
	var c counting
	report := b.sweep(t, &c, 20)
	require.Len(t, c.sent, 31)
	require.Equal(t, base.Add(-3*time.Hour).UTC(), report.OldestAt.UTC())
}

// Of what waits for a destination that is down a sweep reads no more than two pages, however long the lanes are.
func TestASweepReadsLittleForADestinationThatIsDown(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	for _, key := range lanesIn("outbox-07", 11) {
		b.left(t, "orders", key, 60, base)
	}
	c := counting{err: errors.New("down")}
	report := b.sweep(t, &c, -1)
	require.Equal(t, 2, c.calls)
	require.LessOrEqual(t, report.Failed+report.Deferred+report.Skipped, 200)
}

// Of each lane the first messages are listed, whatever the sizes of the lanes before it, and nothing is listed twice.
func TestLongLanesAreListedInPart(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	const shard = 7
	lanes := map[outbox.Ref]int{} // by the message
	var all [][]outbox.Ref
	for n, size := range []int{1, 9, 10, 11, 99, 100, 101, 130, 1, 12, 3} {
		refs := b.left(t, "orders", laneIn(schema.OutboxShard+shardName(shard), "orders", n), size, base)
		for _, ref := range refs {
			lanes[ref] = n
		}
		all = append(all, refs)
	}
	for name, list := range map[string]func(cursor string) ([]outbox.Ref, string, error){
		"Waiting": func(cursor string) ([]outbox.Ref, string, error) {
			return b.Waiting(t.Context(), shard, "orders", base, cursor)
		},
		"Strays": func(cursor string) ([]outbox.Ref, string, error) {
			return b.Strays(t.Context(), shard, []string{"others"}, base, cursor)
		},
	} {
		listed := make([][]outbox.Ref, len(all))
		for cursor := ""; ; {
			refs, next, err := list(cursor)
			require.NoError(t, err)
			for _, ref := range refs {
				listed[lanes[ref]] = append(listed[lanes[ref]], ref)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		for n, refs := range listed {
			require.Equal(t, all[n][:len(refs)], refs, "%s: lane %d is listed from its first message on", name, n)
			require.GreaterOrEqual(t, len(refs), min(len(all[n]), outbox.MaxHeld), "%s: lane %d", name, n)
			require.LessOrEqual(t, len(refs), 2*outbox.MaxHeld, "%s: lane %d", name, n)
		}
	}
}
