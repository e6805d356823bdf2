package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"github.com/idem-go/idempotency/idem/internal/view"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
)

// commands are the command line. A command checks its flags first, if it has a method check. Then it is
// run with a session that is connected to the table.
type commands struct {
	Globals

	List    listCmd    `cmd:"" help:"List what has no outcome: open questions and watched claims. The records of a page are shown the oldest first."`
	Show    showCmd    `cmd:"" help:"Show a record."`
	Explain explainCmd `cmd:"" help:"Say what the next call gets, what time changes, and what each decision would do."`
	History historyCmd `cmd:"" help:"List the changes of a record by operators, webhooks and sweeps."`

	Changes changesCmd `cmd:"" help:"List the changes of all records by operators, webhooks and sweeps."`
	Stats   statsCmd   `cmd:"" help:"Count what has no outcome, by operation, state and age, what is abandoned, and the changes of the last day."`
	Export  exportCmd  `cmd:"" help:"Write records as JSON lines."`
	Check   checkCmd   `cmd:"" help:"Check that the store is as it must be. Count keys of callers that are easy to guess in a sample of its records."`
	Ledger  ledgerCmd  `cmd:"" help:"Compare a provider's export of a day with the records of that day, which reads the whole table. Exits with 3 if they differ."`
	Console consoleCmd `cmd:"" help:"Serve the records' pages for a browser on this machine."`

	Resolve resolveCmd `cmd:"" help:"Record the outcome of an operation whose outcome is unknown."`
	Release releaseCmd `cmd:"" help:"Record that an operation had no effect: the next call runs the handler again."`
	Extend  extendCmd  `cmd:"" help:"Keep a record that has ended for longer, such as while the queue of its retries is paused."`
	Forget  forgetCmd  `cmd:"" help:"Remove a record that has ended: the next call runs the handler again."`

	Pause  pauseCmd  `cmd:"" help:"Pause an operation, or one tenant's calls of it: nothing more of it executes."`
	Resume resumeCmd `cmd:"" help:"End a pause."`
	Pauses pausesCmd `cmd:"" help:"List what is paused."`

	Dead   deadCmd   `cmd:"" help:"List dead letters of the outbox, and have them sent again."`
	Resend resendCmd `cmd:"" help:"Have messages of a record sent again that were sent in the last day, under the same ids."`
}

// Globals are the flags of all commands.
type Globals struct {
	Table    string `env:"IDEM_TABLE" placeholder:"NAME" help:"The table of DynamoDB."`
	Store    string `env:"IDEM_STORE" placeholder:"URL" help:"In place of a table: Postgres (postgres://...), or Redis or Valkey (redis://... or rediss://...)."`
	Region   string `placeholder:"REGION" help:"The table's region; else as the AWS SDKs find it (AWS_REGION)."`
	Profile  string `placeholder:"NAME" help:"Profile of the AWS configuration; else as the AWS SDKs find it (AWS_PROFILE)."`
	Endpoint string `env:"IDEM_DYNAMODB_ENDPOINT" placeholder:"URL" help:"Endpoint of a VPC, or of a DynamoDB Local."`
	// A strongly consistent global table has none.
	WithoutTransactions bool `env:"IDEM_WITHOUT_TRANSACTIONS" help:"The table has no transactions: it is a strongly consistent global table."`

	KMSKey     []string          `name:"kms-key" env:"IDEM_KMS_KEY" placeholder:"KEY" help:"KMS key by which the table's results are encrypted: to show them, and to resolve with one. Former keys may follow."`
	KMSContext map[string]string `name:"kms-context" env:"IDEM_KMS_CONTEXT" placeholder:"NAME=VALUE" help:"Encryption context of the KMS key, if the service has one."`

	Output string `short:"o" enum:"table,json" default:"table" help:"Form of the output: table or json."`
}

// terminal is what a run talks to.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// asks says that in is a terminal, where a question can be answered; colour that out is one that
	// takes it.
	asks, colour bool
	// watched says that err is a terminal, where progress is seen.
	watched bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, plain := os.LookupEnv("NO_COLOR")
	code := run(ctx, os.Args[1:], &terminal{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		asks:    isatty.IsTerminal(os.Stdin.Fd()),
		colour:  isatty.IsTerminal(os.Stdout.Fd()) && !plain && os.Getenv("TERM") != "dumb",
		watched: isatty.IsTerminal(os.Stderr.Fd()),
	}, outside(time.Now))
	stop()
	os.Exit(code)
}

// written is an output that keeps its first error: what was not written was not said.
type written struct {
	io.Writer
	err error
}

func (w *written) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// run returns the exit code of a command line.
func run(ctx context.Context, args []string, term *terminal, w environment) int {
	out := &written{Writer: term.out}
	kept := *term
	kept.out = out
	code := runTo(ctx, args, &kept, w)
	if (code == exitDone || code == exitDiffers) && out.err != nil {
		say(term.err, "idemctl: the output cannot be written: %v", out.err)
		return exitFailed
	}
	return code
}

func runTo(ctx context.Context, args []string, term *terminal, w environment) int {
	cli := &commands{}
	code, exited := 0, false
	parser, err := kong.New(cli,
		kong.Name("idemctl"),
		kong.Description("Show the records of a table, and settle open questions. "+
			"Exit codes: 0 done, 1 refused or failed, 2 used wrongly, 3 the ledger differs."),
		kong.Writers(term.out, term.err),
		kong.Exit(func(c int) { code, exited = c, true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: width}),
	)
	if err != nil {
		fmt.Fprintf(term.err, "idemctl: %v\n", err)
		return exitUsage
	}
	command, err := parser.Parse(args)
	if exited { // by --help
		return code
	}
	if err != nil {
		help := "idemctl"
		if mistake, ok := errors.AsType[*kong.ParseError](err); ok {
			help = strings.TrimSpace(help + " " + nameOf(mistake.Context))
		}
		say(term.err, "idemctl: %v: see %s --help", err, help)
		return exitUsage
	}
	s := &session{terminal: term, globals: cli.Globals, environment: w}
	command.BindTo(ctx, (*context.Context)(nil))
	chosen := command.Selected().Target.Addr().Interface()
	if checked, ok := chosen.(interface{ check() error }); ok {
		err = checked.check()
	}
	if err == nil {
		err = s.connect(ctx, chosen)
	}
	if err == nil {
		err = command.Run(s)
	}
	_, misused := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDiffers):
		return exitDiffers
	case misused:
		say(term.err, "idemctl: %v", err)
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(term.err, "idemctl: interrupted")
		return exitFailed
	}
	say(term.err, "idemctl: %v", view.Plain(err.Error()))
	if more := hint(err, nameOf(command)); more != "" {
		say(term.err, "%s", more)
	}
	return exitFailed
}

type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func misuse(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
