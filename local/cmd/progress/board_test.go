package progress

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSlowStepsAreToldOf: what is under way is never silent for longer than the
// interval, and what has ended is not told of.
func TestSlowStepsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		b := Open(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		slow, slower := b.Begin("compiling"), b.Begin("fetching")
		time.Sleep(3 * time.Second)
		slow.Note("%d packages", 12)
		time.Sleep(2 * time.Second)
		slow.End()
		time.Sleep(2 * time.Second)
		slower.End()
		time.Sleep(10 * time.Second)
		b.Begin("starting")
		time.Sleep(1500 * time.Millisecond)
		b.Close()
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{
			"  2s: still compiling, fetching",
			"  4s: still compiling (12 packages), fetching",
			"  6s: still fetching",
			"  18s: still starting",
		}, said)
	})
}
