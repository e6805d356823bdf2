// Package cache is the folder where the local commands keep downloads, shared by all of a
// user's processes.
package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Env names the folder if no option does.
const Env = "IDEM_CACHE_DIR"

// Folder returns the absolute path of dir, creates it if necessary, and checks that it is
// writable. An empty dir is that of [Env], else "idem" in the user's cache folder
// (os.UserCacheDir).
func Folder(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(Env)
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder (%w); set %s to a folder that can be written to", err, Env)
		}
		dir = filepath.Join(base, "idem")
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return "", fmt.Errorf("the cache folder cannot be written to (%w); set %s to one that can", err, Env)
	}
	return dir, nil
}

// writable tries to write, because permission bits do not tell about read-only mounts,
// quotas and users other than the owner.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
