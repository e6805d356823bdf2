// Package readme holds the READMEs to what compiles.
package readme

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// tracked are the files of the repository that match the pattern, also new ones.
func tracked(t *testing.T, pattern string) []string {
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", pattern).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// read is the text of the files that match the pattern, which begins at the repository's root.
func read(t *testing.T, pattern string) string {
	files, err := filepath.Glob(filepath.Join(root, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

var fence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

func blocks(t *testing.T) (programs, fragments []string) {
	for _, name := range []string{
		"README.md", "CONTRIBUTING.md", "idem/README.md", "idem/console/README.md", "idem/idemtest/README.md",
		"idem/idemhttp/README.md", "infra/README.md", "lambda/README.md", "local/README.md",
	} {
		found := fence.FindAllStringSubmatch(read(t, name), -1)
		require.NotEmpty(t, found, name)
		for _, m := range found {
			if strings.HasPrefix(m[1], "package ") {
				programs = append(programs, m[1])
			} else {
				fragments = append(fragments, m[1])
			}
		}
	}
	return programs, fragments
}

// TestProgramsCompile builds each program of the README inside the module, as an
// overlay that is never written into it.
func TestProgramsCompile(t *testing.T) {
	programs, _ := blocks(t)
	require.NotEmpty(t, programs)
	abs, err := filepath.Abs(root)
	require.NoError(t, err)
	for i, source := range programs {
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		pkg := fmt.Sprintf("readme%d", i)
		overlay,
			err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(abs, "local", pkg, "main.go"): file}})
		require.NoError(t, err)
		list := filepath.Join(dir, "overlay.json")
		require.NoError(t, os.WriteFile(list, overlay, 0o600))
		cmd := exec.Command("go", "build", "-overlay", list, "-o", filepath.Join(dir, "out"), "./local/"+pkg)
		cmd.Dir = abs
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "program %d of the README:\n%s\n%s", i+1, source, out)
	}
}

// TestFragmentsAreCompiledSomewhere finds every other snippet, but for its
// indentation, in a Go file of the repository, where it compiles and runs.
func TestFragmentsAreCompiledSomewhere(t *testing.T) {
	_, fragments := blocks(t)
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		all.WriteString(flat(string(text)))
		return err
	}))
	for _, f := range fragments {
		require.True(t, strings.Contains(all.String(), flat(f)), "this snippet of a page is in no Go file:\n%s", f)
	}
}

// function is where a function lies: a page's own one in ./cmd, that of the test which runs the snippet in testdata.
var function = regexp.MustCompile(`\./(cmd|testdata)/\w+"`)

func flat(s string) string {
	s = function.ReplaceAllString(s, `./function"`)
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}
