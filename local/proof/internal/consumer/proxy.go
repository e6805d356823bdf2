package consumer

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Library is the path of the library's module.
const Library = "github.com/idem-go/idempotency"

// Published is a module of the workspace.
type Published struct{ Path, Dir string }

// untagged are modules of tests, which nothing imports.
var untagged = []string{Library + "/template-tests", Library + "/idem/internal/canonical/reference"}

// workspace are all modules, the library first.
func workspace(t *testing.T) (all []Published) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, Published{path, dir})
	}
	require.Equal(t, Library, all[0].Path, "run this inside the workspace")
	require.Greater(t, len(all), 1, "run this inside the workspace")
	return all
}

// Tagged are the modules that a release tags, the library first.
func Tagged(t *testing.T) []Published {
	return slices.DeleteFunc(workspace(t), func(m Published) bool { return slices.Contains(untagged, m.Path) })
}

// version is the one in which the modules require each other.
func version(t *testing.T, all []Published) (v string) {
	for _, m := range all {
		for _, r := range Requirements(t, m.Dir) {
			if Own(r.Path) {
				require.True(t, v == "" || v == r.Version, "%s requires %s %s, others %s", m.Path, r.Path, r.Version, v)
				v = r.Version
			}
		}
	}
	require.NotEmpty(t, v)
	return v
}

// Own reports whether a module or a package is of this repository.
func Own(path string) bool { return path == Library || strings.HasPrefix(path, Library+"/") }

// Requirement is a line of a go.mod.
type Requirement struct {
	Path, Version string
	Indirect      bool
}

// Requirements are those of the go.mod in a folder. Releases have no replacement: with one, go install refuses.
func Requirements(t *testing.T, dir string) []Requirement {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	var mod struct {
		Require          []Requirement
		Replace, Exclude []any
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	require.Empty(t, mod.Replace, dir)
	require.Empty(t, mod.Exclude, dir)
	return mod.Require
}

// publish writes the modules as they are now into a new folder, as a module proxy serves them.
func publish(t *testing.T, all []Published, version string) (proxy string) {
	proxy = t.TempDir()
	for _, m := range all {
		folder := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		mod, err := os.ReadFile(filepath.Join(m.Dir, "go.mod"))
		require.NoError(t, err)
		info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Unix(0, 0).UTC().Format(time.RFC3339))
		for name, content := range map[string]string{
			"list": version, version + ".info": info, version + ".mod": string(mod),
		} {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
		}
		pack(t, m, version, filepath.Join(folder, version+".zip"))
	}
	return proxy
}

// pack archives what the repository has of a module, without the modules in its folders.
func pack(t *testing.T, m Published, version, file string) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = m.Dir
	out, err := cmd.Output()
	require.NoError(t, err)
	f, err := os.Create(file)
	require.NoError(t, err)
	archive := zip.NewWriter(f)
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for _, name := range names {
		if slices.ContainsFunc(names, func(other string) bool {
			dir, isModule := strings.CutSuffix(other, "/go.mod")
			return isModule && strings.HasPrefix(name, dir+"/")
		}) {
			continue // of a module in this one's folders
		}
		content, err := os.ReadFile(filepath.Join(m.Dir, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		require.NoError(t, err)
		w, err := archive.Create(m.Path + "@" + version + "/" + name)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, f.Close())
}
