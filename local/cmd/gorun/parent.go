// Package gorun is for commands that are started with `go run`: they end with it,
// and say how far a compilation is. It imports little, so that what is run first
// compiles fast.
package gorun

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// parentPoll is how often a command looks whether `go run` is still there.
const parentPoll = 200 * time.Millisecond

// EndWithParent ends the context when `go run` is gone: it passes Ctrl-C on, but
// not the SIGTERM that scripts send it, and nobody can pass a SIGKILL on. A command
// that was built and started by itself is left alone, so that it may outlive its
// shell.
func EndWithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent, under := UnderGo()
	if !under {
		return ctx, cancel
	}
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		// A process without its parent is given another one.
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

// UnderGo returns the parent's process id, and whether it is the go command. Where
// the executable lies says nothing: `go run` takes it from a build cache that may
// lie anywhere.
func UnderGo() (parent int, under bool) {
	parent = os.Getppid()
	return parent, programOf(parent) == "go"
}

// programOf returns the name of the program that a process runs, empty if there is
// no such process. Linux need not have ps; its options here are POSIX's.
func programOf(pid int) string {
	id := strconv.Itoa(pid)
	name, err := os.ReadFile("/proc/" + id + "/comm")
	if err != nil {
		name, _ = exec.Command("ps", "-o", "comm=", "-p", id).Output() // nothing: no such process
	}
	return filepath.Base(strings.TrimSpace(string(name)))
}
