package dynamostore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// laneIn returns the n-th ordering key whose messages to the destination are in the shard.
func laneIn(shard, destination string, n int) string {
	for i := 0; ; i++ {
		m := outbox.Message{Destination: destination, OrderingKey: fmt.Sprint("k-", i)}
		if outboxShard(schema.OutboxShard, "", &m) == shard {
			if n--; n < 0 {
				return m.OrderingKey
			}
		}
	}
}

// left puts messages as Retry leaves them to the sweep.
func (b *box) left(t *testing.T, destination, key string, count int, at time.Time) (refs []outbox.Ref) {
	var items []item
	for n := range count {
		m := order(key)
		m.Destination = destination
		record := fmt.Sprintf("%s/%s/%03d", destination, key, n)
		e := published(record, 0, m, at.Add(time.Duration(n)*time.Millisecond))
		it := outboxItem(e)
		hold(it, e)
		items, refs = append(items, it), append(refs, e.Ref())
	}
	b.putAll(t, items)
	return refs
}

// What was left to the sweep for a destination costs others no request and no unit of their reads. Of a lane's
// own destination a page more is read for each lane, whatever else was left.
func TestHeldReadsLittleElse(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	const shard = "outbox-07"
	queries := func(lanes ...outbox.Lane) (map[outbox.Lane][]outbox.Ref, int) {
		b.wire.calls()
		found, err := b.Held(t.Context(), lanes)
		require.NoError(t, err)
		return found, len(b.wire.calls())
	}
	want := map[outbox.Lane][]outbox.Ref{}
	var lanes []outbox.Lane
	for n := range 30 {
		lane := outbox.Lane{Destination: "orders", OrderingKey: laneIn(shard, "orders", n)}
		lanes = append(lanes, lane)
		if n == 7 {
			want[lane] = b.left(t, lane.Destination, lane.OrderingKey, 3, base)
		}
	}
	for n := range 30 {
		b.left(t, "down", laneIn(shard, "down", n), 6, base)
	}
	found, count := queries(lanes...)
	require.Equal(t, want, found)
	require.Equal(t, 1, count, "one Query, as if nothing was left of another destination")

	// Now the destination's own lanes have more than pages hold, and one of them more than is listed.
	for n, lane := range lanes {
		switch {
		case n == 15:
			want[lane] = b.left(t, lane.Destination, lane.OrderingKey, 130, base)[:outbox.MaxHeld]
		case n != 7 && n%4 != 0:
			want[lane] = b.left(t, lane.Destination, lane.OrderingKey, 1+n, base)[:min(1+n, outbox.MaxHeld)]
		}
	}
	found, count = queries(lanes...)
	require.Equal(t, want, found)
	require.LessOrEqual(t, count, len(lanes)+1)
	for _, lane := range lanes {
		found, count = queries(lane)
		require.Equal(t, want[lane], found[lane])
		require.Equal(t, 1, count)
	}
}

// Strays finds what is left between the places of destinations in one shard, whatever has a place there. That a
// destination lists its own messages, outboxtest shows.
func TestStrays(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	const shard = 7
	in := schema.OutboxShard + shardName(shard)
	want := map[string][]outbox.Ref{}
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		m := order(laneIn(in, name, 0))
		m.Destination = name
		want[name] = append(b.left(t, name, m.OrderingKey, 3, base), b.publish(t, "live/"+name, 0, m, base))
		b.publish(t, "young/"+name, 0, m, base.Add(time.Hour))
	}
	// No form of this version, and not to be lost for it.
	m := order(laneIn(in, "orders", 0))
	for n := range 2 * outbox.MaxHeld {
		it := outboxItem(published(fmt.Sprint("odd/", n), 0, m, base))
		it["open_due"] = num(fmt.Sprintf("17000000000%02d.0001", n))
		b.put(t, it)
		want["odd"] = append(want["odd"], messageRef(it))
	}

	all := func(list func(cursor string) ([]outbox.Ref, string, error)) (found []outbox.Ref) {
		for cursor := ""; ; {
			refs, next, err := list(cursor)
			require.NoError(t, err)
			if found, cursor = append(found, refs...), next; cursor == "" {
				return found
			}
		}
	}
	strays := func(known ...string) []outbox.Ref {
		return all(func(cursor string) ([]outbox.Ref, string, error) {
			return b.Strays(t.Context(), shard, known, base.Add(time.Minute), cursor)
		})
	}
	for _, known := range [][]string{nil, {"a"}, {"b", "d"}, {"a", "c", "e"}, names} {
		var left []outbox.Ref
		for name, refs := range want {
			if !slices.Contains(known, name) {
				left = append(left, refs...)
			}
		}
		require.ElementsMatch(t, left, strays(known...))
	}
	// Two destinations with one hash: the messages of one are listed for the other, and not as strays.
	hashes := map[string]string{}
	name, twin := "", ""
	for n := 0; twin == ""; n++ {
		name = fmt.Sprint("d-", n)
		twin, hashes[destinationHash(name)] = hashes[destinationHash(name)], name
	}
	refs := b.left(t, twin, laneIn(in, twin, 0), 1, base)
	require.NotContains(t, strays(name), refs[0])
	require.Contains(t, all(func(cursor string) ([]outbox.Ref, string, error) {
		return b.Waiting(t.Context(), shard, name, base, cursor)
	}), refs[0])

	b.wire.calls()
	_, _, err := b.Strays(t.Context(), 3, names, base, "")
	require.NoError(t, err)
	require.Len(t, b.wire.calls(), 1, "one Query of a shard in which nothing waits")
}
