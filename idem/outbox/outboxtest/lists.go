package outboxtest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// What is left to the sweep with an ordering key is found by the key, and listed before all else of its shard and
// destination.
func held(b *box) {
	t, ctx := b.t, b.t.Context()
	put := func(record string, n int, key string, at time.Duration) outbox.Ref {
		return b.publish(record, n, Order(key), base.Add(at))
	}
	keys := []string{b.Lane(0), b.Lane(1)}
	lane := outbox.Lane{Destination: "orders", OrderingKey: keys[0]}
	strange := outbox.Lane{Destination: "orders", OrderingKey: keys[1]}
	early := put("early", 0, keys[0], 0)
	var want []outbox.Ref
	for n := range outbox.MaxHeld + 2 {
		want = append(want, put(fmt.Sprintf("r%02d", n/7), n%7, keys[0], time.Second+time.Duration(n/7)*time.Millisecond))
	}
	foreign := put("foreign", 0, keys[1], 2*time.Second)
	unordered := put("unordered", 0, "", 0)
	lanes := []outbox.Lane{lane, strange, {Destination: "prices", OrderingKey: keys[0]}}
	found, err := b.Held(ctx, lanes)
	require.NoError(t, err)
	require.Empty(t, found, "none has been tried")

	for _, ref := range append(slices.Clone(want), foreign, unordered) {
		b.yes(b.Retry(ctx, b.entry(ref), 0, base, "down"))
	}
	found, err = b.Held(ctx, lanes)
	require.NoError(t, err)
	require.Equal(t, map[outbox.Lane][]outbox.Ref{lane: want[:outbox.MaxHeld], strange: {foreign}}, found)
	require.Len(t, b.waiting("orders", base.Add(-time.Hour)), outbox.MaxHeld+1,
		"however young they are, and so many of a lane")
	all := b.waiting("orders", base.Add(time.Hour))
	require.Len(t, all, outbox.MaxHeld+3)
	require.Contains(t, all, unordered)
	require.Greater(t, slices.Index(all, early), slices.Index(all, foreign))

	b.yes(b.Begin(ctx, b.entry(early), 1, base))
	for _, ref := range want {
		b.yes(b.Dispatch(ctx, base, b.entry(ref), "", base.Add(time.Hour)))
	}
	found, err = b.Held(ctx, lanes[:1])
	require.NoError(t, err)
	require.Equal(t, map[outbox.Lane][]outbox.Ref{lane: {early}}, found)
}

// What comes after a message in its lane is listed, also what was committed in the same millisecond.
func heldAfter(b *box) {
	t, ctx := b.t, b.t.Context()
	want := map[outbox.Ref]bool{}
	for n := range 25 {
		ref := b.publish(fmt.Sprint("r", n), 0, Order("k"), base.Add(time.Duration(n/7)*time.Millisecond))
		b.yes(b.Retry(ctx, b.entry(ref), 0, base, "down"))
		want[ref] = true
	}
	b.left(Order("j"), 3, base)
	held, err := b.Held(ctx, []outbox.Lane{{Destination: "orders", OrderingKey: "k"}})
	require.NoError(t, err)
	var found []outbox.Ref
	for next := slices.Collect(maps.Values(held))[0]; len(next) > 0; {
		require.LessOrEqual(t, len(next), outbox.MaxHeld)
		found = append(found, next...)
		last := b.entry(next[len(next)-1])
		b.yes(b.Dispatch(ctx, base, last, "", base)) // it waits no more
		next, err = b.HeldAfter(ctx, last)
		require.NoError(t, err)
	}
	require.Equal(t, want, b.set(found))
}

// More than a page, in order.
func many(b *box) {
	var want []outbox.Ref
	for n := range 230 {
		at := base.Add(time.Duration(n/10) * time.Second)
		want = append(want, b.publish(fmt.Sprintf("r-%03d", n/10), n%10, Order("k"), at))
	}
	require.Equal(b.t, want, b.waiting("orders", base.Add(time.Hour)))
	found, read, err := b.Load(b.t.Context(), want, math.MaxInt)
	require.NoError(b.t, err)
	require.Len(b.t, found, 230)
	require.Equal(b.t, 230, read)
}

// Load reads as much as the caller says, whatever the messages' sizes, in the order that it is asked for.
func sizes(b *box) {
	m := Order("k")
	refs := []outbox.Ref{{Record: "missing", ID: "x"}}
	for n := range 30 {
		m.Body = make([]byte, []int{10, 50 << 10}[n/15])
		refs = append(refs, b.publish(fmt.Sprintf("r-%02d", n), 0, m, base))
	}
	for _, size := range []int{1, 120 << 10, 500 << 10, math.MaxInt} {
		for left := refs; len(left) > 0; {
			found, read, err := b.Load(b.t.Context(), left, size)
			require.NoError(b.t, err)
			require.Positive(b.t, read)
			sum := 0
			for _, ref := range left[:read] {
				e := found[ref]
				require.Equal(b.t, ref != refs[0], e != nil)
				if e != nil {
					sum += e.Size()
				}
				delete(found, ref)
			}
			require.True(b.t, sum <= size || read == 1, "%d", sum)
			require.Empty(b.t, found)
			left = left[read:]
		}
	}
}

// Of each lane the first messages are listed, whatever the sizes of the lanes before it, and nothing is listed twice.
func longLanes(b *box) {
	lanes := map[outbox.Ref]int{} // by the message
	var all [][]outbox.Ref
	for n, size := range []int{1, 9, 10, 11, 99, 100, 101, 130, 1, 12, 3, 2} {
		refs := b.left(Order(b.Lane(n)), size, base)
		for _, ref := range refs {
			lanes[ref] = n
		}
		all = append(all, refs)
	}
	for name, found := range map[string][]outbox.Ref{
		"Waiting": b.waiting("orders", base), "Strays": b.strays([]string{"others"}, base),
	} {
		listed := make([][]outbox.Ref, len(all))
		for ref := range slices.Values(found) {
			listed[lanes[ref]] = append(listed[lanes[ref]], ref)
		}
		for n, refs := range listed {
			require.Equal(b.t, all[n][:len(refs)], refs, "%s: lane %d is listed from its first message on", name, n)
			require.GreaterOrEqual(b.t, len(refs), min(len(all[n]), outbox.MaxHeld), "%s: lane %d", name, n)
			require.LessOrEqual(b.t, len(refs), 2*outbox.MaxHeld, "%s: lane %d", name, n)
		}
	}
}

// A destination lists its own messages, and Strays lists what is left.
func strays(b *box) {
	names := []string{"a", "b", "c", "d", "e"}
	want := map[string]map[outbox.Ref]bool{}
	for i, name := range names {
		m := Order(b.Lane(i))
		m.Destination = name
		refs := b.left(m, 3, base)
		for n := range 60 {
			refs = append(refs, b.publish("live/"+name, n, m, base))
		}
		b.publish("young/"+name, 0, m, base.Add(time.Hour))
		want[name] = b.set(refs)
	}
	soon := base.Add(time.Minute)
	for _, known := range [][]string{nil, {"a"}, {"b", "d"}, {"a", "c", "e"}, names} {
		rest := map[outbox.Ref]bool{}
		for name, refs := range want {
			if !slices.Contains(known, name) {
				rest = union(rest, refs)
			}
		}
		require.Equal(b.t, rest, b.set(b.strays(known, soon)))
		for _, name := range known {
			require.Equal(b.t, want[name], b.set(b.waiting(name, soon)))
		}
	}
}

func noSuchList(b *box) {
	for name, list := range map[string]func(shard int, cursor string) error{
		"Waiting": func(shard int, cursor string) error {
			_, _, err := b.Waiting(b.t.Context(), shard, "orders", base, cursor)
			return err
		},
		"Strays": func(shard int, cursor string) error {
			_, _, err := b.Strays(b.t.Context(), shard, []string{"orders"}, base, cursor)
			return err
		},
	} {
		require.ErrorContains(b.t, list(outbox.Shards, ""), fmt.Sprint("no shard ", outbox.Shards), name)
		require.Error(b.t, list(-1, ""), name)
		require.Error(b.t, list(0, "nonsense"), name)
	}
}
