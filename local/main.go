// Command local runs it all on this machine: DynamoDB Local, the payments
// example as compiled Lambda functions, and an HTTP API in front of them, on
// 127.0.0.1 only. It takes a tour of the promise with real requests, prints what
// was expected and what came, and keeps serving until Ctrl-C.
//
//	go run ./local         everything, the tour, stay
//	go run ./local -once   everything, the tour, end; exit code 1 if a line differs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "end after the tour, with exit code 1 if any line differs")
	flag.StringVar(&o.endpoint, "endpoint", "", "DynamoDB endpoint to use instead of starting one")
	flag.StringVar(&o.jarDir, "jar", "", "folder with DynamoDBLocal.jar to start")
	flag.StringVar(&o.cacheDir, "cache", "", "folder to keep DynamoDB Local in (default: the user's cache folder)")
	flag.IntVar(&o.port, "port", 0, "port of the HTTP API (default: a free one)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "local: unexpected argument %q; see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := endWithParent(ctx)
	err := run(ctx, o, os.Stdout)
	end()
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

type options struct {
	once                       bool
	endpoint, jarDir, cacheDir string
	port                       int
}
