package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// within gives an invocation its deadline, as Lambda does.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// deliver delivers the messages, and checks that the stream need not deliver any of them again.
func deliver(t *testing.T, r *outbox.Relay, refs ...outbox.Ref) outbox.Report {
	t.Helper()
	report, first, err := r.Deliver(within(t, time.Minute), refs)
	require.NoError(t, err)
	require.Equal(t, len(refs), first, "the stream goes on")
	return report
}

// deliversAgain checks that the stream delivers the messages again, from the first one on.
func deliversAgain(t *testing.T, r *outbox.Relay, refs ...outbox.Ref) outbox.Report {
	t.Helper()
	report, first, err := r.Deliver(within(t, time.Minute), refs)
	require.NoError(t, err)
	require.Zero(t, first)
	return report
}

// delivers checks that a delivery does this.
func delivers(t *testing.T, r *outbox.Relay, want outbox.Report, refs ...outbox.Ref) {
	t.Helper()
	require.Equal(t, want, deliver(t, r, refs...))
}

// sweep returns what a sweep did; the oldest message has a test of its own.
func sweep(t *testing.T, r *outbox.Relay) outbox.Report {
	t.Helper()
	report, err := r.Sweep(within(t, time.Minute))
	require.NoError(t, err)
	report.OldestAt = time.Time{}
	return report
}

// sweeps sweeps so often, each time after a pause.
func sweeps(t *testing.T, r *outbox.Relay, times int, pause time.Duration) {
	t.Helper()
	for range times {
		time.Sleep(pause)
		sweep(t, r)
	}
}

func TestDeliverAndReplay(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "k"), s.put("b", 1, "k")}
		refs = append(refs, refs[0], outbox.Ref{Record: "none", ID: "x"})
		delivers(t, r, outbox.Report{Sent: 3, Skipped: 1}, refs...)
		require.ElementsMatch(t, []string{"a/0", "b/0", "b/1"}, p.bodies())
		require.Equal(t, outbox.Dispatched, s.get(refs[0]).State)
		require.Equal(t, idOf("a", 0), p.sent[0].ID)

		delivers(t, r, outbox.Report{Skipped: 5}, refs...)
		require.Len(t, p.sent, 3, "a replayed stream sends nothing again")
		time.Sleep(time.Hour)
		require.Equal(t, outbox.Report{}, sweep(t, r))
	})
}

// A message without an ordering key holds up nothing; the sweep tries it again.
func TestHalfABatchFails(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failIf(func(m outbox.Message) bool { return strings.HasPrefix(string(m.Body), "odd") }, errDown)
		var refs []outbox.Ref
		for i := range 10 {
			refs = append(refs, s.put(fmt.Sprintf("%s-%d", []string{"even", "odd"}[i%2], i), 0, ""))
		}
		delivers(t, r, outbox.Report{Sent: 5, Failed: 5, Problems: []string{"orders: the queue is down"}}, refs...)
		e, sent := s.get(refs[1]), s.get(refs[0])
		require.Equal(t, []any{outbox.Retrying, 1, "the queue is down"}, []any{e.State, e.Tries, e.Reason})
		require.Equal(t, []any{serviceID(1), time.Now()}, []any{sent.SentID, sent.SentAt})
		require.Equal(t, []any{"", time.Time{}}, []any{e.SentID, e.SentAt}, "it has none of a send that failed")

		delivers(t, r, outbox.Report{Skipped: 10}, refs...) // before time a replay of the stream does not try
		require.Equal(t, outbox.Report{}, sweep(t, r), "the stream's grace is not over")
		p.fault = nil
		time.Sleep(outbox.DefaultGrace)
		require.Equal(t, outbox.Report{Sent: 5}, sweep(t, r))
		require.Len(t, p.sent, 10)
		require.Contains(t, []string{serviceID(11), serviceID(12), serviceID(13), serviceID(14), serviceID(15)},
			s.get(refs[1]).SentID)
	})
}

func TestRejectedIsADeadLetterAtOnce(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failFor(idOf("a", 0), outbox.Reject(errors.New("too large for the queue")))
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k")}
		report := deliver(t, r, refs...)
		require.Equal(t, 1, report.Dead)
		require.Equal(t, 1, report.Sent)
		e := s.get(refs[0])
		require.Equal(t, outbox.Dead, e.State)
		require.Contains(t, e.Reason, "too large for the queue")
	})
}

func TestDestinationWithoutRoute(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"prices": p}, &outbox.Options{MaxTries: 1})
		require.NoError(t, err)
		ref := s.put("a", 0, "")
		report := deliver(t, r, ref)
		require.Equal(t, 1, report.Dead)
		require.Contains(t, s.get(ref).Reason, `no destination "orders"`)
	})
}

// Killed between send and note: sent again, under the same id, and nothing behind it is taken for done. The service's
// id is that of the send that was noted.
func TestSentAndNotNoted(t *testing.T) {
	for _, key := range []string{"", "k"} {
		withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
			s.at("Dispatch", func() error { return errors.New("no reply") })
			refs := []outbox.Ref{s.put("a", 0, key), s.put("b", 0, key)}
			report := deliversAgain(t, r, refs...)
			require.Equal(t, 2, report.Left)
			require.Equal(t, []string{"no reply"}, report.Problems)
			if key != "" {
				require.Equal(t, []string{"a/0"}, p.bodies(), "what is behind it waits")
			}
			require.Equal(t, []any{outbox.New, ""}, []any{s.get(refs[0]).State, s.get(refs[0]).SentID})
			s.fault = nil
			tried := p.tries
			delivers(t, r, outbox.Report{Sent: 2}, refs...)
			delivers(t, r, outbox.Report{Skipped: 2}, refs...)
			require.Equal(t, serviceID(tried+1), s.get(refs[0]).SentID)
			ids := map[string]string{}
			for _, m := range p.sent {
				ids[m.ID] = string(m.Body)
			}
			require.Len(t, ids, 2, "nothing goes out under two ids")
		})
	}
}

func TestStoreDown(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "k")}
		down := func() error { return errors.New("store down") }
		s.at("Load", down)
		_, first, err := r.Deliver(t.Context(), refs)
		require.ErrorContains(t, err, "store down")
		require.Zero(t, first)
		s.at("Retry", down)
		p.fault = func(outbox.Message) error { return errDown }
		report := deliversAgain(t, r, refs...)
		require.Equal(t, 2, report.Left)
		s.at("DeadLetter", down)
		p.fault = func(outbox.Message) error { return outbox.Reject(errDown) }
		deliversAgain(t, r, refs...)
		s.at("Waiting", down)
		_, err = r.Sweep(t.Context())
		require.ErrorContains(t, err, "store down")
		require.Equal(t, outbox.New, s.get(refs[0]).State)
	})
}

// A try that takes the relay with it is counted, so it is not made without end.
func TestTriesThatNeverEnd(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		ref := s.put("a", 0, "")
		r := relay(t, s, p, &outbox.Options{MaxTries: 3})
		p.fault = func(outbox.Message) error {
			require.Equal(t, p.tries, s.get(ref).Tries, "noted before it is made")
			return nil
		}
		s.at("Dispatch", func() error { return errors.New("killed") }) // the process ends here
		sweeps(t, r, 5, time.Hour)
		require.Equal(t, 3, p.tries)
		require.Equal(t, outbox.Dead, s.get(ref).State)
		require.Equal(t, "no try came to an end", s.get(ref).Reason)
	})
}

// Two sweeps at once make a try once.
func TestSweepsSideBySide(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		for i := range 50 {
			s.put(fmt.Sprintf("r-%d", i), 0, []string{"", "k"}[i%2])
		}
		time.Sleep(time.Hour)
		done := make(chan outbox.Report)
		for range 2 {
			go func() {
				report, err := r.Sweep(t.Context())
				require.NoError(t, err)
				done <- report
			}()
		}
		a, b := <-done, <-done
		synctest.Wait()
		require.Len(t, p.sent, a.Sent+b.Sent)
		require.Len(t, p.sent, p.tries)
		sweeps(t, r, 10, time.Hour)
		require.Len(t, p.sent, 50)
	})
}

// Time runs out before everything is sent: what is left is delivered again.
func TestTimeRunsOut(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		r := relay(t, s, p, &outbox.Options{Patience: time.Minute})
		p.fault = func(outbox.Message) error {
			time.Sleep(7 * time.Second)
			return nil
		}
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k"), s.put("c", 0, "k")}
		report, first, err := r.Deliver(within(t, 10*time.Second), refs)
		require.NoError(t, err)
		require.Equal(t, 2, first)
		require.Equal(t, outbox.Report{Sent: 2, Left: 1}, report)
		_, first, err = r.Deliver(within(t, 10*time.Second), refs)
		require.NoError(t, err)
		require.Equal(t, 3, first)
	})
}

// A send ends while there is time left to note what became of it.
func TestASendEndsBeforeTheDeadline(t *testing.T) {
	for within, most := range map[time.Duration]time.Duration{8 * time.Second: 6 * time.Second,
		4 * time.Second: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, began, ended := newMemoryStore(), time.Now(), time.Time{}
			endless := sending(func(ctx context.Context, messages []outbox.Message) []outbox.Sent {
				<-ctx.Done()
				ended = time.Now()
				return make([]outbox.Sent, len(messages))
			})
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, _, err := relay(t, s, endless, &outbox.Options{Patience: time.Minute}).Deliver(ctx,
				[]outbox.Ref{s.put("a", 0, "k")})
			require.NoError(t, err)
			require.Equal(t, most, ended.Sub(began))
		})
	}
}

// The stream and the sweep both read an old message: the second of them skips it.
func TestDeliveriesSideBySide(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		s.at("Begin", func() error { time.Sleep(time.Second); return nil }) // so that both have read what there is
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "")}
		time.Sleep(time.Hour)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { deliver(t, r, refs...) })
		}
		both.Wait()
		require.Equal(t, 2, p.tries)
	})
}

// From Grace on, to the moment, a try is noted before it is made, and by the first sweep that may see it.
func TestTriesAreNotedFromGraceOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			age   time.Duration
			sweep bool
			noted int
		}{{outbox.DefaultGrace - 1, false, 0}, {outbox.DefaultGrace, false, 1}, {outbox.DefaultGrace, true, 1}} {
			s, p := newMemoryStore(), &post{}
			ref := s.put("a", 0, "")
			time.Sleep(tc.age)
			p.fault = func(outbox.Message) error {
				require.Equal(t, tc.noted, s.get(ref).Tries, "%+v", tc)
				return nil
			}
			if r := relay(t, s, p, nil); tc.sweep {
				require.Equal(t, 1, sweep(t, r).Sent)
			} else {
				delivers(t, r, outbox.Report{Sent: 1}, ref)
			}
		}
	})
}

// sendTimeout bounds a call of a sender.
const sendTimeout = 10 * time.Second

// A try that is begun is no other relay's while it can run, however short the pauses.
func TestATryIsNotStolenWhileItRuns(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		one, two := s.put("rec", 0, "k"), s.put("rec", 1, "k")
		time.Sleep(outbox.DefaultGrace)
		slow := true
		p.before = func() {
			if slow {
				slow = false
				time.Sleep(sendTimeout)
			}
		}
		o := &outbox.Options{Patience: sendTimeout}
		stream, other := relay(t, s, p, o), relay(t, s, p, o)
		var delivered sync.WaitGroup
		delivered.Go(func() { deliver(t, stream, one, two) })
		sweeps(t, other, 9, time.Second)
		delivered.Wait()
		require.Equal(t, []string{"rec/0", "rec/1"}, p.bodies())
	})
}

// A message that a send had no time for was not tried, also if the try was noted before.
func TestWhatIsNotSentIsNotTried(t *testing.T) {
	for _, age := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemoryStore()
			tried := map[string]bool{}
			r := relay(t, s, inBatches(2, func(_ context.Context, batch []outbox.Message) error {
				time.Sleep(1500 * time.Millisecond)
				for _, m := range batch {
					tried[string(m.Body)] = true
				}
				return nil
			}), &outbox.Options{MaxTries: 1})
			var refs []outbox.Ref
			for n := range 40 {
				refs = append(refs, s.put(fmt.Sprint("rec", n), 0, ""))
			}
			time.Sleep(age)
			delivers(t, r, outbox.Report{Sent: 4, Deferred: 36}, refs...)
			for _, ref := range refs {
				e := s.get(ref)
				require.Equal(t, tried[string(e.Body)], e.State == outbox.Dispatched)
				if e.State != outbox.Dispatched {
					require.Zero(t, e.Tries)
				}
			}
			sweeps(t, r, 40, 5*time.Minute)
			require.Len(t, tried, 40)
		})
	}
}

// A message that makes its requests fail, in a way that no sender knows as the
// message's fault, takes no other one along.
func TestPoisonIsGivenUpAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryStore()
		r := relay(t, s, inBatches(10, func(_ context.Context, batch []outbox.Message) error {
			for _, m := range batch {
				if string(m.Body) == "r3/0" {
					return errors.New("413 from something in between")
				}
			}
			return nil
		}), nil)
		for n := range 100 {
			s.put(fmt.Sprint("r", n), 0, "")
		}
		sweeps(t, r, 60, 5*time.Minute)
		for _, e := range s.all {
			require.Equal(t, string(e.Body) == "r3/0", e.State == outbox.Dead, "%s: %s", e.Body, e.State)
		}
	})
}

func TestBadRelays(t *testing.T) {
	s, p := newMemoryStore(), &post{}
	good := map[string]outbox.Sender{"orders": p}
	for says, c := range map[string]struct {
		store   outbox.Store
		senders map[string]outbox.Sender
		o       *outbox.Options
	}{
		"store is nil":             {nil, good, nil},
		"no senders":               {s, nil, nil},
		`sender for "x" is nil`:    {s, map[string]outbox.Sender{"x": nil}, nil},
		"letters":                  {s, map[string]outbox.Sender{"a b": p}, nil},
		"MaxTries is -1":           {s, good, &outbox.Options{MaxTries: -1}},
		"Backoff is -1ns":          {s, good, &outbox.Options{Backoff: -1}},
		"MaxBackoff is 2m0s and l": {s, good, &outbox.Options{Backoff: time.Hour}},
	} {
		_, err := outbox.NewRelay(c.store, c.senders, c.o)
		require.ErrorContains(t, err, says)
	}
}

// hung is a destination that never answers.
var hung = sending(func(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	<-ctx.Done()
	return slices.Repeat([]outbox.Sent{{Err: ctx.Err()}}, len(messages))
})

// A destination that takes a sweep's whole time does not keep it from the others'
// messages: the next sweep begins where this one has ended.
func TestSweepReachesEveryShard(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		for i := range 30 * outbox.Shards {
			ref := s.put(fmt.Sprint("dead", i), 0, "")
			s.all[ref].Destination = "dead"
		}
		const sound = 5 * outbox.Shards // some in each shard
		for i := range sound {
			s.put(fmt.Sprint("sound", i), 0, "")
		}
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": p, "dead": hung}, nil)
		require.NoError(t, err)
		time.Sleep(outbox.DefaultGrace)
		for range 4 { // at 10 s a shard, 5 shards a sweep
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			_, err := r.Sweep(ctx)
			require.NoError(t, err)
			cancel()
			time.Sleep(10 * time.Second)
		}
		require.Len(t, p.sent, sound)
	})
}
