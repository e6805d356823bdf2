package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// errDiffers says that a line of the tour differs from the expected one.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// endedError says that a server that the stack needs is gone.
type endedError struct{ server string }

func (e *endedError) Error() string {
	return e.server + " has ended unexpectedly, so everything else was stopped too; start again with `go run ./local` (data was in memory)"
}

// printer is for lines that come from several goroutines.
func printer(out io.Writer) func(string, ...any) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
}

// withStack starts a stack for one task. Whatever it has started is gone when it
// returns.
func withStack(ctx context.Context, o options, t task, out io.Writer) error {
	say := printer(out)
	begun := time.Now()
	s, err := start(ctx, o, say)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := s.whileComplete(ctx)
	defer cancel()
	say("console for operators at %s", s.console)
	say("HTTP API at %s, ready after %v\n", s.url, time.Since(begun).Round(100*time.Millisecond))
	err = t.run(ctx, s, out)
	var ended *endedError
	if errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	return err
}

// upTask takes the tour and serves.
type upTask struct{ once, noTour bool }

func (t *upTask) flags(fs *flag.FlagSet, o *options) {
	o.declare(fs)
	fs.BoolVar(&t.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	fs.BoolVar(&t.noTour, "no-tour", false, "only serve")
}

func (t *upTask) check() error {
	if t.once && t.noTour {
		return misuse("-once and -no-tour together leave nothing to do")
	}
	return nil
}

func (t *upTask) run(ctx context.Context, s *stack, out io.Writer) error {
	say := printer(out)
	if !t.noTour {
		differs, err := s.guide(ctx, out, say)
		if ctx.Err() == nil && (err != nil || t.once) {
			return errors.Join(err, differs)
		}
	}
	if ctx.Err() == nil {
		if err := s.explain(say); err != nil {
			return err
		}
		<-ctx.Done()
	}
	say("\nstopped")
	return nil
}

// guide takes the tour and prints it. differs is errDiffers if a line does.
func (s *stack) guide(ctx context.Context, out io.Writer, say func(string, ...any)) (differs, err error) {
	lines := s.tour(ctx, say)
	if ctx.Err() != nil {
		return nil, nil
	}
	for _, l := range lines {
		if !l.ok() {
			differs = errDiffers
		}
	}
	return differs, printLines(out, lines)
}

// explain says how to call the running stack.
func (s *stack) explain(say func(string, ...any)) error {
	token, err := s.issuer.Token(defaultTenant, nil, tokenLifetime)
	if err != nil {
		return err
	}
	say("%s", strings.NewReplacer("CONSOLE", s.console, "URL", s.url, "TOKEN", token, "TENANT", defaultTenant).Replace(`
Still serving; Ctrl-C ends it. A payment, as tenant TENANT:

  curl -i URL/payments -H 'Idempotency-Key: my-first-payment-1' \
    -H 'Content-Type: application/json' -d '{"amount": 1250, "currency": "EUR"}' \
    -H 'Authorization: Bearer TOKEN'

What is open, in a browser: CONSOLE

From another terminal, in this folder:

  go run ./local invoke -event apigw-v2-jwt -times 3 -parallel 8
  go run ./local invoke -event lambda/functions/orders/event.json -times 2
  go run ./local records
  go run ./local logs
  go run ./local token -tenant globex
  go run ./local reset
`))
	return nil
}
