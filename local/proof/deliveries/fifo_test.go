package deliveries

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// On a FIFO queue, under the same load, a group's messages take effect in its order,
// once each.
func TestGroupsTakeEffectInOrder(t *testing.T) {
	t.Parallel()
	count, odds, receives := size()
	l := newLoad(t, count, receives, idem.Repeatable, true)
	l.run(odds)
	l.requireOnce()
	l.requireInOrder()
}

func (s *setup) requireInOrder() {
	last := map[string]int{}
	for _, e := range s.done() {
		before, any := last[e.group]
		require.True(s.t, !any || before < e.n, "group %s: %d came after %d", e.group, e.n, before)
		last[e.group] = e.n
	}
}
