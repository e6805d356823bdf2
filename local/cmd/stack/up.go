package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// errDiffers is the tour's: a line was not what was expected.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// endedError says that a server which the stack cannot do without is gone.
type endedError struct{ server string }

func (e *endedError) Error() string {
	return e.server + " has ended by itself, so everything else was stopped too; start again with `go run ./local` (data was in memory)"
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

// up starts the stack, takes the tour and serves. Whatever it has started is
// gone when it returns.
func up(ctx context.Context, o options, out io.Writer) error {
	say := printer(out)
	begun := time.Now()
	s, err := start(ctx, o, say)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := s.whileComplete(ctx)
	defer cancel()
	say("HTTP API at %s, ready after %v\n", s.note.URL, time.Since(begun).Round(100*time.Millisecond))

	if !o.noTour {
		differs, err := s.guide(ctx, out, say)
		if ctx.Err() != nil {
			return stopped(ctx, say)
		}
		if err != nil || o.once {
			return errors.Join(err, differs)
		}
	}
	if err := s.explain(say); err != nil {
		return err
	}
	<-ctx.Done()
	return stopped(ctx, say)
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

// stopped is nil for a stop that was asked for.
func stopped(ctx context.Context, say func(string, ...any)) error {
	var ended *endedError
	if errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	say("\nstopped")
	return nil
}

// explain says how to call what keeps serving.
func (s *stack) explain(say func(string, ...any)) error {
	token, err := s.issuer.Token(defaultTenant, nil, tokenLifetime)
	if err != nil {
		return err
	}
	say("%s", strings.NewReplacer("URL", s.note.URL, "TOKEN", token, "TENANT", defaultTenant).Replace(`
Still serving; Ctrl-C ends it. A payment, as tenant TENANT:

  curl -i URL/payments -H 'Idempotency-Key: my-first-payment-1' \
    -H 'Content-Type: application/json' -d '{"amount": 1250, "currency": "EUR"}' \
    -H 'Authorization: Bearer TOKEN'

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
