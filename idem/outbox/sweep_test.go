package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// hung is a destination that never answers.
type hung struct{}

func (hung) Send(ctx context.Context, messages []outbox.Message) []error {
	<-ctx.Done()
	errs := make([]error, len(messages))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

// A destination that takes a sweep's whole time does not keep it from the others'
// messages: the next sweep begins where this one has ended.
func TestSweepReachesEveryShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		for i := range 30 * outbox.Shards {
			ref := s.put(fmt.Sprint("dead", i), 0, "")
			s.all[ref].Destination = "dead"
		}
		const sound = 5 * outbox.Shards // some in each shard
		for i := range sound {
			s.put(fmt.Sprint("sound", i), 0, "")
		}
		r, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": p, "dead": hung{}}, nil)
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

// A sweep says how old the oldest message is that it found, whatever its destination and whether it
// was sent; the metric and its alarm go by it.
func TestASweepSaysSinceWhenTheOldestMessageWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		down := false
		p.failWhile(&down)
		r := relay(t, s, p, nil)
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

		down = true
		second := time.Now()
		report, _ := deliver(t, r, s.put("r3", 0, ""))
		require.Zero(t, report.OldestAt, "a delivery sees only what it is given")
		for range 3 {
			time.Sleep(time.Hour)
			require.Equal(t, second, oldest(), "it failed, and still waits")
		}
		down = false
		time.Sleep(time.Hour)
		require.Equal(t, second, oldest())
		require.Zero(t, oldest())

		third := s.put("r4", 0, "")
		s.all[third].Destination = "nobody"
		time.Sleep(outbox.DefaultGrace)
		require.Equal(t, s.all[third].Created, oldest(), "a destination without a route")
	})
}
