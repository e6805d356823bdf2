package main

import (
	"context"
	"os"
	"strings"
	"time"
)

// endWithParent ends the context when `go run` is gone: it passes Ctrl-C on, but
// not the SIGTERM that scripts send it. A command that was built and started by
// itself is left alone, so that it may outlive its shell.
func endWithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if exe, err := os.Executable(); err != nil || !strings.Contains(exe, "go-build") {
		return ctx, cancel
	}
	parent := os.Getppid()
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
