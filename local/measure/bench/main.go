// Command bench measures what the library adds to operations on DynamoDB, against the same
// SDK calls made by hand with items of the same size, at 1, 8 and 32 callers. It fails if
// the 95 % interval of the paired throughput ratios lies wholly below 0.95.
//
// All comparisons are within this run, the two sides taking turns: machines are
// noisy. It expects a DynamoDB endpoint in IDEM_DYNAMODB_ENDPOINT; `make bench` provides one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	return b.run(ctx)
}
