package main

import (
	"context"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// delivery is the result of delivering one event.
type delivery struct {
	runtime.Result
	lines []string // that the function logged about this invocation
}

// The last lines of an invocation may still be in the pipe when its answer has come. These
// are how long to wait for the first line, and how many checks without a new one end the
// wait.
const (
	logPatience = time.Second
	logLook     = 5 * time.Millisecond
	logQuiet    = 4
)

// deliveryOf adds to a result the lines that an instance has written about the invocation. A
// function that does not name the request in its lines has none.
func (s *stack) deliveryOf(ctx context.Context, res runtime.Result) delivery {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	d := delivery{Result: res}
	next := 0
	for quiet := 0; quiet < logQuiet; {
		var entries []entry
		entries, next, _ = s.logs.since(next)
		if quiet++; len(d.lines) == 0 {
			quiet = 0
		}
		for _, e := range entries {
			if strings.Contains(e.text, res.RequestID) {
				d.lines, quiet = append(d.lines, e.text), 0
			}
		}
		select {
		case <-ctx.Done():
			return d
		case <-time.After(logLook):
		}
	}
	return d
}
