// Command stack is the program that `go run ./local` compiles and becomes; see package local.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// options are the command's flags.
type options struct {
	endpoint, cacheDir string
	port               int
	once, noTour       bool
}

func main() {
	var o options
	flag.StringVar(&o.cacheDir, "cache", "",
		"folder for what is fetched once, and for the running stack (default: the user's cache folder)")
	flag.StringVar(&o.endpoint, "endpoint", "", "DynamoDB endpoint to use instead of starting one")
	flag.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
	flag.BoolVar(&o.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	flag.BoolVar(&o.noTour, "no-tour", false, "only serve")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, "go run ./local: start everything, take the tour, keep serving\n\n")
		flag.PrintDefaults()
	}
	if flag.Parse(); flag.NArg() > 0 || o.once && o.noTour {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	// With a handler for SIGPIPE a broken pipe is an error of the write and does not end
	// the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := run(ctx, o, &output{Writer: os.Stdout, gone: end})
	end()
	stop()
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

// output ends the command when its reader, such as head, has ended.
type output struct {
	io.Writer
	gone func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.gone()
	}
	return n, err
}
