package idem

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
				c := &circuit{least: 1, memory: 2 * time.Hour}
				require.True(t, c.failure(errors.New("down"), false))
				now := rightNow()
				c.latest = instant{now.monotonic.Add(-tc.monotonic), now.wall - tc.wall.Milliseconds()}
				asks, err := c.pass()
				require.Equal(t, tc.over, asks)
				require.Equal(t, tc.over, err == nil)
			})
		})
	}
}
