package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// size is how many rows there are, with those whose code was deleted.
const size = 163

// A refactoring that moves or renames what a row breaks must take the row along.
func TestEveryMutantHasItsPlace(t *testing.T) {
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	all, err := mutants()
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, m := range all {
		require.Regexp(t, `^[a-z]+/[a-z-]+$`, m.ID)
		require.False(t, ids[m.ID], "%s is there twice", m.ID)
		ids[m.ID] = true
		if m.Gone != "" {
			require.Equal(t, mutant{ID: m.ID, Gone: m.Gone}, m)
			continue
		}
		if _, _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		require.NotEmpty(t, m.Wrong, m.ID)
		require.True(t, (m.By == "") == (m.Survives != ""), "%s says which test finds it, or why none can", m.ID)
		require.NotEmpty(t, m.tests(), m.ID)
		if pkg, name, ok := strings.Cut(m.By, " "); ok {
			require.Contains(t, testsOf(t, filepath.Join(root, pkg)), "func "+name+"(", m.ID)
		}
		require.NotEqual(t, m.From, m.To, m.ID)
	}
	require.Len(t, ids, size, "a row without its code stays in the list, with the reason")
}

// testsOf is the text of the package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestBlanksOfAMutantDoNotCount(t *testing.T) {
	root := t.TempDir()
	text := "package p\n\ntype row struct{ id,\n\twhy string }\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "p.go"), []byte(text), 0o600))
	m := mutant{In: ".", From: "type   row struct{ id, why string }", To: "type row int"}
	_, mutated, err := m.apply(root)
	require.NoError(t, err)
	require.Equal(t, "package p\n\ntype row int\n", string(mutated))
	m.From = "no such text"
	_, _, err = m.apply(root)
	require.ErrorContains(t, err, "must be there once")
}
