package sim_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/sim"
)

// What brings a worker comes twice in a row, and again until the worker has acknowledged it. The stream brings it for
// each change that leaves the work waiting.
func TestWhenAWorkerComes(t *testing.T) {
	for name, c := range map[string]struct {
		message bool
		want    []string
	}{
		"a message": {true, []string{
			"message 1 to jobs ends with: error (busy)", "message 1 to jobs ends with: error (busy)",
			"message 1 to jobs ends with: none (the process was killed)", "message 1 to jobs ends with: null"}},
		"the stream": {false, []string{
			"change 1 to pending ends with: error (busy)", "change 1 to pending ends with: error (busy)",
			"change 1 to pending ends with: none (the process was killed)",
			"change 2 to released ends with: in progress", "change 2 to released ends with: in progress",
			"change 1 to pending ends with: null", "change 2 to released ends with: null"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := sim.New(sim.Plan{{Call: "shop: charge", N: 1}: sim.KilledFirst})
			synctest.Test(t, func(*testing.T) { accepted(idem.Repeatable, c.message, 2)(w) })
			var ends []string
			for _, line := range w.Lines() {
				if end, found := strings.CutPrefix(line, "the delivery of "); found {
					ends = append(ends, end)
				}
			}
			require.Len(t, ends, len(c.want), "%q", ends)
			for i, want := range c.want {
				require.True(t, strings.HasPrefix(ends[i], want), "%q", ends)
			}
		})
	}
}
