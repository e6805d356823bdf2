package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// tokenLifetime is long enough for a day's work.
const tokenLifetime = 12 * time.Hour

type tokenTask struct{ Tenant string }

func (t *tokenTask) flags(fs *flag.FlagSet, _ *options) {
	fs.StringVar(&t.Tenant, "tenant", defaultTenant, "the token's subject, which is the tenant")
}

func (t *tokenTask) check() error {
	if t.Tenant == "" {
		return misuse("-tenant is empty")
	}
	return nil
}

func (t *tokenTask) run(_ context.Context, s *stack, out io.Writer) error {
	token, err := s.issuer.Token(t.Tenant, nil, tokenLifetime)
	if err == nil {
		_, err = fmt.Fprintln(out, token)
	}
	return err
}

type resetTask struct{}

func (*resetTask) flags(*flag.FlagSet, *options) {}
func (*resetTask) check() error                  { return nil }

func (*resetTask) run(ctx context.Context, s *stack, out io.Writer) error {
	// Queues first: a message that is left would write again.
	for _, url := range []string{s.queue.URL, s.queue.DeadURL, s.work.URL, s.work.DeadURL, s.events.URL, s.people.URL} {
		if _, err := s.queue.Client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &url}); err != nil {
			return fmt.Errorf("cannot empty the queue %s: %w", path.Base(url), err)
		}
		fmt.Fprintf(out, "queue %s: emptied\n", path.Base(url))
	}
	client, err := newDynamoDB(s.db.Endpoint())
	if err != nil {
		return err
	}
	for _, table := range []string{recordsTable, ordersTable} {
		items, err := emptyTable(ctx, client, table)
		if err != nil {
			return fmt.Errorf("cannot empty the table %s: %w", table, err)
		}
		fmt.Fprintf(out, "table %s: %d items deleted\n", table, items)
	}
	return nil
}
