package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func deliver(t *testing.T, r *outbox.Relay, refs ...outbox.Ref) (outbox.Report, int) {
	t.Helper()
	report, first, err := r.Deliver(within(t, time.Minute), refs)
	require.NoError(t, err)
	return report, first
}

func sweep(t *testing.T, r *outbox.Relay) outbox.Report {
	t.Helper()
	report, err := r.Sweep(within(t, time.Minute))
	require.NoError(t, err)
	return report
}

func TestDeliverAndReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r := relay(t, s, p, nil)
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "k"), s.put("b", 1, "k")}
		refs = append(refs, refs[0], outbox.Ref{Record: "gone", ID: "x"})
		report, first := deliver(t, r, refs...)
		require.Equal(t, len(refs), first)
		require.Equal(t, outbox.Report{Sent: 3, Skipped: 1}, report)
		require.ElementsMatch(t, []string{"a/0", "b/0", "b/1"}, p.bodies())
		require.Equal(t, outbox.Dispatched, s.get(refs[0]).State)
		require.Equal(t, idOf("a", 0), p.sent[0].ID)

		report, first = deliver(t, r, refs...)
		require.Equal(t, len(refs), first)
		require.Equal(t, outbox.Report{Skipped: 5}, report)
		require.Len(t, p.sent, 3, "a replayed stream sends nothing again")
		time.Sleep(time.Hour)
		require.Equal(t, outbox.Report{}, sweep(t, r))
	})
}

// A message without an ordering key holds up nothing; the sweep tries it again.
func TestHalfABatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		p.fault = func(m outbox.Message) error {
			if strings.HasPrefix(string(m.Body), "odd") {
				return errDown
			}
			return nil
		}
		r := relay(t, s, p, nil)
		var refs []outbox.Ref
		for i := range 10 {
			refs = append(refs, s.put(fmt.Sprintf("%s-%d", []string{"even", "odd"}[i%2], i), 0, ""))
		}
		report, first := deliver(t, r, refs...)
		require.Equal(t, 10, first)
		require.Equal(t, outbox.Report{Sent: 5, Failed: 5, Problems: []string{"orders: the queue is down"}}, report)
		e := s.get(refs[1])
		require.Equal(t, outbox.Retrying, e.State)
		require.Equal(t, 1, e.Tries)
		require.Equal(t, "the queue is down", e.Reason)

		report, first = deliver(t, r, refs...)
		require.Equal(t, 10, first)
		require.Equal(t, 10, report.Skipped, "a replay of the stream does not try before time")
		require.Equal(t, outbox.Report{}, sweep(t, r), "the stream's grace is not over")
		p.fault = nil
		time.Sleep(outbox.DefaultGrace)
		require.Equal(t, outbox.Report{Sent: 5}, sweep(t, r))
		require.Len(t, p.sent, 10)
	})
}

// What is in order waits for the one before it, for no other key, and not for
// ever.
func TestOrderHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		failures := 3
		p.fault = func(m outbox.Message) error {
			if string(m.Body) == "a/0" && failures > 0 {
				failures--
				return errDown
			}
			return nil
		}
		r := relay(t, s, p, nil)
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k"), s.put("c", 0, "l"), s.put("d", 0, "")}
		begun := time.Now()
		report, first := deliver(t, r, refs...)
		require.Equal(t, 4, first)
		require.Equal(t, 4, report.Sent)
		require.Equal(t, 3, report.Failed)
		require.Equal(t, []string{"a/0", "b/0"}, p.bodies()[2:])
		require.ElementsMatch(t, []string{"c/0", "d/0"}, p.bodies()[:2])
		require.Equal(t, 7*time.Second, time.Since(begun), "1 + 2 + 4 s")
	})
}

func TestPoisonHoldsItsKeyNoLongerThanItsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		p.fault = func(m outbox.Message) error {
			if m.ID == idOf("a", 0) {
				return errDown
			}
			return nil
		}
		r := relay(t, s, p, nil)
		refs := []outbox.Ref{s.put("x", 0, ""), s.put("a", 0, "k"), s.put("b", 0, "k")}
		begun, calls := time.Now(), 0
		for {
			calls++
			_, first := deliver(t, r, refs...)
			if first == len(refs) {
				break
			}
			require.Equal(t, 1, first, "the shard goes on from the poison")
			require.NotContains(t, p.bodies(), "b/0")
		}
		require.Equal(t, []string{"x/0", "b/0"}, p.bodies())
		e := s.get(refs[1])
		require.Equal(t, outbox.Parked, e.State)
		require.Equal(t, outbox.DefaultMaxTries, e.Tries)
		require.Equal(t, "the queue is down", e.Reason)
		require.Equal(t, 2+outbox.DefaultMaxTries, p.tries)
		require.Less(t, time.Since(begun), 7*time.Minute)
		require.LessOrEqual(t, calls, 10, "calls wait instead of coming back at once")
	})
}

func TestRejectedIsParkedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		p.fault = func(m outbox.Message) error {
			if m.ID == idOf("a", 0) {
				return outbox.Reject(errors.New("too large for the queue"))
			}
			return nil
		}
		r := relay(t, s, p, nil)
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k")}
		report, first := deliver(t, r, refs...)
		require.Equal(t, 2, first)
		require.Equal(t, 1, report.Parked)
		require.Equal(t, 1, report.Sent)
		e := s.get(refs[0])
		require.Equal(t, outbox.Parked, e.State)
		require.Contains(t, e.Reason, "too large for the queue")
	})
}

func TestDestinationWithoutRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"prices": p}, &outbox.Options{MaxTries: 1})
		require.NoError(t, err)
		ref := s.put("a", 0, "")
		report, _ := deliver(t, r, ref)
		require.Equal(t, 1, report.Parked)
		require.Contains(t, s.get(ref).Reason, `no destination "orders"`)
	})
}

// Killed between send and note: sent again, under the same id, and nothing behind
// it is taken for done.
func TestSentAndNotNoted(t *testing.T) {
	for _, key := range []string{"", "k"} {
		synctest.Test(t, func(t *testing.T) {
			s, p := newShelf(), &post{}
			lost := true
			s.fault = func(op string) error {
				if op == "Dispatch" && lost {
					return errors.New("no reply")
				}
				return nil
			}
			r := relay(t, s, p, nil)
			refs := []outbox.Ref{s.put("a", 0, key), s.put("b", 0, key)}
			report, first := deliver(t, r, refs...)
			require.Zero(t, first)
			require.Equal(t, 2, report.Left)
			require.Equal(t, []string{"no reply"}, report.Problems)
			if key != "" {
				require.Equal(t, []string{"a/0"}, p.bodies(), "what is behind it waits")
			}
			lost = false
			report, first = deliver(t, r, refs...)
			require.Equal(t, 2, first)
			require.Equal(t, 2, report.Sent)
			ids := map[string]string{}
			for _, m := range p.sent {
				ids[m.ID] = string(m.Body)
			}
			require.Len(t, ids, 2, "nothing goes out under two ids")
		})
	}
}

func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r := relay(t, s, p, nil)
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "k")}
		down := ""
		s.fault = func(op string) error {
			if op == down {
				return errors.New("store down")
			}
			return nil
		}
		down = "Load"
		_, first, err := r.Deliver(t.Context(), refs)
		require.ErrorContains(t, err, "store down")
		require.Zero(t, first)
		down = "Retry"
		p.fault = func(outbox.Message) error { return errDown }
		report, first := deliver(t, r, refs...)
		require.Zero(t, first, "a failure that cannot be noted is delivered again")
		require.Equal(t, 2, report.Left)
		down = "Park"
		p.fault = func(outbox.Message) error { return outbox.Reject(errDown) }
		_, first = deliver(t, r, refs...)
		require.Zero(t, first)
		down = "Waiting"
		_, err = r.Sweep(t.Context())
		require.ErrorContains(t, err, "store down")
		require.Equal(t, outbox.New, s.get(refs[0]).State)
	})
}

// A message of a transaction is never sent before another of it with the same key,
// even if the stream brings them the wrong way round, or one alone.
func TestNumbersAreTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r := relay(t, s, p, nil)
		zero, one, other, two := s.put("a", 0, "k"), s.put("a", 1, "k"), s.put("a", 2, "l"), s.put("a", 3, "k")
		_, first := deliver(t, r, two)
		require.Equal(t, 1, first)
		require.Equal(t, []string{"a/0", "a/1", "a/3"}, p.bodies())
		report, _ := deliver(t, r, other, one, zero)
		require.Equal(t, outbox.Report{Sent: 1, Skipped: 2}, report)
	})
}

// A try that takes the relay with it is counted, so it is not made without end.
func TestTriesThatNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		ref := s.put("a", 0, "")
		r := relay(t, s, p, &outbox.Options{MaxTries: 3})
		p.fault = func(outbox.Message) error {
			require.Equal(t, p.tries, s.get(ref).Tries, "noted before it is made")
			return nil
		}
		s.fault = func(op string) error { // the process ends here
			if op == "Dispatch" {
				return errors.New("gone")
			}
			return nil
		}
		for range 5 {
			time.Sleep(time.Hour)
			sweep(t, r)
		}
		require.Equal(t, 3, p.tries)
		require.Equal(t, outbox.Parked, s.get(ref).State)
		require.Equal(t, "no try came to an end", s.get(ref).Reason)
	})
}

// Two sweeps at once make a try once.
func TestSweepsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		for i := range 50 {
			s.put(fmt.Sprintf("r-%d", i), 0, []string{"", "k"}[i%2])
		}
		time.Sleep(time.Hour)
		r := relay(t, s, p, nil)
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
		for range 10 {
			time.Sleep(time.Hour)
			sweep(t, r)
		}
		require.Len(t, p.sent, 50)
	})
}

// An older message that waits for its next try holds its key, over pages too.
func TestSweepHoldsKeysOverPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		s.page = 2
		r := relay(t, s, p, &outbox.Options{Backoff: time.Hour, MaxBackoff: time.Hour})
		for i := range 7 {
			s.put(fmt.Sprintf("r-%d", i), 0, "k")
			time.Sleep(time.Second)
		}
		p.fault = func(m outbox.Message) error {
			if m.ID == idOf("r-1", 0) {
				return errDown
			}
			return nil
		}
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

// Time runs out before everything is sent: what is left is delivered again.
func TestTimeRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r := relay(t, s, p, nil)
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

func TestUnreadableIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		r := relay(t, s, p, nil)
		ref := s.put("a", 0, "")
		s.all[ref].Unreadable = errors.New("of version 9")
		report, first := deliver(t, r, ref, s.put("b", 0, ""))
		require.Equal(t, 2, first)
		require.Equal(t, outbox.Report{Sent: 1, Unreadable: 1, Problems: []string{"of version 9"}}, report)
		time.Sleep(time.Hour)
		require.Equal(t, 1, sweep(t, r).Unreadable)
		require.Equal(t, outbox.New, s.get(ref).State)
	})
}

// The stream and the sweep meet over old messages: whoever comes second is done.
func TestDeliveriesSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		s.fault = func(op string) error {
			if op == "Begin" {
				time.Sleep(time.Second) // so that both have read what there is
			}
			return nil
		}
		refs := []outbox.Ref{s.put("a", 0, ""), s.put("b", 0, "")}
		time.Sleep(time.Hour)
		r := relay(t, s, p, nil)
		done := make(chan int)
		for range 2 {
			go func() {
				_, first, err := r.Deliver(t.Context(), refs)
				require.NoError(t, err)
				done <- first
			}()
		}
		require.Equal(t, 2, <-done)
		require.Equal(t, 2, <-done)
		require.Equal(t, 2, p.tries)
	})
}

// A sweep waits for nothing; a delivery waits, and leaves time to be told.
func TestWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newShelf(), &post{}
		refs := []outbox.Ref{s.put("a", 0, "k"), s.put("b", 0, "k"), s.put("c", 0, "")}
		time.Sleep(time.Hour)
		later := time.Now().Add(time.Hour)
		for _, ref := range refs[1:] {
			s.all[ref].State, s.all[ref].Tries, s.all[ref].NextTry = outbox.Retrying, 1, later
		}
		r := relay(t, s, p, nil)
		begun := time.Now()
		report := sweep(t, r)
		require.Equal(t, 1, report.Sent)
		require.Zero(t, time.Since(begun))
		report, first := deliver(t, r, refs...)
		require.Equal(t, 1, first)
		require.Equal(t, outbox.Report{Skipped: 2, Left: 1}, report)
		require.Equal(t, time.Minute-outbox.DefaultMargin, time.Since(begun))
		time.Sleep(time.Hour)
		report, first = deliver(t, r, refs...)
		require.Equal(t, 3, first)
		require.Equal(t, outbox.Report{Skipped: 1, Sent: 2}, report)
	})
}
