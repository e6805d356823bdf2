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

// errDiffers says that a line of the tour differs from the expected one.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// tokenLifetime is long enough for a day's work.
const tokenLifetime = 12 * time.Hour

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

// run starts everything, takes the tour and serves. Whatever it has started is gone when it
// returns.
func run(ctx context.Context, o options, out io.Writer) error {
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
	err = s.serveUntil(ctx, o, out, say)
	var ended *endedError
	if errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	return err
}

// serveUntil takes the tour, and serves until the context ends.
func (s *stack) serveUntil(ctx context.Context, o options, out io.Writer, say func(string, ...any)) error {
	if !o.noTour {
		differs, err := s.guide(ctx, out, say)
		if ctx.Err() == nil && (err != nil || o.once) {
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
	say("%s", strings.NewReplacer(
		"{console}", s.console, "{url}", s.url, "{token}", token, "{tenant}", defaultTenant, "{log}", s.logs.Name(),
		"{table}", recordsTable, "{dynamodb}", s.db.Endpoint(), "{sqs}", s.sqs.Endpoint(),
		"{orders}", s.queue.URL, "{dead}", s.queue.DeadURL, "{escalations}", s.escalations.URL,
	).Replace(`
Still serving; Ctrl-C ends it. A payment, as tenant {tenant}:

  curl -i {url}/payments -H 'Idempotency-Key: my-first-payment-1' \
    -H 'Content-Type: application/json' -d '{"amount": 1250, "currency": "EUR"}' \
    -H 'Authorization: Bearer {token}'

What is open, in a browser: {console}
What the functions log:     {log}

From another terminal, in this folder, what the table holds, and an order:

  export IDEM_TABLE={table} IDEM_DYNAMODB_ENDPOINT={dynamodb}
  export AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  go run ./idem/cmd/idemctl list --all --yes
  aws --endpoint-url {sqs} sqs send-message --queue-url {orders} \
    --message-body '{"orderId": "order-1", "items": [{"sku": "book", "quantity": 2}]}' \
    --message-attributes '{"idempotency-tenant": {"DataType": "String", "StringValue": "{tenant}"},
      "idempotency-key": {"DataType": "String", "StringValue": "order-1"}}'

Its dead letters are in {dead}, and questions for
operators in {escalations}.
`))
	return nil
}
