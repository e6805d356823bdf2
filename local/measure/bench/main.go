// Command bench measures what the library adds and fails where it adds too much:
//
//   - the engine over the in-memory store, 1 KB of JSON in and out, against
//     fingerprint and codec alone: no more time again, no more than 40 allocations;
//   - the HTTP contract over that engine: no more time than fingerprint and codec,
//     fewer than 60 allocations;
//   - operations on DynamoDB against the same SDK calls made by hand with items of
//     the same size, at 1, 8 and 32 callers: fails if the 95 % interval of the
//     paired throughput ratios lies wholly below 0.95;
//   - a queue's batch of ten new messages against one, with 20 ms added to every
//     call of DynamoDB: fails if the 95 % interval of the ratio lies wholly above 1.5;
//   - calls and capacity units of every path of the protocol.
//
// All comparisons are within this run, the two sides taking turns: machines are
// noisy. It expects a DynamoDB endpoint in IDEM_DYNAMODB_ENDPOINT; `make bench`
// provides one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	rounds := flag.Int("rounds", 9, "interleaved rounds of each comparison, at least 7")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int) error {
	if rounds < 7 {
		return fmt.Errorf("-rounds is %d: fewer than 7 say nothing", rounds)
	}
	d, err := openDynamo(ctx)
	if err != nil {
		return err
	}
	memory := memoryBench(rounds)
	units := unitsTable(ctx, d)
	dynamo := dynamoBench(ctx, d, rounds)
	queue := queueBench(ctx, d, rounds)
	return errors.Join(memory, units, dynamo, queue)
}
