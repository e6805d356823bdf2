package npm_test

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/npm"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
	"github.com/idem-go/idempotency/idem/testenv/queue"
)

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

func silent(string, ...any) {}

// fake is an npm that installs, and notes how it was called.
func fake(t *testing.T) (p npm.Package, calls func() []string) {
	notes := filepath.Join(t.TempDir(), "notes")
	childtest.Programs(t, []string{"mkdir"}, map[string]string{
		"npm": "echo \"$*\" >> " + notes + "; mkdir -p node_modules/tiny && echo {} > node_modules/tiny/package.json && " +
			"printf whole > node_modules/tiny/index.js",
	})
	return npm.Package{Name: "tiny", Version: "1.0.0"}, func() []string {
		text, err := os.ReadFile(notes)
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

func TestInstallsOnceForAllThatAskAtOnce(t *testing.T) {
	p, calls := fake(t)
	folder := emptyFolder(t)
	var wg sync.WaitGroup
	dirs, errs := make([]string, 3), make([]error, 3)
	for i := range dirs {
		wg.Go(func() { dirs[i], errs[i] = p.Install(t.Context(), folder, silent) })
	}
	wg.Wait()
	for i := range dirs {
		require.NoError(t, errs[i])
		require.Equal(t, dirs[0], dirs[i])
	}
	require.FileExists(t, filepath.Join(dirs[0], "node_modules", "tiny", "index.js"))
	_, err := p.Install(t.Context(), folder, silent)
	require.NoError(t, err, "later uses need no npm")
	require.Len(t, calls(), 1)
	require.Regexp(t, "^ci --ignore-scripts ", calls()[0], "no script is run")
}

func TestDamagedInstallationIsMadeAnew(t *testing.T) {
	p, _ := fake(t)
	folder := emptyFolder(t)
	dir, err := p.Install(t.Context(), folder, silent)
	require.NoError(t, err)
	index := filepath.Join(dir, "node_modules", "tiny", "index.js")
	for name, damage := range map[string]func() error{
		"content":     func() error { return os.WriteFile(index, []byte("whale"), 0o644) },
		"length":      func() error { return os.Truncate(index, 2) },
		"a file less": func() error { return os.Remove(index) },
		"a file more": func() error { return os.WriteFile(index+".new", nil, 0o644) },
		"a name":      func() error { return os.Rename(index, index+".old") },
		"no digest":   func() error { return os.Truncate(filepath.Join(dir, "installed.sha256"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, damage())
			var said strings.Builder
			again, err := p.Install(t.Context(), folder,
				func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
			require.NoError(t, err)
			require.Equal(t, dir, again)
			require.Contains(t, said.String(), "damaged")
			content, err := os.ReadFile(index)
			require.NoError(t, err)
			require.Equal(t, "whole", string(content))
			require.NoFileExists(t, index+".new")
		})
	}
}

// A registry that serves something else than what is pinned.
func TestContentThatIsNotPinnedIsRefused(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	fetched := make(chan string, 9)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched <- r.URL.Path
		fmt.Fprint(w, "another")
	}))
	t.Cleanup(registry.Close)
	t.Setenv("npm_config_registry", registry.URL)
	t.Setenv("npm_config_cache", t.TempDir())
	t.Setenv("npm_config_fetch_retries", "0")
	pinned := sha512.Sum512([]byte("pinned"))
	p := npm.Package{
		Name: "tiny", Version: "1.0.0", Manifest: []byte(`{"name": "test", "dependencies": {"tiny": "1.0.0"}}`),
		Lock: fmt.Appendf(nil, `{"name": "test", "lockfileVersion": 3, "requires": true, "packages": {
			"": {"name": "test", "dependencies": {"tiny": "1.0.0"}},
			"node_modules/tiny": {"version": "1.0.0", "resolved": "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz",
				"integrity": "sha512-%s"}}}`, base64.StdEncoding.EncodeToString(pinned[:])),
	}
	folder := emptyFolder(t)
	_, err := p.Install(t.Context(), folder, silent)
	require.ErrorContains(t, err, "npm ci for tiny@1.0.0 failed")
	require.ErrorContains(t, err, "EINTEGRITY")
	require.ErrorContains(t, err, "check the network and the registry")
	require.Equal(t, "/tiny/-/tiny-1.0.0.tgz", <-fetched)
	left, err := filepath.Glob(filepath.Join(folder, "tiny-*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the lock alone: %v", left)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	p := npm.Package{Name: "tiny", Version: "1.0.0"}
	file := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for name, c := range map[string]struct {
		scripts map[string]string
		folder  string
		want    []string
	}{
		"npm": {nil, "", []string{"npm is not on PATH", "install Node.js"}},
		"network": {map[string]string{"npm": "echo ECONNREFUSED; exit 1"},
			"", []string{"npm ci for tiny@1.0.0 failed", "ECONNREFUSED", "check the network"}},
		"content":        {map[string]string{"npm": "echo all fine"}, "", []string{"did not install tiny@1.0.0", "all fine"}},
		"writable cache": {nil, file, []string{"cannot be written to", file, cache.Env}},
	} {
		t.Run(name, func(t *testing.T) {
			childtest.Programs(t, nil, c.scripts)
			folder := c.folder
			if folder == "" {
				folder = emptyFolder(t)
			}
			_, err := p.Install(t.Context(), folder, silent)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// Every package is pinned by its digest, and comes from the registry that npm is
// configured with.
func TestLockFilesNameDigestsAndNoRegistry(t *testing.T) {
	for _, p := range []npm.Package{queue.Package, dynamodblocal.Package, postgres.Package} {
		var lock struct {
			Packages map[string]struct{ Version, Integrity, Resolved string }
		}
		require.NoError(t, json.Unmarshal(p.Lock, &lock))
		require.Equal(t, p.Version, lock.Packages["node_modules/"+p.Name].Version)
		for name, locked := range lock.Packages {
			if name == "" {
				continue // the manifest itself
			}
			require.NotEmpty(t, locked.Version, name)
			require.True(t, strings.HasPrefix(locked.Integrity, "sha512-"), name)
			require.Empty(t, locked.Resolved, name)
		}
	}
}
