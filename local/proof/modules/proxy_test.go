package modules

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

const library = "github.com/idem-go/idempotency"

// module is one of the workspace.
type module struct{ Path, Dir string }

// untagged are modules of tests, which nothing imports.
var untagged = []string{library + "/template-tests", library + "/idem/internal/canonical/reference"}

// workspace are all modules, the library first.
func workspace(t *testing.T) (all []module) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, module{path, dir})
	}
	require.Equal(t, library, all[0].Path, "run this inside the workspace")
	require.Greater(t, len(all), 1, "run this inside the workspace")
	return all
}

// tagged are the modules that a release tags.
func tagged(t *testing.T) []module {
	return slices.DeleteFunc(workspace(t), func(m module) bool { return slices.Contains(untagged, m.Path) })
}

// version is the one in which the modules require each other.
func version(t *testing.T, all []module) (v string) {
	for _, m := range all {
		for _, r := range requirements(t, m.Dir) {
			if own(r.Path) {
				require.True(t, v == "" || v == r.Version, "%s requires %s %s, others %s", m.Path, r.Path, r.Version, v)
				v = r.Version
			}
		}
	}
	require.NotEmpty(t, v)
	return v
}

func own(path string) bool { return path == library || strings.HasPrefix(path, library+"/") }

type requirement struct {
	Path, Version string
	Indirect      bool
}

// requirements are those of a go.mod. Releases have no replacement: with one, go install refuses.
func requirements(t *testing.T, dir string) []requirement {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	var mod struct {
		Require          []requirement
		Replace, Exclude []any
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	require.Empty(t, mod.Replace, dir)
	require.Empty(t, mod.Exclude, dir)
	return mod.Require
}

// publish writes the modules as they are now into a new folder, as a module proxy serves them.
func publish(t *testing.T, all []module, version string) (proxy string) {
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
func pack(t *testing.T, m module, version, file string) {
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
