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

// EndWithParent ends the context when `go run` has ended: it passes Ctrl-C on, but
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

// Folder is the folder of a module, as the go command finds it from dir; empty if it has none.
func Folder(ctx context.Context, dir, module string) (string, error) {
	out, err := Go(ctx, nil, "-C", dir, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module)
	return strings.TrimSpace(string(out)), err
}

// Go runs the go command with the arguments, where env is added to the environment, and returns its output. What it
// says besides is part of the error if it fails.
func Go(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	// The go command removes its temporary files when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("the go command is not on PATH; install Go 1.26 or newer from https://go.dev/dl")
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case failed:
		return nil, fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return out, err
}

// Become runs the program in this process, whose parent stays `go run`. It returns
// only if it cannot.
func Become(path string, args []string) error {
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, os.Environ())}
}
