package outbox_test

import (
	"context"
	"fmt"
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
