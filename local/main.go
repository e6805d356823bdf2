// Command local runs it all on this machine, on 127.0.0.1 only: DynamoDB Local, a
// queue server, the example functions as they are deployed, an HTTP API with a
// token issuer in front of one and a queue with its poller in front of the other.
// It takes a tour of the promise with real requests and messages, prints what came
// and where that was not expected, and keeps serving until Ctrl-C.
//
//	go run ./local          everything, the tour, stay
//	go run ./local -once    everything, the tour, end; exit code 1 if a line differs
//	go run ./local up PATH  what the cloud assembly or the template at PATH describes, in place of the examples
//	go run ./local up -function PKG ...  functions without a template; up -help has all flags
//	go run ./local kill, go run ./local freeze  interrupt a function that runs
//
// In another module, all but the tour:
//
//	go get -tool github.com/idem-go/idempotency/local
//	go tool local up PATH
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
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/local/cmd/gorun"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// command is the package of this module that is compiled and run.
const (
	module  = "github.com/idem-go/idempotency/local"
	command = module + "/cmd/stack"
)

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
	// Two checkouts take turns: linking the command costs less than a second. Each version has a folder of its own.
	v := version()
	dir, err := cache.Folder(filepath.Join(folder, "bin", v))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.Base(command))
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	// Held until this process has become the command: no process sees half a file.
	unlock, err := cache.Lock(ctx, path+".lock", func() { say("waiting for another process that compiles the command") })
	if err != nil {
		return err
	}
	defer unlock()
	board := progress.Open(say)
	board.Begin("fetching modules and compiling the command")
	if v != "" {
		// With the versions that its own module requires: it does not depend on the module around it, such as on its vendor
		// folder.
		_, err = gorun.Go(ctx, []string{"GOBIN=" + dir}, "install", "-mod=readonly", command+"@"+v)
	} else {
		err = build(ctx, path)
	}
	board.Close()
	if err != nil {
		return fmt.Errorf("cannot compile the command: %w", err)
	}
	// What was asked to end while the last package compiled does not begin to serve.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ready()
	return gorun.Become(path, append([]string{"local"}, os.Args[1:]...))
}

// build compiles the command in this module's folder: a module that only requires it has none of the checksums for
// programs that it does not import.
func build(ctx context.Context, path string) error {
	folder, err := gorun.Folder(ctx, ".", module)
	if err != nil {
		return fmt.Errorf("this folder is neither in the repository nor in a module that has %s as a tool: %w", module, err)
	}
	_, err = gorun.Go(ctx, nil, "build", "-C", folder, "-o", path, command)
	return err
}

// version is that of this module where another module requires it. It is empty inside the repository, and where a
// folder replaces the module: the go command has no version then, or makes one up from the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" || info.Main.Replace != nil ||
		slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" }) {
		return ""
	}
	return info.Main.Version
}
