// Command stack is what `go run ./local` compiles and becomes; see package local.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// command is one word after `go run ./local`. flags declares its flags, and
// returns what runs it once they are parsed.
type command struct {
	name, summary string
	flags         func(*flag.FlagSet) func(context.Context, io.Writer) error
}

var commands = []command{
	{"up", "start everything, take the tour, keep serving (the default)", upCommand},
	{"invoke", "deliver an event to a function, in sequence and at once", invokeCommand},
	{"records", "show what the table holds", recordsCommand},
	{"logs", "show what the functions have written", logsCommand},
	{"token", "print a tenant's token for the HTTP API", tokenCommand},
	{"reset", "empty the tables and the queues", resetCommand},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	// Caught, a broken pipe is an error of the write and no sudden death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &output{Writer: os.Stdout, gone: end}
	err := dispatch(ctx, os.Args[1:], out, os.Stderr)
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

// output ends the command when nobody reads any more what it prints, such as head.
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

// dispatch runs the command that the arguments name. Flags are written with one
// dash or two.
func dispatch(ctx context.Context, args []string, out, errOut io.Writer) error {
	c := commands[0]
	if len(args) > 0 && args[0] == "help" {
		args = append([]string{"-help"}, args[1:]...)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		found := false
		for _, known := range commands {
			if known.name == args[0] {
				c, found = known, true
			}
		}
		if !found {
			return misuse("unknown command %q; there are: %s", args[0], commandNames())
		}
		args = args[1:]
	}
	fs := flag.NewFlagSet("local "+c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // mistakes are reported once, by main
	run := c.flags(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(errOut, c, fs)
		return err
	case err != nil:
		return misuse("%w; see `go run ./local %s -help`", err, c.name)
	case fs.NArg() > 0:
		return misuse("unexpected argument %q; see `go run ./local %s -help`", fs.Arg(0), c.name)
	}
	return run(ctx, out)
}

func commandNames() string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

func usage(out io.Writer, c command, fs *flag.FlagSet) {
	fmt.Fprintf(out, "go run ./local %s: %s\n\n", c.name, c.summary)
	fs.SetOutput(out)
	fs.PrintDefaults()
	if c.name != commands[0].name {
		return
	}
	fmt.Fprintln(out, "\nCommands:")
	for _, c := range commands {
		fmt.Fprintf(out, "  %-8s %s\n", c.name, c.summary)
	}
}

// options of what starts a stack.
type options struct {
	once, noTour               bool
	endpoint, jarDir, cacheDir string
	port                       int
}

func (o *options) declare(fs *flag.FlagSet) {
	fs.StringVar(&o.endpoint, "endpoint", "", "DynamoDB endpoint to use instead of starting one")
	fs.StringVar(&o.jarDir, "jar", "", "folder with DynamoDBLocal.jar to start")
	fs.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
	declareCache(fs, &o.cacheDir)
}

func declareCache(fs *flag.FlagSet, dir *string) {
	fs.StringVar(dir, "cache", "", "folder for what is fetched once and for notes about what runs (default: the user's cache folder)")
}

func upCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var o options
	o.declare(fs)
	fs.BoolVar(&o.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	fs.BoolVar(&o.noTour, "no-tour", false, "only serve")
	return func(ctx context.Context, out io.Writer) error {
		if o.once && o.noTour {
			return misuse("-once and -no-tour together leave nothing to do")
		}
		return up(ctx, o, out)
	}
}
