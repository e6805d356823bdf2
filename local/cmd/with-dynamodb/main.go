// Command with-dynamodb runs a command that needs DynamoDB Local:
//
//	go run ./local/cmd/with-dynamodb -- go test ./...
//
// or, in any other module,
//
//	go run github.com/idem-go/idempotency/local/cmd/with-dynamodb@latest -- go test ./...
//
// It provisions one (see package dynamodblocal), sets IDEM_DYNAMODB_ENDPOINT,
// AWS_ENDPOINT_URL_DYNAMODB, which the AWS SDKs read, a region and dummy AWS credentials
// for the command, passes signals on to it, and exits
// with its exit code (128 + the signal's number if a signal ended it) after
// DynamoDB Local has ended. It exits with 125 if DynamoDB Local cannot be provisioned, and
// with 127 if the command cannot be started.
//
// (go run itself turns every exit code but 0 into 1. It ends at a SIGTERM without passing it on:
// when it has ended, the command gets one.)
//
// A SIGKILL ends with-dynamodb and DynamoDB Local at once. On Linux the command gets a SIGTERM
// then: it would have no database any more.
//
// If IDEM_DYNAMODB_ENDPOINT is already set, that endpoint is used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/local/cmd/gorun"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// The command's own exit codes, as in env(1) and timeout(1).
const (
	exitUsage       = 2
	exitNoServer    = 125
	exitNotStarted  = 127
	exitSignalShift = 128
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("with-dynamodb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: with-dynamodb [--] command [argument ...]")
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return exitUsage
	}
	say := log.New(stderr, "with-dynamodb: ", 0).Printf
	// From here on this process handles signals, so that DynamoDB Local ends in order.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	ctx, end := gorun.EndWithParent(context.Background())
	defer end()
	defer context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })()

	srv, code := provision(signals, say)
	if srv == nil {
		return code
	}
	say("%s at %s", srv.Source(), srv.Endpoint())
	code = command(flags.Args(), srv.Endpoint(), signals, stderr, say)
	if err := srv.Close(); err != nil {
		say("stop DynamoDB Local: %v", err)
		if code == 0 {
			code = exitNoServer
		}
	}
	return code
}

// provision starts the server. A signal before it has started ends the attempt.
func provision(signals <-chan os.Signal, say func(string, ...any)) (*child.Server, int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	board := progress.Open(say)
	defer board.Close()
	board.Begin("fetching and starting DynamoDB Local")
	var srv *child.Server
	done := make(chan error, 1)
	go func() {
		var err error
		srv, err = dynamodblocal.Start(ctx, &dynamodblocal.Options{Log: say})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			say("%v", err)
			return nil, exitNoServer
		}
		return srv, 0
	case s := <-signals:
		cancel()
		if <-done == nil {
			_ = srv.Close() // unused
		}
		return nil, signalCode(s)
	}
}

// command runs the command to its end and returns its exit code.
func command(args []string, endpoint string, signals <-chan os.Signal, stderr io.Writer,
	say func(string, ...any)) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, stderr
	cmd.Env = environment(os.Environ(), endpoint)
	cmd.SysProcAttr = child.SameGroup()
	ended, err := child.Run(cmd)
	if err != nil {
		say("%v", err)
		return exitNotStarted
	}
	for {
		select {
		case s := <-signals:
			// The terminal has sent its signals to the command itself.
			if !fromTerminal(s) {
				_ = cmd.Process.Signal(s) // it may have ended already
			}
		case err := <-ended:
			return exitCode(cmd, err, say)
		}
	}
}

func exitCode(cmd *exec.Cmd, err error, say func(string, ...any)) int {
	if _, exit := errors.AsType[*exec.ExitError](err); err != nil && !exit {
		say("%v", err)
		return exitNotStarted
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return signalCode(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

func signalCode(s os.Signal) int {
	return exitSignalShift + int(s.(syscall.Signal))
}

// envSDKEndpoint leads the clients of the AWS SDKs
// (https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html).
const envSDKEndpoint = "AWS_ENDPOINT_URL_DYNAMODB"

// environment replaces variables by which the AWS SDK could reach a real account. DynamoDB
// Local accepts only alphanumeric access key ids.
func environment(base []string, endpoint string) []string {
	replaced := map[string]string{
		dynamodblocal.EnvEndpoint:             endpoint,
		envSDKEndpoint:                        endpoint,
		"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "",
		"AWS_ACCESS_KEY_ID":                   "idemlocal",
		"AWS_SECRET_ACCESS_KEY":               "idemlocal",
		"AWS_REGION":                          "us-east-1",
		"AWS_DEFAULT_REGION":                  "us-east-1",
		"AWS_EC2_METADATA_DISABLED":           "true",
		"AWS_SESSION_TOKEN":                   "",
		"AWS_PROFILE":                         "",
		"AWS_DEFAULT_PROFILE":                 "",
	}
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, ours := replaced[name]
		return ours
	})
	for name, value := range replaced {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// passedOn are the signals that a terminal, make or a CI runner sends to stop a
// command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP}

// fromTerminal reports whether the terminal has sent s to the command too. The terminal sends
// Ctrl-C and Ctrl-\ to the whole foreground process group, which includes the command. If
// the signal were passed on, the command would get it twice, and many programs end at once
// after the second one.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // no controlling terminal
	}
	defer tty.Close()
	var foreground int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&foreground)))
	return errno == 0 && int(foreground) == syscall.Getpgrp()
}
