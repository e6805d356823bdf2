package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A healthy store that can be damaged and commits foreign writes fails nothing.
func TestSuitePassesAHealthyStore(t *testing.T) {
	Run(t, func(*testing.T) Harness { return newFaulty(func(*faulty) {}).harness() })
}

func TestSuitePassesAStoreWithoutSteps(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		h := newFaulty(func(*faulty) {}).harness()
		h.WithoutSteps, h.Store = true, stepless{h.Store.(*faulty)}
		return h
	})
}

// Every broken store fails the subtest that is named for its fault.
func TestSuiteFailsBrokenStores(t *testing.T) {
	require.GreaterOrEqual(t, len(brokenStores), 16)
	names := map[string]bool{}
	for _, b := range brokenStores {
		require.False(t, names[b.name], "two stores have the name %q", b.name)
		names[b.name] = true
		t.Run(b.name, func(t *testing.T) {
			require.NotEmpty(t, b.fails)
			for _, name := range b.fails {
				tc := find(t, name)
				require.Empty(t, try(t, tc, newFaulty(func(*faulty) {})), "the healthy store fails %s", name)
				said := try(t, tc, newFaulty(b.change))
				require.NotEmpty(t, said, "%s passes", name)
				t.Logf("%s: %.300s", name, strings.Join(said, "\n"))
			}
		})
	}
}

// The random sequences alone find most faults, whatever the named cases think of.
func TestRandomSequencesFindBrokenStores(t *testing.T) {
	found := 0
	for _, b := range brokenStores {
		for _, tc := range randomCases(true) {
			if len(try(t, tc, newFaulty(b.change))) > 0 {
				found++
				break
			}
		}
	}
	t.Logf("random sequences find %d of %d broken stores", found, len(brokenStores))
	require.Greater(t, found, len(brokenStores)/2)
}

func find(t *testing.T, name string) check {
	groupName, caseName, _ := strings.Cut(name, "/")
	for _, g := range suite(newFaulty(func(*faulty) {}).harness()) {
		if g.name != groupName {
			continue
		}
		for _, tc := range g.cases {
			if tc.name == caseName {
				return tc
			}
		}
	}
	require.FailNow(t, "the suite has no subtest "+name)
	return check{}
}

// Two subtests of one name could hide each other in a report.
func TestSuiteNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range suite(newFaulty(func(*faulty) {}).harness()) {
		require.NotEmpty(t, g.cases, g.name)
		for _, tc := range g.cases {
			name := g.name + "/" + tc.name
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
}

// Times around which the suite's clock moves must never be over for a real TTL.
func TestClockIsFarInTheFuture(t *testing.T) {
	c := newCell(&recorder{}, t.Context(), newFaulty(func(*faulty) {}).harness())
	require.Greater(t, time.Until(c.now), 50*365*24*time.Hour)
}
