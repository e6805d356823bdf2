package gorun

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrNoGo says what to do where there is no go command.
var ErrNoGo = errors.New("the go command is not on PATH; install Go 1.26 or newer from https://go.dev/dl")

// Build runs `go build` with the arguments in dir, where env is added to the
// environment. note gets the number of packages compiled so far. What the command
// says is part of the error if it fails.
func Build(ctx context.Context, dir string, env []string, note func(packages int), args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-v"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	// The go command removes its temporary files when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return run(ctx, cmd, note)
}

func run(ctx context.Context, cmd *exec.Cmd, note func(packages int)) error {
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	said := make(chan string)
	go func() { said <- follow(r, note) }()
	err := cmd.Run()
	_ = w.Close() // a pipe in memory
	text := <-said
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return ErrNoGo
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w\n%s", err, text)
}

// follow counts the packages that `go build -v` names, one a line, and returns the
// other lines.
func follow(r io.Reader, note func(packages int)) string {
	var others strings.Builder
	packages := 0
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		switch text := strings.TrimSpace(line); {
		case text == "":
		case strings.ContainsAny(text, " :"):
			others.WriteString(line)
		default:
			packages++
			note(packages)
		}
		if err != nil {
			return others.String()
		}
	}
}
