// Package gorun is for commands that are started with `go run`: they end with it, and
// compile what they become. It imports little, so that what is run first compiles fast.
package gorun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// parentPoll is how often a command looks whether `go run` is still there.
const parentPoll = 200 * time.Millisecond

// EndWithParent ends the context when `go run` is gone: it passes Ctrl-C on, but
// not the SIGTERM that scripts send it, and cannot pass a SIGKILL on. A command
// that was started without `go run` is left alone, so that it may outlive its shell. The
// executable's folder says nothing: `go run` takes it from a build cache that may lie anywhere.
func EndWithParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	if programOf(parent) != "go" {
		return ctx, cancel
	}
	go func() {
		// A process without its parent is given another one.
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-time.After(parentPoll):
			}
		}
		cancel()
	}()
	return ctx, cancel
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

// Build runs `go build` with the arguments, where env is added to
// the environment. What the command says is part of the error if it fails.
func Build(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	// The go command removes its temporary files when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("the go command is not on PATH; install Go 1.26 or newer from https://go.dev/dl")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w\n%s", err, out)
}

// Become runs the program in this process, whose parent stays `go run`. It returns
// only if it cannot.
func Become(path string, args []string) error {
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, os.Environ())}
}
