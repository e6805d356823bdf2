// Command smoke plays a few lines of the tour against the example's stacks where they are deployed, with the
// credentials of its caller, and deletes what it has made.
//
//	go run ./local/cmd/smoke -outputs cdk-outputs.json   from cdk deploy --outputs-file, or local up -outputs
//	go run ./local/cmd/smoke -url https://...            only requests over HTTP
//
// The first checks only read. If one of them differs, nothing is written. Then come one payment of a hundredth of a
// euro, its repeats, and an order with its repeat. Their keys begin with smoke- and are new in each run. What cannot be
// deleted is named, such as the payment at the provider. A line with ?? was not seen, as others use the queue. Exit
// code 1 says that a line differs, or that something of the run was not found or not deleted.
//
// The AWS SDK finds credentials, and in AWS_ENDPOINT_URL_DYNAMODB and AWS_ENDPOINT_URL_SQS the servers of this machine.
// The caller needs execute-api:Invoke; dynamodb:DescribeTable, DescribeTimeToLive, GetItem and DeleteItem on the
// tables of records, the last two also on that of orders; sqs:GetQueueAttributes and SendMessage.
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
	"github.com/idem-go/idempotency/local/cmd/progress"
)

func main() {
	var o options
	flag.StringVar(&o.outputs, "outputs", "",
		"`FILE` with the stacks' outputs, from cdk deploy --outputs-file or local up -outputs")
	flag.StringVar(&o.url, "url", "", "`URL` of the API, in place of -outputs: only requests over HTTP are checked")
	flag.StringVar(&o.token, "token", "", "bearer `TOKEN` for the API (default: requests are signed with the credentials)")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := gorun.EndWithParent(ctx)
	defer end()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the deletion
	if err := smoke(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "smoke:", err)
		os.Exit(1)
	}
}

// smoke checks what is deployed, line by line.
func smoke(ctx context.Context, o options, out io.Writer) error {
	r := &run{ctx: ctx, say: log.New(out, "", 0).Printf}
	if err := r.find(o); err != nil {
		return err
	}
	if r.db != nil {
		r.tables()
		r.queue()
	} else {
		r.say("without -outputs there are only the lines over HTTP")
	}
	r.closed()
	if r.failed || ctx.Err() != nil {
		r.say("nothing was written")
	} else {
		r.pay()
		if r.db != nil {
			r.order()
		}
		r.clean()
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case r.failed:
		return errors.New("there is a difference: see what is marked NO, and what is left")
	}
	return nil
}

// check prints a line with what fn returns, and whether that was expected. After an interruption it does nothing.
func (r *run) check(what, expected string, fn func() string) {
	if r.ctx.Err() != nil {
		return
	}
	board := progress.Open(r.say)
	board.Begin(what)
	got := strings.Join(strings.Fields(fn()), " ")
	board.Close()
	switch {
	case r.ctx.Err() != nil:
	case got == expected:
		r.say("ok  %-34s  %s", what, got)
	case got == notSeen:
		r.say("??  %-34s  %s", what, got)
	default:
		r.failed = true
		r.say("NO  %-34s  %s\n    expected:  %s", what, got, expected)
	}
}

// errAbsent says that there is nothing to delete.
var errAbsent = errors.New("it is not there, and may be made later")

// clean deletes what the run has made, also after an interruption, and names what stays.
func (r *run) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), time.Minute)
	defer cancel()
	for _, m := range r.made {
		if err := m.remove(ctx); err != nil {
			r.failed = true
			r.left = append(r.left, fmt.Sprintf("%s: %v", m.what, err))
			continue
		}
		r.say("deleted: %s", m.what)
	}
	for _, what := range r.left {
		r.say("left:    %s", what)
	}
}
