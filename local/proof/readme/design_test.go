package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// inPackage is a package in a table's cell with the tests that follow it.
	inPackage = regexp.MustCompile("`((?:idem|lambda|infra|local|template-tests)[a-z/-]*)`((?:,? ?`Test[A-Za-z0-9]+`)+)")
	testName  = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	invariant = regexp.MustCompile(`(?m)^\| \d+ \| [^|]+ \| ([^|]+) \| [^|]+ \|$`)
	// numbered is a row of that table, whatever it names.
	numbered = regexp.MustCompile(`(?m)^\| \d+ \|`)
	goFile   = regexp.MustCompile("`([a-z/]+/[a-z_]+\\.go)`")
)

// TestDesignNamesTestsThatExist finds every test that the design page names, in the
// package that it names.
func TestDesignNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "idem", "DESIGN.md"))
	require.NoError(t, err)
	named := 0
	for _, m := range inPackage.FindAllStringSubmatch(string(text), -1) {
		for _, test := range testName.FindAllStringSubmatch(m[2], -1) {
			require.True(t, hasTest(t, m[1], test[1]), "%s has no %s", m[1], test[1])
			named++
		}
	}
	require.Equal(t, len(testName.FindAllString(string(text), -1)), named, "a test is named without its package")
}

// TestDesignNamesFilesThatExist finds the files that decide each invariant.
func TestDesignNamesFilesThatExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "idem", "DESIGN.md"))
	require.NoError(t, err)
	rows := invariant.FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, len(numbered.FindAllString(string(text), -1)), "a row of the invariants does not name the files that decide it")
	require.NotEmpty(t, rows)
	for _, row := range rows {
		files := goFile.FindAllStringSubmatch(row[1], -1)
		require.Len(t, files, strings.Count(row[1], ",")+1, "name Go files from the root of the repository: %s", row[0])
		for _, file := range files {
			require.FileExists(t, filepath.Join(root, file[1]))
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
