package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const engine = "../../../idem"

// The order is the one that the design draws: a file uses what is declared on its own
// line or below.
func TestFilesOfTheEngineUseWhatIsBelowThem(t *testing.T) {
	level := drawn(t)
	var broken []string
	files := map[string]bool{}
	for _, arrow := range arrows(t, files) {
		from, to, _ := strings.Cut(arrow, " -> ")
		to, _, _ = strings.Cut(to, ":")
		if level[to] < level[from] {
			broken = append(broken, arrow)
		}
	}
	require.Empty(t, broken, "move what is used down, or the file that uses it up, in the list of idem/DESIGN.md")
	require.ElementsMatch(t, slices.Collect(maps.Keys(files)), slices.Collect(maps.Keys(level)),
		"the list of idem/DESIGN.md and the files of the package")
}

// drawn reads the list of the design: the line of each file, counted from the top.
func drawn(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine, "DESIGN.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "## The engine's files\n")
	require.True(t, found)
	_, rest, found = strings.Cut(rest, "\n```text\n")
	require.True(t, found)
	list, _, found := strings.Cut(rest, "\n```\n")
	require.True(t, found)
	level := map[string]int{}
	for n, line := range strings.Split(list, "\n") {
		for _, file := range strings.Fields(line)[1:] {
			require.NotContains(t, level, file, "a file has one place")
			level[file] = n
		}
	}
	return level
}

// arrows lists which file uses what of which other one, and collects the files that
// declare something.
func arrows(t *testing.T, declaring map[string]bool) []string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range sources(t) {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
		if len(f.Decls) > 0 {
			declaring[stem(path)] = true
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check(module+"/idem", fset, files, info)
	require.NoError(t, err)
	seen := map[string]bool{}
	for id, used := range info.Uses {
		from, to := stem(fset.Position(id.Pos()).Filename), stem(fset.Position(used.Pos()).Filename)
		if used.Pkg() == pkg && from != to {
			seen[fmt.Sprintf("%s -> %s: %s", from, to, used.Name())] = true
		}
	}
	require.Greater(t, len(seen), 500, "the arrows are there")
	return slices.Sorted(maps.Keys(seen))
}

// sources lists the package's files without its tests.
func sources(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(engine, "*.go"))
	require.NoError(t, err)
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// A feature that needs more than this belongs into a package of its own, around the Store or around Execute.
func TestTheEngineStaysSmall(t *testing.T) {
	paths := sources(t)
	lines := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines += bytes.Count(text, []byte("\n"))
	}
	require.LessOrEqual(t, len(paths), 45, "files of package idem")
	require.LessOrEqual(t, lines, 5500, "lines of package idem: see \"The rule\" in idem/DESIGN.md")
}

func stem(path string) string { return strings.TrimSuffix(filepath.Base(path), ".go") }
