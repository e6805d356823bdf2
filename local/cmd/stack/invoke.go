package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sync/errgroup"

	samples "github.com/idem-go/idempotency/events"
)

type invokeTask struct {
	Event, Function string // Event is its name, then its content
	Times, Parallel int
}

func (t *invokeTask) flags(fs *flag.FlagSet, o *options) {
	fs.StringVar(&t.Event, "event", "", "a sample's name (see events/doc.go) or a JSON file")
	fs.StringVar(&t.Function, "function", "", functionNames()+" (default: the one that takes events of this form)")
	fs.IntVar(&t.Times, "times", 1, "how many times, one after the other")
	fs.IntVar(&t.Parallel, "parallel", 1, "how many deliveries at once each time")
	o.declare(fs)
}

// check reads the event and decides which function takes it.
func (t *invokeTask) check() error {
	switch {
	case t.Event == "":
		return misuse("-event is missing: name a sample, such as apigw-v2-jwt, or a JSON file")
	case t.Times < 1 || t.Parallel < 1:
		return misuse("-times and -parallel must be at least 1")
	case t.Parallel > maxParallel:
		return misuse("-parallel is %d; use at most %d", t.Parallel, maxParallel)
	}
	event, err := readEvent(t.Event)
	if err != nil {
		return err
	}
	t.Event = string(event)
	switch {
	case t.Function == "":
		t.Function, err = functionFor(event)
	case !slices.Contains(functions, t.Function):
		err = misuse("-function is %q; there are: %s", t.Function, functionNames())
	}
	return err
}

// maxParallel keeps the number of open files within a laptop's limits.
const maxParallel = 200

// readEvent reads a file, or the sample if there is no file of this name.
func readEvent(name string) ([]byte, error) {
	event, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if event, err = samples.Get(name); err != nil {
			return nil, fmt.Errorf("there is no file %q, and no sample of that name: %w", name, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(event) {
		return nil, fmt.Errorf("the event %s is not JSON", name)
	}
	return event, nil
}

// functionFor returns the function for events of this form.
func functionFor(event []byte) (string, error) {
	var form struct {
		Version  string
		RouteKey string
		Records  []struct{ EventSource string }
	}
	_ = json.Unmarshal(event, &form) // an event of another form leaves it empty
	switch {
	case form.Version == "2.0" && form.RouteKey != "" && form.RouteKey != "$default":
		return payments, nil
	case len(form.Records) > 0 && form.Records[0].EventSource == "aws:sqs":
		return orders, nil
	}
	return "", misuse("this event is neither an HTTP API's (payload 2.0), which %s takes, nor a queue's, which %s takes; name one with -function to send it all the same", payments, orders)
}

// run delivers the event in rounds, Times one after the other and Parallel events at once in
// each, and shows the result of each delivery.
func (t *invokeTask) run(ctx context.Context, s *stack, out io.Writer) error {
	shown := newTable(out)
	shown.AppendHeader(table.Row{"time", "outcome", "attempt", "took", "instance", "request id"})
	count := map[string]int{}
	deliveries := make([]delivery, t.Parallel)
	for i := range t.Times {
		var g errgroup.Group
		for j := range deliveries {
			g.Go(func() error {
				res, err := s.pools[t.Function].Invoke(ctx, []byte(t.Event), nil)
				if err == nil {
					deliveries[j] = s.deliveryOf(ctx, res)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, d := range deliveries {
			st := d.summary()
			count[st.outcome]++
			instance := fmt.Sprint(d.PID)
			if d.ColdStart {
				instance += " (cold)"
			}
			shown.AppendRow(table.Row{i + 1, st.outcome, st.attempt, d.Duration.Round(100 * time.Microsecond), instance, d.RequestID})
		}
	}
	shown.Render()
	fmt.Fprintf(out, "\n%s\n", listed(count))
	if last := deliveries[t.Parallel-1]; len(last.Payload) > 0 {
		fmt.Fprintf(out, "the last answer: %s\n", shorten(string(last.Payload), 400))
	}
	return nil
}
