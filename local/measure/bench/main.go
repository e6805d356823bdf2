// Command bench measures what the library adds and fails where it adds too much:
//
//   - the engine over the in-memory store, 1 KB of JSON in and out, against
//     fingerprint and codec alone: no more time again, no more than 30 allocations;
//   - the HTTP contract over that engine: no more time than fingerprint and codec,
//     fewer than 60 allocations;
//   - metrics and a log line of each notice, over that engine: no more than 0.65 of the time
//     of fingerprint and codec, which is 15 µs, and 20 allocations;
//   - operations on DynamoDB against the same SDK calls made by hand with items of
//     the same size, at 1, 8 and 32 callers: fails if the 95 % interval of the
//     paired throughput ratios lies wholly below 0.95.
//
// All comparisons are within this run, the two sides taking turns: machines are
// noisy. A time is refused if the 95 % interval of its shares lies wholly above. It expects a DynamoDB
// endpoint in IDEM_DYNAMODB_ENDPOINT; `make bench` provides one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

// rounds of each comparison, the sides taking turns.
const rounds = 9

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b, err := newDuel(ctx)
	if err != nil {
		return err
	}
	return errors.Join(memoryBench(), b.bench(ctx))
}
