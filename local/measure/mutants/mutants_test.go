package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A refactoring that moves or renames what a row breaks must take the row along.
func TestEveryMutantHasItsPlace(t *testing.T) {
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	for _, m := range mutants() {
		_, mutated, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		require.NotEmpty(t, mutated)
		require.NotEmpty(t, m.wrong, m.id)
		require.NotEmpty(t, m.tests, m.id)
		require.NotEqual(t, m.from, m.to, m.id)
	}
}

func TestNoMutantIsLost(t *testing.T) {
	ids := map[string]bool{}
	for _, m := range mutants() {
		require.False(t, ids[m.id], "%s is there twice", m.id)
		ids[m.id] = true
	}
	for _, row := range removed {
		require.False(t, ids[row.id], "%s is removed, and still there", row.id)
		ids[row.id] = true
		require.NotEmpty(t, row.why, row.id)
	}
	require.Len(t, ids, size, "what is removed from the list is listed as removed, with the reason")
	for id := range ids {
		require.Regexp(t, regexp.MustCompile(`^[a-z]+/[a-z-]+$`), id)
		require.True(t, slices.Contains(groups, groupOf(id)), id)
	}
}

func TestBlanksOfAMutantDoNotCount(t *testing.T) {
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	here := mutant{in: "local/measure/mutants", from: "type   gone struct{ id,\n\twhy string }", to: "type gone int"}
	file, mutated, err := here.apply(root)
	require.NoError(t, err)
	require.Contains(t, file, "mutant.go")
	require.Contains(t, string(mutated), "\ntype gone int\n")
	here.from = "no such text of the package but here"
	_, _, err = here.apply(root)
	require.ErrorContains(t, err, "must be there once")
}
