package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	samples "github.com/idem-go/idempotency/events"
)

type invokeOptions struct {
	options
	event, function string
	times, parallel int
}

func invokeCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var o invokeOptions
	fs.StringVar(&o.event, "event", "", "a sample's name (see events/doc.go) or a JSON file")
	fs.StringVar(&o.function, "function", "", functionNames()+" (default: the one that takes events of this form)")
	fs.IntVar(&o.times, "times", 1, "how many times, one after the other")
	fs.IntVar(&o.parallel, "parallel", 1, "how many deliveries at once each time")
	o.declare(fs)
	return func(ctx context.Context, out io.Writer) error {
		event, err := o.check()
		if err != nil {
			return err
		}
		n, err := running(ctx, o.cacheDir)
		if err == nil {
			return o.run(ctx, out, n, event)
		}
		if !errors.Is(err, errNothingRuns) {
			return err
		}
		return o.runAlone(ctx, out, event)
	}
}

// check reads the event and settles which function takes it.
func (o *invokeOptions) check() ([]byte, error) {
	switch {
	case o.event == "":
		return nil, misuse("-event is missing: name a sample, such as apigw-v2-jwt, or a JSON file")
	case o.times < 1 || o.parallel < 1:
		return nil, misuse("-times and -parallel must be at least 1")
	case o.parallel > maxParallel:
		return nil, misuse("-parallel is %d; use at most %d", o.parallel, maxParallel)
	}
	event, err := readEvent(o.event)
	if err != nil {
		return nil, err
	}
	switch o.function {
	case payments, orders:
		return event, nil
	case "":
		o.function, err = functionFor(event)
		return event, err
	}
	return nil, misuse("-function is %q; there are: %s", o.function, functionNames())
}

// maxParallel keeps the number of open files on a laptop within its limits.
const maxParallel = 200

// readEvent takes a file, and a sample where there is none of the name.
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

// functionFor tells by the form of an event who takes it.
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

// runAlone starts a stack for this one command.
func (o *invokeOptions) runAlone(ctx context.Context, out io.Writer, event []byte) error {
	say := printer(out)
	say("nothing runs here: starting everything for this one command (`go run ./local` in another terminal keeps it)")
	s, err := start(ctx, o.options, say)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := s.whileComplete(ctx)
	defer cancel()
	err = o.run(ctx, out, s.note, event)
	var ended *endedError
	if errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	return err
}

// run delivers the event, times after each other, parallel at once, and shows
// what became of each.
func (o *invokeOptions) run(ctx context.Context, out io.Writer, n note, event []byte) error {
	t := newTable(out)
	t.AppendHeader(table.Row{"time", "outcome", "attempt", "took", "instance", "request id"})
	count := map[string]int{}
	var last delivery
	for i := range o.times {
		deliveries, err := o.atOnce(ctx, n, event)
		if err != nil {
			return err
		}
		for _, d := range deliveries {
			st := d.story()
			count[st.outcome]++
			instance := fmt.Sprint(d.PID)
			if d.Cold {
				instance += " (cold)"
			}
			t.AppendRow(table.Row{i + 1, st.outcome, st.attempt, d.Duration.Round(100 * time.Microsecond), instance, d.RequestID})
			last = d
		}
	}
	t.Render()
	fmt.Fprintf(out, "\n%s\n", summary(count))
	if len(last.Payload) > 0 {
		fmt.Fprintf(out, "the last answer: %s\n", shorten(string(last.Payload), 400))
	}
	return nil
}

func (o *invokeOptions) atOnce(ctx context.Context, n note, event []byte) ([]delivery, error) {
	deliveries, errs := make([]delivery, o.parallel), make([]error, o.parallel)
	var wg sync.WaitGroup
	for i := range deliveries {
		wg.Go(func() {
			errs[i] = n.ask(ctx, http.MethodPost, "/functions/"+o.function+"/invocations", event, &deliveries[i])
		})
	}
	wg.Wait()
	return deliveries, errors.Join(errs...)
}
