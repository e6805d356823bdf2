package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// leave notes that messages were left to the sweep, until a time.
func (s *memoryStore) leave(t *testing.T, due time.Time, refs ...outbox.Ref) {
	t.Helper()
	for _, ref := range refs {
		e := s.get(ref)
		_, err := s.Retry(t.Context(), &e, 0, due, "down")
		require.NoError(t, err)
	}
}

// putMany stores so many messages, a millisecond apart.
func (s *memoryStore) putMany(record string, n int, key string) (refs []outbox.Ref) {
	for i := range n {
		refs = append(refs, s.put(fmt.Sprintf("%s%04d", record, i), 0, key))
		time.Sleep(time.Millisecond)
	}
	return refs
}

func (s *memoryStore) loads(f func()) int {
	before := s.loaded
	f()
	return s.loaded - before
}

// Messages that fail each time take no turn from those that were not tried, in one shard and in all.
func TestMessagesThatFailHoldUpNoOthers(t *testing.T) {
	for _, tries := range []int{0, 5} { // at 5 each is sent alone
		for _, shards := range []int{1, outbox.Shards} {
			t.Run(fmt.Sprint(tries, " tries, ", shards, " shards"), func(t *testing.T) {
				withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
					p.failIf(func(m outbox.Message) bool { return m.Body[0] == 'p' }, errDown)
					for n, failing := 0, 0; failing < 20*shards; n++ {
						if key := fmt.Sprint(n); shardOf(key) < shards {
							ref := s.put(fmt.Sprint("p", n), 0, key)
							s.all[ref].State, s.all[ref].Tries = outbox.Retrying, tries
							failing++
						}
					}
					healthy := 0
					for n := range 500 {
						if shardOf(idOf(fmt.Sprint("h", n), 0)) < shards {
							s.put(fmt.Sprint("h", n), 0, "")
							healthy++
						}
					}
					time.Sleep(outbox.DefaultGrace)
					sweeps(t, r, 2*shards, 5*time.Minute)
					require.Equal(t, healthy, len(p.sent))
				})
			})
		}
	}
}

// Some messages that have failed often do not end a sweep of a destination that works.
func TestSomeMessagesThatFailEndNoSweep(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failIf(func(m outbox.Message) bool { return m.Body[0] == 'p' }, errDown)
		for _, ref := range s.putMany("p", 8, "") {
			s.all[ref].State, s.all[ref].Tries = outbox.Retrying, 5
		}
		s.putMany("h", 500, "")
		time.Sleep(outbox.DefaultGrace)
		sweep(t, r)
		require.Equal(t, 500, len(p.sent))
	})
}

// A sweep that begins in the middle of a shard comes to that shard's beginning in the end. What has
// failed in this sweep waits for the next one.
func TestASweepThatComesBackTriesNoMessageTwice(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		s.page = 10
		var last string
		for n, put := 0, 0; put < 30; n++ {
			if last = fmt.Sprintf("r%04d", n); shardOf(idOf(last, 0)) == 3 {
				s.put(last, 0, "")
				put++
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(outbox.DefaultGrace)
		p.failFor(idOf(last, 0), errDown)
		p.before = func() { time.Sleep(20 * time.Second) }
		_, err := r.Sweep(within(t, 35*time.Second))
		require.NoError(t, err)
		require.Equal(t, 20, len(p.sent))
		for n := range 300 { // for all shards
			s.put(fmt.Sprint("others ", n), 0, "")
		}
		time.Sleep(outbox.DefaultGrace)
		p.before = func() { time.Sleep(100 * time.Millisecond) }
		sweep(t, r)
		require.Equal(t, 1, s.all[outbox.Ref{Record: last, ID: idOf(last, 0)}].Tries)
		require.Equal(t, 329, len(p.sent))
	})
}

// A sweep that takes long tries a message once, although its next try becomes due in the sweep.
func TestASweepTriesNoMessageTwice(t *testing.T) {
	for _, key := range []string{"", "poison"} {
		withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
			poison := s.put("a", 0, key)
			s.leave(t, time.Now(), s.putMany("r", 800, "k")...)
			time.Sleep(outbox.DefaultGrace)
			p.before = func() { time.Sleep(60 * time.Millisecond) }
			p.failFor(idOf("a", 0), errDown)
			sweep(t, r)
			require.Equal(t, 1, s.get(poison).Tries)
			require.Equal(t, 800, len(p.sent), "in one sweep")
		})
	}
}

// What the stream leaves to a sweep that has begun is sent by it.
func TestASweepSendsWhatIsLeftToItMeanwhile(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		refs := s.putMany("r", 30, "k")
		s.leave(t, time.Now(), refs[:20]...)
		time.Sleep(time.Second)
		p.before = func() {
			p.before = nil
			time.Sleep(time.Second)
			s.leave(t, time.Now(), refs[20:]...)
		}
		sweep(t, r)
		require.Equal(t, 30, len(p.sent))
	})
}

// frozen lists what was left to the sweep as it was at first: an index is behind its table.
type frozen struct{ *memoryStore }

func (f frozen) Waiting(
	_ context.Context, shard int, destination string, before time.Time, cursor string,
) ([]outbox.Ref, string, error) {
	return f.then().Waiting(context.Background(), shard, destination, before, cursor)
}

func (f frozen) HeldAfter(ctx context.Context, e *outbox.Entry) ([]outbox.Ref, error) {
	return f.then().HeldAfter(ctx, e)
}

func (f frozen) then() *memoryStore {
	s := newMemoryStore()
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, e := range f.all {
		old := *e
		old.State = outbox.Retrying
		s.all[ref] = &old
	}
	return s
}

// A sweep sends all of a long lane, also where the index still lists what it has sent, or what another relay has.
func TestALongLaneIsSentThoughTheIndexIsBehind(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		r := relay(t, frozen{s}, p, nil)
		refs := s.putMany("r", 100, "k")
		s.leave(t, time.Now(), refs...)
		for _, ref := range refs[:12] {
			s.all[ref].State = outbox.Dispatched
		}
		require.False(t, sweep(t, r).More)
		require.Equal(t, 88, len(p.sent))
		require.IsIncreasing(t, p.bodies())
	})
}

// A long lane that is sent reads nothing again of what else waits, nor does it count that twice.
func TestALongLaneReadsNothingElseAgain(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, _ *post, r *outbox.Relay) {
		s.leave(t, time.Now(), s.putMany("r", 1000, "k")...)
		s.leave(t, time.Now().Add(time.Hour), s.putMany("w", 300, "")...)
		time.Sleep(outbox.DefaultGrace)
		require.Equal(t, 1300, s.loads(func() {
			report := sweep(t, r)
			require.Equal(t, 1000, report.Sent)
			require.Equal(t, 300, report.Skipped)
		}))
	})
}

// Long lanes take turns, also where one reply does not hold the next messages of all.
func TestLongLanesTakeTurns(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		keys := []string{"a", "b", "c"}
		for _, key := range keys {
			s.leave(t, time.Now(), s.putMany(key, 60, key)...)
		}
		for ref := range s.all {
			s.all[ref].Body = append(s.all[ref].Body, make([]byte, 400<<10)...) // 20 in a reply
		}
		sweep(t, r)
		last, sent := map[string]string{}, map[string]int{}
		for _, m := range p.sent {
			require.Less(t, last[m.OrderingKey], string(m.Body[:5]))
			last[m.OrderingKey] = string(m.Body[:5])
			sent[m.OrderingKey]++
			for _, key := range keys {
				require.LessOrEqual(t, sent[m.OrderingKey]-sent[key], 2*outbox.MaxHeld)
			}
		}
		require.Equal(t, map[string]int{"a": 60, "b": 60, "c": 60}, sent)
	})
}

// Of a long lane only what comes before a message that fails is sent, and the next sweep goes on there.
func TestALongLaneStopsAtAMessageThatFails(t *testing.T) {
	for range 8 { // sweeps begin with any shard
		withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
			var keys []string // in ten shards
			for n := 0; len(keys) < 10; n++ {
				if key := fmt.Sprint("k", n); shardOf(key) == len(keys) {
					keys = append(keys, key)
					s.leave(t, time.Now(), s.putMany(key+"-", 30, key)...)
				}
			}
			p.failIf(func(m outbox.Message) bool { return strings.HasSuffix(string(m.Body), "-0014/0") }, errDown)
			for _, sent := range []int{140, 300} {
				sweep(t, r)
				require.Equal(t, sent, len(p.sent))
				p.fault = nil
				time.Sleep(5 * time.Minute)
			}
			last := map[string]string{}
			for _, m := range p.sent {
				require.Less(t, last[m.OrderingKey], string(m.Body))
				last[m.OrderingKey] = string(m.Body)
			}
		})
	}
}

// What waits for a destination without a route is read in part, as that of one that is down.
func TestStraysAreReadInPart(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		for i, ref := range s.putMany("r", 3000, "") {
			s.all[ref].Destination = fmt.Sprint("nowhere ", i%2)
		}
		time.Sleep(outbox.DefaultGrace)
		require.LessOrEqual(t, s.loads(func() { sweep(t, r) }), 400)
		require.Empty(t, p.sent)
	})
}

// A sweep says how old the oldest message is that it found, whatever its destination and whether it
// was sent; the metric and its alarm go by it.
func TestASweepSaysSinceWhenTheOldestMessageWaits(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		down := p.fails()
		down.Store(false)
		oldest := func() time.Time {
			report, err := r.Sweep(within(t, time.Minute))
			require.NoError(t, err)
			return report.OldestAt
		}
		require.Zero(t, oldest())
		first := time.Now()
		for n := range 3 {
			s.put(fmt.Sprint("r", n), 0, "")
			time.Sleep(outbox.DefaultGrace)
		}
		require.Equal(t, first, oldest(), "it was sent by this sweep")
		require.Zero(t, oldest())

		down.Store(true)
		second := time.Now()
		report := deliver(t, r, s.put("r3", 0, ""))
		require.Zero(t, report.OldestAt, "a delivery sees only what it is given")
		for range 3 {
			time.Sleep(time.Hour)
			require.Equal(t, second, oldest(), "it failed, and still waits")
		}
		down.Store(false)
		time.Sleep(time.Hour)
		require.Equal(t, second, oldest())
		require.Zero(t, oldest())

		third := s.put("r4", 0, "")
		s.all[third].Destination = "unknown"
		time.Sleep(outbox.DefaultGrace)
		require.Equal(t, s.all[third].Created, oldest(), "a destination without a route")
	})
}

// What the stream has missed is counted once, and not what it was never to send: a destination that is
// down has signals of its own.
func TestASweepCountsWhatTheStreamHasMissed(t *testing.T) {
	for _, key := range []string{"", "k"} {
		withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
			r, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": p, "down": refusing}, nil)
			require.NoError(t, err)
			put := func(record string) (orders, down, unknown outbox.Ref) {
				orders, down, unknown = s.put(record, 0, key), s.put("down-"+record, 0, key), s.put("lost-"+record, 0, key)
				s.all[down].Destination, s.all[unknown].Destination = "down", "unknown"
				return orders, down, unknown
			}
			for n := range 30 {
				orders, down, unknown := put(fmt.Sprint("r", n))
				report := deliver(t, r, orders, down, unknown)
				require.Zero(t, report.Missed)
			}
			for range 3 {
				time.Sleep(outbox.DefaultGrace)
				require.Zero(t, sweep(t, r).Missed, "the stream has delivered all")
			}
			for n := range 5 { // the stream has ended
				put(fmt.Sprint("s", n))
			}
			require.Zero(t, sweep(t, r).Missed, "the stream may be late")
			time.Sleep(outbox.DefaultGrace)
			require.Equal(t, 5, sweep(t, r).Missed)
			require.Zero(t, sweep(t, r).Missed)

			tries := 0
			p.fault = func(outbox.Message) error {
				if tries++; tries == 1 {
					return errDown
				}
				return nil
			}
			s.put("t", 0, key)
			time.Sleep(outbox.DefaultGrace)
			for range 3 {
				require.Zero(t, sweep(t, r).Missed, "a sweep has tried it")
				time.Sleep(time.Hour)
			}
			require.Len(t, p.sent, 36)
		})
	}
}

var refusing = sending(func(_ context.Context, messages []outbox.Message) []outbox.Sent {
	return slices.Repeat([]outbox.Sent{{Err: errDown}}, len(messages))
})

// No message for a destination is read in the passes of the others.
func TestPassesDoNotReadEachOthersMessages(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		senders := map[string]outbox.Sender{"orders": refusing}
		for n := range 9 {
			senders[fmt.Sprint("d", n)] = p
		}
		r, err := outbox.NewRelay(s, senders, nil)
		require.NoError(t, err)
		for n := range 1000 {
			s.put(fmt.Sprint("r", n), 0, "")
		}
		sweeps(t, r, 4, time.Hour)
		require.LessOrEqual(t, s.loaded, 4*100, "only a page of the destination itself, which is down")
		for n := range 9 {
			ref := s.put("late", n, "")
			s.all[ref].Destination = fmt.Sprint("d", n)
		}
		sweeps(t, r, 1, time.Hour)
		require.Len(t, p.sent, 9)
	})
}
