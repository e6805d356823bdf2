package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var functionRow = regexp.MustCompile("(?m)^\\| \\[([a-z]+)\\]\\((.+?)\\) \\| .+ \\| `go test \\./(.+)` \\|$")

// The page of the functions has each folder, with a command that tests it.
func TestFunctionsAreListed(t *testing.T) {
	var folders, listed []string
	entries, err := os.ReadDir(filepath.Join(root, "lambda/functions"))
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
	}
	for _, row := range functionRow.FindAllStringSubmatch(read(t, "lambda/functions/README.md"), -1) {
		listed = append(listed, row[1])
		require.True(t, strings.HasPrefix(row[2], row[1]))
		require.Contains(t, read(t, row[3]+"/*_test.go"), "\nfunc Test")
	}
	slices.Sort(listed)
	require.Equal(t, folders, listed)
}
