// Package cache is the folder where the local commands keep downloads, shared by all of a
// user's processes.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Env names the folder if no option does.
const Env = "IDEM_CACHE_DIR"

// Folder returns the absolute path of dir, and creates it if necessary. An empty dir is that of
// [Env], else "idem" in the user's cache folder (os.UserCacheDir).
func Folder(dir string) (string, error) {
	if dir = cmp.Or(dir, os.Getenv(Env)); dir == "" {
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
	if err != nil {
		return "", fmt.Errorf("the cache folder cannot be written to (%w); set %s to one that can", err, Env)
	}
	return dir, nil
}

// Lock keeps other processes out until unlock is called or this process ends. If it has to
// wait, it calls waiting once. The file at path stays: if it were deleted, two processes
// could lock two files with one name.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the cache folder cannot be written to: %w; set %s to one that can", err, Env)
	}
	for reported := false; ; reported = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !reported {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
