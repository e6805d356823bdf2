package dynamodblocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// emptyCache is a folder of its own with nothing left over from a fetch but
// what belongs there, checked at the end.
func emptyCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, ".*"))
		require.NoError(t, err)
		require.Empty(t, left, "no temporary folders are left")
	})
	return dir
}

func TestProvisionsOnceForAllThatAskAtOnce(t *testing.T) {
	provisionedCache(t) // skips where npm or Java are missing, and warms npm's own cache
	isolate(t)
	calls := filepath.Join(t.TempDir(), "calls")
	npm, err := exec.LookPath("npm")
	require.NoError(t, err)
	binaries(t, []string{"java"}, map[string]string{
		"npm": fmt.Sprintf("echo call >> %q\nPATH=%q exec %q \"$@\"", calls, os.Getenv("PATH"), npm),
	})
	cache := emptyCache(t)

	const callers = 3
	var wg sync.WaitGroup
	dirs, errs := make([]string, callers), make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			s, err := (&Options{}).settings()
			if err == nil {
				dirs[i], err = simulator(t.Context(), s, cache)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i := range callers {
		require.NoError(t, errs[i])
		require.Equal(t, dirs[0], dirs[i])
	}
	require.NoError(t, checkTree(dirs[0]))
	counted, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, "call\n", string(counted), "npm ran once")

	srv, err := Start(t.Context(), &Options{CacheDir: cache})
	require.NoError(t, err)
	requireAnswers(t, srv.Endpoint())
	require.Contains(t, srv.Source(), SimulatorPackage)
	require.NoError(t, srv.Close())
}

func TestLaterStartsNeedNoNPMAndRunSideBySide(t *testing.T) {
	cache := provisionedCache(t)
	isolate(t)
	binaries(t, []string{"java"}, nil)
	first, err := Start(t.Context(), &Options{CacheDir: cache})
	require.NoError(t, err)
	defer first.Close()

	second, err := Start(t.Context(), &Options{CacheDir: cache})
	require.NoError(t, err)
	defer second.Close()
	require.Contains(t, second.Source(), SimulatorPackage)

	require.NotEqual(t, first.Endpoint(), second.Endpoint())
	require.NoError(t, first.Close())
	requireAnswers(t, second.Endpoint())
}

func TestDamagedCacheIsFetchedAnew(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("fetches once more; with IDEM_LONG=1")
	}
	whole := emulator(t)
	isolate(t)
	cache := emptyCache(t)
	damaged := filepath.Join(cache, filepath.Base(whole))
	require.NoError(t, os.CopyFS(damaged, os.DirFS(whole)))
	require.NoError(t, os.Truncate(filepath.Join(damaged, jarName), 1000))

	var lines journal
	s, err := (&Options{Log: lines.log}).settings()
	require.NoError(t, err)
	dir, err := simulator(t.Context(), s, cache)
	require.NoError(t, err)
	require.Equal(t, damaged, dir)
	require.Contains(t, lines.String(), "damaged")
	require.Contains(t, lines.String(), "fetched anew")
	require.NoError(t, checkTree(damaged))
}

const javaStub = `echo 'openjdk version "17.0.1"' >&2`

func TestMissingNPMIsNamed(t *testing.T) {
	isolate(t)
	binaries(t, nil, map[string]string{"java": javaStub})
	_, err := Start(t.Context(), &Options{CacheDir: emptyCache(t)})
	require.ErrorContains(t, err, "npm is not on PATH")
	require.ErrorContains(t, err, "install Node.js with npm")
}

func TestWrongTarballIsDeletedAndNamed(t *testing.T) {
	isolate(t)
	// npm pack <package> --pack-destination <folder> …
	binaries(t, nil, map[string]string{"java": javaStub, "npm": `echo junk > "$4/simulator.tgz"`})
	cache := emptyCache(t)
	_, err := Start(t.Context(), &Options{CacheDir: cache})
	require.ErrorContains(t, err, "checksum")
	require.ErrorContains(t, err, "was deleted")
	require.ErrorContains(t, err, simulatorSHA512)
	left, err := filepath.Glob(filepath.Join(cache, "*.tgz"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoDirExists(t, filepath.Join(cache, "dynamodb-local-1.25.1"))
}

func TestNPMThatLeavesNoTarballIsNamed(t *testing.T) {
	isolate(t)
	binaries(t, nil, map[string]string{"java": javaStub, "npm": "echo all fine"})
	_, err := Start(t.Context(), &Options{CacheDir: emptyCache(t)})
	require.ErrorContains(t, err, "left 0 tarballs")
}

func TestNoNetworkShowsWhatNPMSays(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	isolate(t)
	// A registry that nobody serves, and a cache of npm's that has nothing.
	t.Setenv("npm_config_registry", "http://127.0.0.1:1/")
	t.Setenv("npm_config_fetch_retries", "0")
	t.Setenv("npm_config_cache", t.TempDir())
	_, err := npmPack(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "npm pack "+SimulatorPackage+" failed")
	require.ErrorContains(t, err, "ECONNREFUSED")
	require.ErrorContains(t, err, "check the network")
}

func TestWrongTarballIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tgz")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o644))
	require.ErrorContains(t, checkTarball(path), "checksum")
	require.NoFileExists(t, path)
}
