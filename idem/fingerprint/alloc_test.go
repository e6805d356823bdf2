//go:build !race

package fingerprint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFingerprintAllocations does not run with the race detector, under which
// sync.Pool, which the canonicaliser's library relies on, drops items at random.
func TestFingerprintAllocations(t *testing.T) {
	doc, raw := jsonOfSize(1<<10), make([]byte, 1<<10)
	allocations := func(f func()) float64 { return testing.AllocsPerRun(200, f) }
	require.LessOrEqual(t, allocations(func() { _, _ = JSON(doc, nil) }), 3.0)
	require.LessOrEqual(t, allocations(func() { Bytes(raw) }), 2.0)
	f, g := Bytes(doc), Bytes(raw)
	require.Zero(t, allocations(func() { f.Compare(g) }))
	require.Zero(t, allocations(func() { f.Compare(f.Recorded()) }))
	both := f + " 2:x"
	require.Zero(t, allocations(func() { both.Compare("2:x") }))
}
