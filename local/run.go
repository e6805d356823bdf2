package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errDiffers is the tour's: a line was not what was expected.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// run starts the stack, takes the tour and serves. Whatever it has started is
// gone when it returns.
func run(ctx context.Context, o options, out io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	begun := time.Now()
	s, err := start(ctx, o, say)
	if err != nil {
		return err
	}
	defer s.close()
	say("HTTP API at %s, ready after %v\n", s.url, time.Since(begun).Round(100*time.Millisecond))

	lines := s.tour(ctx, say)
	if ctx.Err() != nil {
		say("\nstopped")
		return nil
	}
	if err := printLines(out, lines); err != nil {
		return err
	}
	differs := false
	for _, l := range lines {
		differs = differs || !l.ok()
	}
	if o.once {
		if differs {
			return errDiffers
		}
		return nil
	}
	say("\nStill serving; Ctrl-C ends it. For example:\n\n  curl -i %s/payments -H 'Idempotency-Key: my-first-payment-1' \\\n    -H 'Content-Type: application/json' -d '{\"amount\": 1250, \"currency\": \"EUR\"}'\n", s.url)
	<-ctx.Done()
	say("stopped")
	return nil
}
