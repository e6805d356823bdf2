package limit

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The memory of attempts is bounded, and has the latest.
func TestTheLatestAttemptsAreRemembered(t *testing.T) {
	var a attempts
	for i := range 10 * generation {
		a.add(strconv.Itoa(i))
		require.True(t, a.has(strconv.Itoa(max(0, i-generation+1))))
		require.LessOrEqual(t, len(a.newer)+len(a.older), 2*generation)
	}
	require.False(t, a.has("0"))
	for i := range 10 * generation {
		a.remove(strconv.Itoa(i))
	}
	require.Empty(t, a.newer)
	require.Empty(t, a.older)
}
