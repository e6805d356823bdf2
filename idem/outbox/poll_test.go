package outbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// polls polls every second until the test ends, and returns the sum of the reports.
func polls(t *testing.T, r *outbox.Relay) *outbox.Report {
	ctx, cancel := context.WithCancel(t.Context())
	var sum outbox.Report
	var g sync.WaitGroup
	g.Go(func() {
		r.Poll(ctx, time.Second, func(one outbox.Report, err error) {
			require.True(t, err == nil || ctx.Err() != nil, "%v", err)
			sum.Sent, sum.Failed, sum.Dead, sum.Missed = sum.Sent+one.Sent, sum.Failed+one.Failed, sum.Dead+one.Dead,
				sum.Missed+one.Missed
		})
	})
	t.Cleanup(func() {
		cancel()
		g.Wait()
	})
	return &sum
}

// Without a stream a message is sent within a poll, in its order, by one of several relays.
func TestPollSendsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		sums := []*outbox.Report{polls(t, relay(t, s, p, nil)), polls(t, relay(t, s, p, nil))}
		time.Sleep(time.Minute)
		for n := range 3 {
			s.put("a", n, "k")
		}
		s.put("b", 0, "")
		time.Sleep(1500 * time.Millisecond)
		require.ElementsMatch(t, []string{"a/0", "a/1", "a/2", "b/0"}, p.bodies())
		synctest.Wait()
		require.Equal(t, 4, sums[0].Sent+sums[1].Sent)
		require.Zero(t, sums[0].Missed+sums[1].Missed, "there is no stream that could have missed them")
		var ordered []string
		for _, body := range p.bodies() {
			if body != "b/0" {
				ordered = append(ordered, body)
			}
		}
		require.Equal(t, []string{"a/0", "a/1", "a/2"}, ordered)
	})
}

// A destination that is down is asked now and then, its messages survive three quarters of an hour, and one that hangs
// does not hold up another one.
func TestPollOfADestinationThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, slow := newMemoryStore(), &post{}, &post{}
		down := slow.fails()
		slow.before = func() { time.Sleep(9 * time.Second) }
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": p, "slow": slow}, nil)
		require.NoError(t, err)
		for n := range 30 {
			s.all[s.put("slow", n, "")].Destination = "slow"
		}
		sum := polls(t, r)
		for n := range 44 {
			s.put("a", n, "")
			time.Sleep(time.Minute)
			require.Len(t, p.bodies(), n+1)
		}
		synctest.Wait()
		require.Zero(t, sum.Dead)
		require.LessOrEqual(t, len(slow.calls), 44*60/10)
		down.Store(false)
		time.Sleep(5 * time.Minute)
		require.Len(t, slow.bodies(), 30)
	})
}

// A message that is never taken becomes a dead letter, after so many tries as the options say. Each is noted before it
// is made.
func TestPollGivesUp(t *testing.T) {
	for tries, want := range map[int]int{0: 30, 3: 3} {
		synctest.Test(t, func(t *testing.T) {
			s, p := newMemoryStore(), &post{}
			p.fails()
			ref := s.put("a", 0, "")
			p.before = func() { require.Equal(t, p.tries+1, s.get(ref).Tries) }
			begun := time.Now()
			polls(t, relay(t, s, p, &outbox.Options{MaxTries: tries}))
			for s.get(ref).State != outbox.Dead {
				time.Sleep(time.Second)
				require.Less(t, time.Since(begun), 3*time.Hour)
			}
			require.Equal(t, want, s.get(ref).Tries)
			require.True(t, tries > 0 || time.Since(begun) >= 45*time.Minute)
		})
	}
}

// Several programs poll one store, each for destinations of its own: none gives up a message of another, nor
// counts a try. Those that stay are reported.
func TestPollLeavesMessagesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		var refs []outbox.Ref
		for n := range 3 {
			refs = append(refs, s.put("a", n, ""), s.put("b", n, "k"))
		}
		for _, ref := range refs {
			s.all[ref].Destination = "others"
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		begun, waited := time.Now(), time.Duration(0)
		tried, problems := 0, []string(nil)
		relay(t, s, p, nil).Poll(ctx, time.Second, func(r outbox.Report, _ error) {
			if tried += r.Failed + r.Dead + r.Left; r.Deferred > 0 && waited == 0 {
				problems, waited = r.Problems, time.Since(begun)
			}
		})
		require.Zero(t, tried)
		require.Len(t, problems, 1)
		require.Contains(t, problems[0], `destination "others"`)
		require.GreaterOrEqual(t, waited, outbox.DefaultGrace)
		for _, ref := range refs {
			e := s.get(ref)
			require.Equal(t, outbox.New, e.State)
			require.Zero(t, e.Tries)
			require.Zero(t, e.NextTry)
		}
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"others": p}, nil)
		require.NoError(t, err)
		polls(t, r)
		time.Sleep(time.Second)
		require.Len(t, p.bodies(), len(refs))
	})
}

// In a function that is called every minute, Poll returns in time.
func TestPollReturnsBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		r := relay(t, s, p, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for n := range 50 {
				time.Sleep(time.Second)
				s.put("a", n, "")
			}
		}()
		begun := time.Now()
		r.Poll(ctx, time.Second, nil)
		require.NoError(t, ctx.Err())
		require.Greater(t, time.Since(begun), 50*time.Second)
		require.Len(t, p.bodies(), 50)
	})
}

// A service is stopped while a message is being sent: the queue takes it, and that is noted.
func TestAStoppedPollNotesWhatItHasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		ref := s.put("a", 0, "")
		ctx, cancel := context.WithCancel(t.Context())
		p.before = cancel
		relay(t, s, p, nil).Poll(ctx, time.Second, nil)
		require.Equal(t, []string{"a/0"}, p.bodies())
		require.Equal(t, outbox.Dispatched, s.get(ref).State)
	})
}

// A store that hangs keeps a service that is stopped for as long as a note may take.
func TestAStoppedPollDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		s.put("a", 0, "")
		ctx, cancel := context.WithCancel(t.Context())
		p.before = cancel
		begun := time.Now()
		relay(t, hanging{s}, p, nil).Poll(ctx, time.Second, nil)
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
}

// A note may take as long as its run: a store that is slow for some seconds has nothing sent twice.
func TestANoteHasTheTimeOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		ref := s.put("a", 0, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		end, _ := ctx.Deadline()
		timed := &timed{memoryStore: s}
		_, _, err := relay(t, timed, p, nil).Deliver(ctx, []outbox.Ref{ref})
		require.NoError(t, err)
		require.Equal(t, outbox.Dispatched, s.get(ref).State)
		require.Equal(t, end, timed.end)
	})
}

// timed is a store that keeps the deadline of a note of what was sent.
type timed struct {
	*memoryStore
	end time.Time
}

func (s *timed) Dispatch(ctx context.Context, now time.Time, e *outbox.Entry, id string, expires time.Time) (
	bool, error) {
	s.end, _ = ctx.Deadline()
	return s.memoryStore.Dispatch(ctx, now, e, id, expires)
}

// hanging is a store that does not answer notes of what was sent.
type hanging struct{ *memoryStore }

func (hanging) Dispatch(ctx context.Context, _ time.Time, _ *outbox.Entry, _ string, _ time.Time) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}
