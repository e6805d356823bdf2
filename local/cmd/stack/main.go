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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	// With a handler for SIGPIPE a broken pipe is an error of the write and does not end
	// the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, &output{Writer: os.Stdout, gone: end})
	}
	end()
	stop()
	var misuse usageError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, flag.ErrHelp), errors.Is(err, syscall.EPIPE):
	case errors.As(err, &misuse):
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(2)
	default:
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

// usageError is a mistake in the arguments.
type usageError struct{ error }

func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// parse reads the flags, which are written with one dash or two.
func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("local", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // mistakes are reported once, by main
	fs.StringVar(&o.cacheDir, "cache", "",
		"folder for what is fetched once, and for the running stack (default: the user's cache folder)")
	fs.StringVar(&o.endpoint, "endpoint", "", "DynamoDB endpoint to use instead of starting one")
	fs.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
	fs.BoolVar(&o.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	fs.BoolVar(&o.noTour, "no-tour", false, "only serve")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(errOut, "go run ./local: start everything, take the tour, keep serving\n\n")
		fs.SetOutput(errOut)
		fs.PrintDefaults()
		return o, err
	case err != nil:
		return o, misuse("%w; see `go run ./local -help`", err)
	case fs.NArg() > 0:
		return o, misuse("unexpected argument %q; see `go run ./local -help`", fs.Arg(0))
	case o.once && o.noTour:
		return o, misuse("-once and -no-tour together leave nothing to do")
	}
	return o, nil
}
