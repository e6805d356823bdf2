// Command local runs it all on this machine, on 127.0.0.1 only: DynamoDB Local, a
// queue server, the example functions as they are deployed, an HTTP API with a
// token issuer in front of one and a queue with its poller in front of the other.
// It takes a tour of the promise with real requests and messages, prints what came
// and where that was not expected, and keeps serving until Ctrl-C.
//
//	go run ./local          everything, the tour, stay
//	go run ./local -once    everything, the tour, end; exit code 1 if a line differs
//	go run ./local up PATH  what the cloud assembly or the template at PATH describes, in place of the examples
//
// The tour keeps its data in memory. README.md in this folder says more.
//
// This package only compiles the command, which is [stack], and becomes it: the go
// command compiles in silence, a minute with empty caches.
//
// [stack]: https://pkg.go.dev/github.com/idem-go/idempotency/local/cmd/stack
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/local/cmd/gorun"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// command is the package that is compiled and run.
const command = "github.com/idem-go/idempotency/local/cmd/stack"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	err := run(ctx, func() { end(); stop() })
	end()
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

// run compiles the command and becomes it; ready is called just before.
func run(ctx context.Context, ready func()) error {
	folder, err := cache.Folder("")
	if err != nil {
		return err
	}
	// Two checkouts take turns: linking the command costs less than a second.
	dir, err := cache.Folder(filepath.Join(folder, "bin"))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "local")
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	// Held until this process has become the command: no process sees half a file.
	unlock, err := cache.Lock(ctx, path+".lock", func() { say("waiting for another process that compiles the command") })
	if err != nil {
		return err
	}
	defer unlock()
	board := progress.Open(say)
	board.Begin("fetching modules and compiling the command")
	err = gorun.Build(ctx, nil, "-o", path, command)
	board.Close()
	if err != nil {
		return fmt.Errorf("cannot compile the command, run this inside the repository: %w", err)
	}
	// What was asked to end while the last package compiled does not begin to serve.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ready()
	return gorun.Become(path, append([]string{"local"}, os.Args[1:]...))
}
