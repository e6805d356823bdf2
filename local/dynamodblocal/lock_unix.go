//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package dynamodblocal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock keeps other processes out until unlock is called, or this process ends.
// The file stays: deleting it would let two processes lock two files of one
// name.
func lock(ctx context.Context, s settings, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the cache folder cannot be written to: %w; set %s to one that can", err, EnvCacheDir)
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !told {
			s.Log("waiting for another process that fetches DynamoDB Local")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
