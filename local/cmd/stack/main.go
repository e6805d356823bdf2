// Command stack is the program that `go run ./local` compiles and becomes; see package local.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

type options struct {
	cacheDir     string
	port         int
	once, noTour bool
}

func main() {
	var o options
	flag.StringVar(&o.cacheDir, "cache", "",
		"folder for what is fetched once, and for the running stack (default: the user's cache folder)")
	flag.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
	flag.BoolVar(&o.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	flag.BoolVar(&o.noTour, "no-tour", false, "only serve")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, "go run ./local: start the examples, take the tour, keep serving\n"+
			"go run ./local up, kill, freeze: your own functions; each has -help\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	do := func(ctx context.Context, out io.Writer) error { return run(ctx, o, out) }
	switch {
	case flag.Arg(0) == "up":
		do = func(ctx context.Context, out io.Writer) error { return up(ctx, flag.Args()[1:], out) }
	case flag.Arg(0) == "kill", flag.Arg(0) == "freeze":
		do = func(ctx context.Context, out io.Writer) error {
			return interrupt(ctx, flag.Arg(0), flag.Args()[1:], out)
		}
	case flag.NArg() > 0 || o.once && o.noTour:
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	// With a handler for SIGPIPE a broken pipe is an error of the write and does not end
	// the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	err := do(ctx, &output{Writer: os.Stdout, end: end})
	end()
	stop()
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

// output ends the command when its reader, such as head, has ended.
type output struct {
	io.Writer
	end func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.end()
	}
	return n, err
}

const (
	// defaultTenant is the tenant of the tour and of the printed token.
	defaultTenant = "acme"
	// tokenLifetime is long enough for a day's work.
	tokenLifetime = 12 * time.Hour
)

// run starts everything, takes the tour and serves until the context ends. What it has started has
// ended when it returns.
func run(ctx context.Context, o options, out io.Writer) error {
	say := log.New(out, "", 0).Printf // of several goroutines
	begun := time.Now()
	s := &stack{orders: &mapping{}, statements: &mapping{}}
	defer s.close()
	if err := s.start(ctx, o, say); err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // the reason for all other errors
		}
		return err
	}
	complete, cancel := s.Alive(ctx)
	defer cancel(nil)
	say("console for operators at %s", s.console)
	say("HTTP API at %s, ready after %v\n\n", s.url, time.Since(begun).Round(100*time.Millisecond))
	if !o.noTour {
		lines := s.tour(complete, say)
		if complete.Err() == nil {
			if err := printLines(out, lines); o.once || err != nil && !errors.Is(err, errDiffers) {
				return err
			}
		}
	}
	if complete.Err() == nil {
		if err := s.explain(say); err != nil {
			return err
		}
		<-complete.Done()
	}
	say("\nstopped")
	if ctx.Err() == nil {
		return context.Cause(complete) // a server has ended
	}
	return nil
}

// explain says how to call the running stack.
func (s *stack) explain(say func(string, ...any)) error {
	token, err := s.Issuer.Token(defaultTenant, nil, tokenLifetime)
	if err != nil {
		return err
	}
	say("%s\n", strings.NewReplacer(
		"{console}", s.console, "{url}", s.url, "{token}", token, "{tenant}", defaultTenant, "{log}", s.logs.Name(),
		"{table}", s.records, "{dynamodb}", s.Endpoints.DynamoDB, "{sqs}", s.Endpoints.Queues,
		"{orders}", s.orders.url, "{dead}", s.orders.deadURL, "{statements}", s.statements.url,
		"{escalations}", s.escalations,
	).Replace(`
Still serving; Ctrl-C ends it. A payment, as tenant {tenant}:

  curl -i {url}/payments -H 'Idempotency-Key: 3c9f5a17-40d2-4b6e-a8f1-7e62d09b84c5' \
    -H 'Content-Type: application/json' -d '{"amount": 1250, "currency": "EUR"}' \
    -H 'Authorization: Bearer {token}'

What is open, in a browser: {console}
What the functions log:     {log}

From another terminal, in this folder, what the table holds:

  export IDEM_TABLE={table}
  export IDEM_DYNAMODB_ENDPOINT={dynamodb}
  export AWS_ENDPOINT_URL_SQS={sqs}
  export AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  go run ./idem/cmd/idemctl list --all --yes

An order:

  aws sqs send-message --endpoint-url {sqs} --queue-url {orders} \
    --message-body '{"orderId": "order-1", "items": [{"sku": "book", "quantity": 2}]}' \
    --message-attributes '{"idempotency-tenant": {"DataType": "String", "StringValue": "{tenant}"},
      "idempotency-key": {"DataType": "String", "StringValue": "order-1"}}'

The queues of orders and of statements; and by the runbook's names, of dead letters of orders, and
of questions for operators:

  {orders}
  {statements}
  export DEAD={dead}
  export ESCALATIONS={escalations}
`))
	return nil
}
