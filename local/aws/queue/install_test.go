package queue

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstallsOnceForAllThatAskAtOnce(t *testing.T) {
	installedCache(t) // skips where npm or node are missing, and warms npm's own cache
	calls := filepath.Join(t.TempDir(), "calls")
	npm, err := exec.LookPath("npm")
	require.NoError(t, err)
	binaries(t, nil, map[string]string{
		"npm": fmt.Sprintf("echo call >> %q\nPATH=%q exec %q \"$@\"", calls, os.Getenv("PATH"), npm),
	})
	folder := emptyFolder(t)
	var wg sync.WaitGroup
	dirs, errs := make([]string, 3), make([]error, 3)
	for i := range dirs {
		wg.Go(func() { dirs[i], errs[i] = install(t.Context(), quiet(t), folder) })
	}
	wg.Wait()
	for i := range dirs {
		require.NoError(t, errs[i])
		require.Equal(t, dirs[0], dirs[i])
	}
	require.NoError(t, checkInstalled(dirs[0]))
	counted, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, "call\n", string(counted), "npm ran once")
}

func TestDamagedInstallationIsMadeAnew(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("fetches once more; with IDEM_LONG=1")
	}
	whole, err := install(t.Context(), quiet(t), installedCache(t))
	require.NoError(t, err)
	folder := emptyFolder(t)
	damaged := filepath.Join(folder, filepath.Base(whole))
	require.NoError(t, os.CopyFS(damaged, os.DirFS(whole)))
	require.NoError(t, checkInstalled(damaged))
	require.NoError(t, os.RemoveAll(filepath.Join(damaged, "node_modules", "fastify")))

	var lines journal
	o := quiet(t)
	o.Log = lines.log
	dir, err := install(t.Context(), o, folder)
	require.NoError(t, err)
	require.Equal(t, damaged, dir)
	require.Contains(t, lines.String(), "damaged")
	require.NoError(t, checkInstalled(damaged))
	require.DirExists(t, filepath.Join(damaged, "node_modules", "fastify"))
}

// emptyFolder is a cache with nothing left over from an installation but what
// belongs there, checked at the end.
func emptyFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, ".*"))
		require.NoError(t, err)
		require.Empty(t, left, "no temporary folders are left")
	})
	return dir
}

const nodeStub = "echo v20.1.0"

func TestWhatIsMissingIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for name, c := range map[string]struct {
		scripts map[string]string
		cache   string
		want    []string
	}{
		"node":           {nil, "", []string{"node is not on PATH", "install Node.js 20 or newer"}},
		"newer node":     {map[string]string{"node": "echo v18.20.4"}, "", []string{"is Node.js 18", "install Node.js 20"}},
		"working node":   {map[string]string{"node": "echo no library >&2; exit 127"}, "", []string{"does not work", "no library", "install Node.js 20"}},
		"node at all":    {map[string]string{"node": "echo hello"}, "", []string{"printed no version: hello"}},
		"npm":            {map[string]string{"node": nodeStub}, "", []string{"npm is not on PATH", "install Node.js"}},
		"network":        {map[string]string{"node": nodeStub, "npm": "echo ECONNREFUSED; exit 1"}, "", []string{"npm ci for " + Package + " failed", "ECONNREFUSED", "check the network"}},
		"content":        {map[string]string{"node": nodeStub, "npm": "echo all fine"}, "", []string{"did not install " + Package, "all fine"}},
		"writable cache": {map[string]string{"node": nodeStub}, file, []string{"cannot be written to", file, EnvCacheDir}},
	} {
		t.Run(name, func(t *testing.T) {
			binaries(t, nil, c.scripts)
			cache := c.cache
			if cache == "" {
				cache = emptyFolder(t)
			}
			_, err := Start(t.Context(), &Options{CacheDir: cache})
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestServerThatFailsShowsItsLastLines(t *testing.T) {
	cache := installedCache(t)
	binaries(t, nil, map[string]string{"node": `[ "$1" = --version ] && echo v20.1.0 && exit; echo SyntaxError >&2; exit 1`})
	_, err := Start(t.Context(), &Options{CacheDir: cache})
	require.ErrorContains(t, err, "ended before it answered")
	require.ErrorContains(t, err, "SyntaxError")
}

// Every package is pinned by its digest, and comes from the registry that npm is
// configured with.
func TestLockFileNamesDigestsAndNoRegistry(t *testing.T) {
	var lock struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	require.NoError(t, json.Unmarshal(lockFile, &lock))
	require.Greater(t, len(lock.Packages), 20)
	for name, p := range lock.Packages {
		if name == "" {
			continue // the manifest itself
		}
		require.NotEmpty(t, p.Version, name)
		require.True(t, strings.HasPrefix(p.Integrity, "sha512-"), name)
		require.Empty(t, p.Resolved, name)
	}
	require.Equal(t, Package, "fauxqs@"+lock.Packages["node_modules/fauxqs"].Version)
}
