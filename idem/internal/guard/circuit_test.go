package guard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// A frozen process may find that one of the clocks has stood still: the other one tells it
// that the pause is over. A wall clock that is set back does not make it longer.
func TestThePauseOfACircuitEndsByEitherClock(t *testing.T) {
	for name, tc := range map[string]struct {
		monotonic, wall time.Duration // since the last failure
		over            bool
	}{
		"none":                            {0, 0, false},
		"both":                            {circuitPause, circuitPause, true},
		"the monotonic clock stood still": {0, time.Hour, true},
		"the wall clock was set back":     {circuitPause, -time.Hour, true},
		"set back just now":               {0, -time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &circuit{}
				for range circuitFailures {
					c.failure(errors.New("down"))
				}
				now := RightNow()
				c.latest = Instant{now.monotonic.Add(-tc.monotonic), now.wall - tc.wall.Milliseconds()}
				require.Equal(t, tc.over, c.pass("Acquire") == nil)
			})
		})
	}
}

// What says nothing of the store does not count: callers that leave, and such as give it no time.
func TestWhatSaysNothingOfTheStoreDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Circuit(silentStore{}, func(_ context.Context, kind notice.Kind, _ string, _ notice.Notice) { t.Error(kind) })
		for range 3 * circuitFailures {
			ctx, cancel := context.WithTimeout(t.Context(), leastPatience-1)
			_, err := s.Get(ctx, "t#op#k")
			require.Error(t, err)
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err = s.Get(ctx, "t#op#k")
			require.Error(t, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		s := Circuit(silentStore{}, func(context.Context, notice.Kind, string, notice.Notice) { opened++ })
		for range circuitFailures {
			ctx, cancel := context.WithTimeout(t.Context(), leastPatience)
			_, err := s.Get(ctx, "t#op#k")
			require.Error(t, err)
			cancel()
		}
		require.Equal(t, 1, opened)
	})
}

// silentStore answers no read.
type silentStore struct{ protocol.Store }

func (silentStore) Get(ctx context.Context, _ string) (*protocol.Record, error) {
	<-ctx.Done()
	return nil, &protocol.StoreError{Op: "Get", Down: true, Err: ctx.Err()}
}

// Forget makes a guard forget what it knows of a record that was deleted behind it.
func Forget(s protocol.Store, id string) {
	switch s := s.(type) {
	case *holding:
		s.forget(id, "")
	case *withdrawals:
		s.forget(id)
	}
}
