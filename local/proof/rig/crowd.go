package rig

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// Sendings are all requests, each 1 to most times, most of them at once.
func Sendings[T any](random *rand.Rand, all []T, most int) (queue []T) {
	for _, r := range all {
		for range 1 + random.IntN(most) {
			queue = append(queue, r)
		}
	}
	for i := range queue {
		j := min(i+random.IntN(12), len(queue)-1)
		queue[i], queue[j] = queue[j], queue[i]
	}
	return queue
}

// Crowd has a number of senders work off the queue, and requires that each gets an answer within the limit.
// sender makes one of them, by its number. The first error ends what the others do.
func Crowd[T any](tb testing.TB, queue []T, senders int, limit time.Duration,
	sender func(n int) func(context.Context, T) error,
) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	work := make(chan T)
	failed := make(chan error, len(queue))
	var g sync.WaitGroup
	for n := range senders {
		send := sender(n)
		g.Go(func() {
			for r := range work {
				if err := send(ctx, r); err != nil {
					failed <- err
					cancel()
				}
			}
		})
	}
	for _, r := range queue {
		work <- r
	}
	close(work)
	g.Wait()
	close(failed)
	for err := range failed {
		require.NoError(tb, err)
	}
}

// AllFaults are those of a network that strike a call; the first one is of writes alone.
var AllFaults = []string{
	faultnet.Conflicted, faultnet.KilledBefore, faultnet.KilledAfter, faultnet.KilledWith,
	faultnet.CallLost, faultnet.ReplyLost, faultnet.CutLate, faultnet.SilentLate,
}

// AnyFault strikes so many of a hundred transactions, writes and reads.
func AnyFault(transactions, writes, reads float64) func(op string) (float64, []string) {
	return func(op string) (float64, []string) {
		switch op {
		case "TransactWriteItems":
			return transactions, AllFaults
		case "PutItem", "UpdateItem":
			return writes, AllFaults
		}
		return reads, AllFaults[1:] // a plain read has no conflict
	}
}
