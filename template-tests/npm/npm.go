// Package npm installs what tests run under Node: exactly what a lock file pins, once,
// into the cache folder of this module's local commands.
package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// EnvRequire makes tests fail that would be skipped for want of Node or npm, if it
// is 1: it is set where everything must run.
const EnvRequire = "IDEM_REQUIRE_DYNAMODB"

// Modules returns the node_modules folder with what package.json and
// package-lock.json in dir ask for. The test is skipped where node or npm are
// missing, and fails then if [EnvRequire] is 1. Nothing of the packages runs while
// they are installed.
func Modules(tb testing.TB, dir string) string {
	tb.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv(EnvRequire) == "1" {
				tb.Fatalf("%s=1 and %s is not on PATH: install Node.js 20 or newer with npm", EnvRequire, program)
			}
			tb.Skipf("%s is not on PATH", program)
		}
	}
	modules, err := install(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return modules
}

func install(dir string) (string, error) {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(lock)
	cache := os.Getenv("IDEM_CACHE_DIR")
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no cache folder: %w; set IDEM_CACHE_DIR", err)
		}
		cache = filepath.Join(cache, "idem")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "npm-"+hex.EncodeToString(digest[:8]))
	modules := filepath.Join(folder, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil // it was renamed into place when it was whole
	}
	work, err := os.MkdirTemp(cache, ".npm-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(work, name), text, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = work
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci of %s failed, check the network and the registry that npm is configured with: %w: %s", dir, err, said)
	}
	if err := os.Rename(work, folder); err != nil {
		if _, there := os.Stat(modules); there != nil { // nobody else was faster
			return "", errors.Join(err, there)
		}
	}
	return modules, nil
}
