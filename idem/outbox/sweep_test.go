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
