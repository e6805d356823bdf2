package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// What is in order waits for the one before it, for no other key, and holds up nothing else: the sweep sends it, or
// the stream before what comes next with its key.
func TestOrderHolds(t *testing.T) {
	for _, next := range []string{"the sweep", "the stream"} {
		t.Run(next+" goes on", func(t *testing.T) {
			withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
				p.failFor(idOf("a", 0), errDown)
				refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k"), s.put("c", 0, "l"), s.put("d", 0, "")}
				begun := time.Now()
				delivers(t, r, outbox.Report{Sent: 2, Failed: 1, Deferred: 1, Problems: []string{"orders: the queue is down"}},
					refs...)
				require.ElementsMatch(t, []string{"c/0", "d/0"}, p.bodies())
				require.Zero(t, time.Since(begun), "no message waits for the next try")
				require.Equal(t, outbox.Retrying, s.get(refs[1]).State, "it is the sweep's")
				require.Zero(t, s.get(refs[1]).Tries, "it was not tried")

				delivers(t, r, outbox.Report{Deferred: 3}, s.put("e", 0, "k"))
				time.Sleep(outbox.DefaultBackoff)
				p.fault = nil
				want := []string{"a/0", "b/0", "e/0"}
				if next == "the sweep" {
					require.Equal(t, 3, sweep(t, r).Sent)
				} else {
					delivers(t, r, outbox.Report{Sent: 4}, s.put("f", 0, "k"))
					want = append(want, "f/0")
				}
				require.Equal(t, want, p.bodies()[2:])
				require.Equal(t, outbox.Report{}, sweep(t, r))
			})
		})
	}
}

func TestPoisonHoldsItsKeyNoLongerThanItsTries(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failFor(idOf("a", 0), errDown)
		refs := []outbox.Ref{s.put("x", 0, ""), s.put("a", 0, "k"), s.put("b", 0, "k")}
		begun := time.Now()
		deliver(t, r, refs...)
		for s.get(refs[1]).State != outbox.Dead {
			require.Equal(t, []string{"x/0"}, p.bodies())
			time.Sleep(5 * time.Minute)
			sweep(t, r)
		}
		require.Equal(t, []string{"x/0", "b/0"}, p.bodies())
		e := s.get(refs[1])
		require.Equal(t, outbox.DefaultMaxTries, e.Tries)
		require.Equal(t, "the queue is down", e.Reason)
		require.Equal(t, 2+outbox.DefaultMaxTries, p.tries)
		require.Equal(t, 45*time.Minute, time.Since(begun))
	})
}

// Where the key has more messages, the stream tries what is before them as soon as it is due, and needs no sweep.
func TestPoisonInABusyKey(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failFor(idOf("a", 0), errDown)
		poison := s.put("a", 0, "k")
		begun := time.Now()
		deliver(t, r, poison)
		var want []string
		for n := 0; len(want) == 0 || len(p.bodies()) < len(want); n++ {
			require.True(t, len(p.bodies()) == 0 || s.get(poison).State == outbox.Dead)
			time.Sleep(10 * time.Second)
			deliver(t, r, s.put(fmt.Sprint("b", n), 0, "k"))
			want = append(want, fmt.Sprintf("b%d/0", n))
		}
		require.Equal(t, want, p.bodies())
		require.Less(t, time.Since(begun), 9*time.Minute)
	})
}

// More than a call takes up wait for a key: it sends the first of them, and what is new waits behind the rest.
func TestManyHeldGoBeforeWhatIsNew(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		down := p.fails()
		var refs []outbox.Ref
		var want []string
		for n := range 2 * outbox.MaxHeld {
			refs = append(refs, s.put(fmt.Sprintf("r%03d", n), 0, "k"))
			want = append(want, fmt.Sprintf("r%03d/0", n))
			time.Sleep(time.Millisecond)
		}
		deliver(t, r, refs...)
		down.Store(false)
		time.Sleep(time.Minute)
		delivers(t, r, outbox.Report{Sent: outbox.MaxHeld, Deferred: 1}, s.put("y", 0, "k"))
		time.Sleep(time.Millisecond)
		delivers(t, r, outbox.Report{Sent: outbox.MaxHeld, Deferred: 1}, s.put("z", 0, "k"))
		delivers(t, r, outbox.Report{Sent: 3}, s.put("zz", 0, "k"))
		require.Equal(t, append(want, "y/0", "z/0", "zz/0"), p.bodies())
	})
}

// What was left to the sweep keeps its order if the stream brings it once more.
func TestRedeliveryKeepsTheOrder(t *testing.T) {
	for name, redelivered := range map[string][]int{"all": {0, 1, 2, 3}, "the first": {0}, "the last": {3},
		"one between": {1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newMemoryStore(), &post{fault: func(outbox.Message) error { return errDown }}
				r := relay(t, s, p, nil)
				var refs, again []outbox.Ref
				for _, record := range []string{"a", "b"} {
					refs = append(refs, s.put(record, 0, "k"), s.put(record, 1, "k"))
					time.Sleep(time.Millisecond)
				}
				deliver(t, r, refs...)
				p.fault = nil
				time.Sleep(time.Minute)
				for _, n := range redelivered {
					again = append(again, refs[n])
				}
				delivers(t, r, outbox.Report{Sent: 4}, again...)
				require.Equal(t, []string{"a/0", "a/1", "b/0", "b/1"}, p.bodies())
			})
		})
	}
}

// A message may be left to the sweep once a sweep has passed the place where those
// are: what comes next with its key waits for it all the same.
func TestSweepLooksBackForWhatWasLeftBehindIt(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		s.page = 1
		other := 0 // of a key in the same shard
		for shardOf(fmt.Sprint(other)) != shardOf("k") {
			other++
		}
		s.put("z", 0, fmt.Sprint(other))
		time.Sleep(time.Millisecond)
		left := s.put("a", 0, "k")
		time.Sleep(time.Millisecond)
		s.put("b", 0, "k")
		time.Sleep(outbox.DefaultGrace)
		p.fault = func(m outbox.Message) error {
			if string(m.Body) == "z/0" {
				e := s.get(left)
				_, err := s.Retry(t.Context(), &e, 0, time.Now(), "its destination was down")
				return err
			}
			return nil
		}
		require.Equal(t, 3, sweep(t, r).Sent)
		require.Equal(t, []string{"z/0", "a/0", "b/0"}, p.bodies())
	})
}

// What waits behind a message that is not due costs a sweep nothing more to read.
func TestSweepReadsNothingForWhatItLeaves(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		s.page = 1
		first := s.put("a", 0, "k")
		for n := range 3 {
			time.Sleep(time.Millisecond)
			s.put("b", n, "k")
		}
		time.Sleep(outbox.DefaultGrace)
		e := s.get(first)
		_, err := s.Retry(t.Context(), &e, 1, time.Now().Add(time.Hour), "it is down")
		require.NoError(t, err)
		s.at("Held", func() error { panic("it reads what was left") })
		require.Equal(t, outbox.Report{Skipped: 4}, sweep(t, r))
		require.LessOrEqual(t, s.loaded, 2*4, "each message once, by the two passes")
		require.Empty(t, p.bodies())
	})
}

// A destination's rest may end while a batch is read: the batch knows nothing of what
// was left before it, and is left too.
func TestARestThatEndsWhileABatchIsReadKeepsTheOrder(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		late := true
		r := relay(t, s, sending(func(ctx context.Context, messages []outbox.Message) []outbox.Sent {
			if late {
				<-ctx.Done()
				return []outbox.Sent{{Err: errDown}}
			}
			return p.Send(ctx, messages)
		}), nil)
		deliver(t, r, s.put("a", 0, "k"))
		rested := time.Now() // for a minute
		late = false
		time.Sleep(30 * time.Second)
		end := rested.Add(time.Minute)
		ends := []time.Time{end.Add(-time.Millisecond), end.Add(time.Millisecond)} // of the two reads
		s.at("Load", func() error {
			time.Sleep(time.Until(ends[0]))
			ends = ends[1:]
			return nil
		})
		deliver(t, r, s.put("b", 0, "k"), s.put("c", 1, "k"))
		require.Empty(t, p.bodies())
		require.Empty(t, ends)
		s.fault = nil
		deliver(t, r, s.put("d", 0, "k"))
		require.Equal(t, []string{"a/0", "b/0", "c/1", "d/0"}, p.bodies())
	})
}

// A message of a transaction is never sent before another of it with the same key,
// even if the stream brings them the wrong way round, or one alone.
func TestNumbersAreTheOrder(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		zero, one, other, two := s.put("a", 0, "k"), s.put("a", 1, "k"), s.put("a", 2, "l"), s.put("a", 3, "k")
		deliver(t, r, two)
		require.Equal(t, []string{"a/0", "a/1", "a/3"}, p.bodies())
		delivers(t, r, outbox.Report{Sent: 1, Skipped: 2}, other, one, zero)
	})
}

// An older message that waits for its next try holds its key, over pages too.
func TestSweepHoldsKeysOverPages(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		s.page = 2
		r := relay(t, s, p, &outbox.Options{Backoff: time.Hour, MaxBackoff: time.Hour})
		for i := range 7 {
			s.put(fmt.Sprintf("r-%d", i), 0, "k")
			time.Sleep(time.Second)
		}
		p.failFor(idOf("r-1", 0), errDown)
		time.Sleep(outbox.DefaultGrace)
		begun := time.Now()
		report := sweep(t, r)
		require.Zero(t, time.Since(begun), "it does not wait for the next try")
		require.Equal(t, []string{"r-0/0"}, p.bodies())
		require.Equal(t, 1, report.Failed)
		report = sweep(t, r)
		require.Equal(t, 6, report.Skipped, "not due, and behind what is not due")
		p.fault = nil
		time.Sleep(2 * time.Hour)
		require.Equal(t, 6, sweep(t, r).Sent)
		require.Equal(t, []string{"r-0/0", "r-1/0", "r-2/0", "r-3/0", "r-4/0", "r-5/0", "r-6/0"}, p.bodies())
	})
}

// What cannot be read holds what is in order behind it, where its key can be.
func TestOrderHoldsBehindTheUnreadable(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		s.page = 1
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("a", 1, "k"), s.put("b", 0, "k"), s.put("c", 0, "l")}
		s.all[refs[0]].Unreadable = errors.New("of version 9")
		deliver(t, r, refs[1])
		require.Empty(t, p.bodies(), "its record has published another one before it")
		delivers(t, r, outbox.Report{Sent: 1, Unreadable: 1, Deferred: 2, Problems: []string{"of version 9"}}, refs...)
		time.Sleep(time.Hour)
		require.Equal(t, 1, sweep(t, r).Unreadable)
		require.Equal(t, outbox.New, s.get(refs[0]).State, "it is left alone")
		s.all[refs[0]].Unreadable = nil // a newer relay can read it
		sweep(t, r)
		require.Equal(t, []string{"c/0", "a/0", "a/1", "b/0"}, p.bodies())
	})
}

// Two shards of the stream, with messages of one key, find the same one waiting: one of them sends it.
func TestWhatWasLeftIsSentOnce(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		down := p.fails()
		deliver(t, r, s.put("a", 0, "k"))
		time.Sleep(outbox.DefaultBackoff)
		down.Store(false)
		p.tries, p.before = 0, func() { time.Sleep(time.Second) }
		var both sync.WaitGroup
		for _, record := range []string{"b", "c"} {
			ref := s.put(record, 0, "k")
			both.Go(func() { deliver(t, r, ref) })
		}
		both.Wait()
		sweep(t, r)
		require.Equal(t, 3, p.tries)
		require.Equal(t, "a/0", p.bodies()[0])
		require.Len(t, p.bodies(), 3)
	})
}

// Messages for which there is no memory wait for another run, and keep their order: those that were left
// to the sweep, and those of the same record. No lane takes up the memory that others need.
func TestOrderWithoutMemoryForAll(t *testing.T) {
	const large = 6 << 20 // three are more than a run reads
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		put := func(record string, n int, key string) outbox.Ref {
			ref := s.put(record, n, key)
			s.all[ref].Attributes = map[string]string{"large": strings.Repeat("x", large)}
			return ref
		}
		down := p.fails()
		want := map[string][]string{}
		for n := range 3 {
			for _, key := range []string{"a", "b"} {
				record := fmt.Sprint(key, n)
				deliver(t, r, put(record, 0, key))
				want[key] = append(want[key], record+"/0")
				time.Sleep(time.Second)
			}
		}
		down.Store(false)
		time.Sleep(time.Minute)
		delivers(t, r, outbox.Report{Sent: 3, Deferred: 2}, s.put("a3", 0, "a"), s.put("b3", 0, "b"))
		require.ElementsMatch(t, []string{"a0/0", "a1/0", "b0/0"}, p.bodies())
		want["a"], want["b"] = append(want["a"], "a3/0"), append(want["b"], "b3/0")

		var last outbox.Ref
		for n := range 5 {
			last = put("c", n, "c")
			want["c"] = append(want["c"], fmt.Sprint("c/", n))
		}
		delivers(t, r, outbox.Report{Sent: 3, Deferred: 1}, last)

		sweeps(t, r, 5, time.Hour)
		got := map[string][]string{}
		for _, body := range p.bodies() {
			got[body[:1]] = append(got[body[:1]], body)
		}
		require.Equal(t, want, got)
	})
}

// A sweep reads as much at a time as its passes have the memory for together.
func TestPassesShareTheMemory(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		for n := range 40 {
			ref := s.put(fmt.Sprint("r", n), 0, []string{"", "k"}[n%2])
			s.all[ref].Body = make([]byte, []int{1 << 10, 3 << 20}[n/2%2])
		}
		sweeps(t, r, 1, time.Hour)
		require.Len(t, p.sent, 40)
		require.LessOrEqual(t, s.largest, 8<<20)
		require.Greater(t, s.largest, 6<<20)
	})
}

// A batch ends between the messages of a record, and those that go before its last one do not fit into the memory.
// A relay that finds that one left to the sweep finds them too.
func TestOrderWhereWhatGoesFirstWasNotRead(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		var batch []outbox.Ref
		for n := range 70 { // large messages that go first, 17 MB of them
			record := fmt.Sprintf("x%02d", n)
			s.all[s.put(record, 0, record)].Body = make([]byte, 250<<10)
			batch = append(batch, s.put(record, 1, record))
		}
		first, second, third := s.put("a", 0, "k"), s.put("a", 1, "k"), s.put("a", 2, "k")
		deliver(t, r, append(batch, third)...)
		require.Equal(t, outbox.Retrying, s.get(third).State, "left to the sweep")
		require.Equal(t, outbox.New, s.get(first).State)
		time.Sleep(time.Second)
		deliver(t, r, first)
		deliver(t, r, second)
		sweep(t, r)
		var got []string
		for _, m := range p.sent {
			if m.OrderingKey == "k" {
				got = append(got, string(m.Body))
			}
		}
		require.Equal(t, []string{"a/0", "a/1", "a/2"}, got)
	})
}
