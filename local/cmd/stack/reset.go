package main

import (
	"context"
	"flag"
	"fmt"
	"io"
)

func resetCommand(fs *flag.FlagSet) func(context.Context, io.Writer) error {
	var cacheDir string
	declareCache(fs, &cacheDir)
	return func(ctx context.Context, out io.Writer) error {
		n, err := running(ctx, cacheDir)
		if err != nil {
			return err
		}
		// Queues first: a message that is left would write again.
		for _, queue := range n.Queues {
			if err := purge(ctx, n.SQS, queue); err != nil {
				return fmt.Errorf("cannot empty the queue %s: %w", queueName(queue), err)
			}
			fmt.Fprintf(out, "queue %s: emptied\n", queueName(queue))
		}
		client, err := newDynamoDB(n.DynamoDB)
		if err != nil {
			return err
		}
		for _, table := range n.Tables {
			items, err := emptyTable(ctx, client, table)
			if err != nil {
				return fmt.Errorf("cannot empty the table %s: %w", table, err)
			}
			fmt.Fprintf(out, "table %s: %d items deleted\n", table, items)
		}
		return nil
	}
}
