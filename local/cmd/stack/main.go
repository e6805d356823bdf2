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
	"strings"
	"syscall"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// command is one word after `go run ./local`.
type command struct {
	name, summary string
	task          func() task
}

// task is a command with its flags. The process in which it is typed checks it. The stack's
// process runs it, and gets its exported fields as JSON.
type task interface {
	// flags declares the task's flags, and those of o that it needs besides -cache.
	flags(fs *flag.FlagSet, o *options)
	check() error
	run(ctx context.Context, s *stack, out io.Writer) error
}

func commands() []command {
	return []command{
		{"up", "start everything, take the tour, keep serving (the default)", func() task { return &upTask{} }},
		{"invoke", "deliver an event to a function, in sequence and at once", func() task { return &invokeTask{} }},
		{"records", "show what the table holds", func() task { return &recordsTask{} }},
		{"logs", "show what the functions have written", func() task { return &logsTask{} }},
		{"token", "print a tenant's token for the HTTP API", func() task { return &tokenTask{} }},
		{"reset", "empty the tables and the queues", func() task { return &resetTask{} }},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	// With a handler for SIGPIPE a broken pipe is an error of the write and does not end
	// the process.
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

// dispatch runs the command that the arguments name. Flags are written with one
// dash or two.
func dispatch(ctx context.Context, args []string, out, errOut io.Writer) error {
	c := commands()[0]
	if len(args) > 0 && args[0] == "help" {
		args = append([]string{"-help"}, args[1:]...)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		var ok bool
		if c, ok = commandNamed(args[0]); !ok {
			return misuse("unknown command %q; there are: %s", args[0], commandNames())
		}
		args = args[1:]
	}
	fs := flag.NewFlagSet("local "+c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // mistakes are reported once, by main
	var o options
	fs.StringVar(&o.cacheDir, "cache", "", "folder for what is fetched once and for notes about what runs (default: the user's cache folder)")
	t := c.task()
	t.flags(fs, &o)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(errOut, c, fs)
		return err
	case err != nil:
		return misuse("%w; see `go run ./local %s -help`", err, c.name)
	case fs.NArg() > 0:
		return misuse("unexpected argument %q; see `go run ./local %s -help`", fs.Arg(0), c.name)
	}
	if err := t.check(); err != nil {
		return err
	}
	return perform(ctx, c.name, t, o, out)
}

// perform lets the running stack run a task. Two tasks need none: up starts its own, and
// invoke starts one if none is running.
func perform(ctx context.Context, name string, t task, o options, out io.Writer) error {
	if _, up := t.(*upTask); up {
		return withStack(ctx, o, t, out)
	}
	socket, err := running(o.cacheDir)
	if err == nil {
		return ask(ctx, socket, name, t, out)
	}
	if _, alone := t.(*invokeTask); !alone || !errors.Is(err, errNothingRuns) {
		return err
	}
	fmt.Fprintln(out, "nothing runs here: starting everything for this one command (`go run ./local` in another terminal keeps it)")
	return withStack(ctx, o, t, out)
}

func commandNamed(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

func commandNames() string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func usage(out io.Writer, c command, fs *flag.FlagSet) {
	fmt.Fprintf(out, "go run ./local %s: %s\n\n", c.name, c.summary)
	fs.SetOutput(out)
	fs.PrintDefaults()
	if c.name != commands()[0].name {
		return
	}
	fmt.Fprintln(out, "\nCommands:")
	for _, c := range commands() {
		fmt.Fprintf(out, "  %-8s %s\n", c.name, c.summary)
	}
}

// options of commands that start a stack.
type options struct {
	endpoint, cacheDir string
	port               int
}

func (o *options) declare(fs *flag.FlagSet) {
	fs.StringVar(&o.endpoint, "endpoint", "", "DynamoDB endpoint to use instead of starting one")
	fs.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
}
