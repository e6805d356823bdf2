// Command with-progress runs a command that is silent for long, and says every two
// seconds that it still runs:
//
//	go run ./local/cmd/with-progress synthesizing go run ./app
//
// The first argument says what the command does. It exits with the command's code, 1
// if a signal ended it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/idem-go/idempotency/local/cmd/gorun"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: with-progress what command [argument ...]")
		os.Exit(2)
	}
	// Ctrl-C reaches the command too, which ends in order; what ends this one alone is
	// passed on.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	cmd := exec.CommandContext(ctx, os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	board := progress.Open(func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	board.Begin(os.Args[1])
	err := cmd.Run()
	board.Close()
	end()
	stop()
	switch code := cmd.ProcessState.ExitCode(); {
	case cmd.ProcessState == nil: // it has not begun
		fmt.Fprintln(os.Stderr, "with-progress:", err)
		os.Exit(127)
	case code < 0:
		os.Exit(1)
	default:
		os.Exit(code)
	}
}
