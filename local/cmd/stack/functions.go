package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	smithytime "github.com/aws/smithy-go/time"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

const (
	payments      = "payments"
	orders        = "orders"
	statements    = "statements"
	relay         = "relay"
	refundSweeper = "refundsweeper"

	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8

	// sweepEvery is a minute on AWS, and relayEvery, the time between two sweeps for messages that
	// could not be sent, minutes.
	sweepEvery = 2 * time.Second
	relayEvery = 5 * time.Second
	// escalateAfter is the age at which a refund is escalated that the provider does not answer
	// about. It is hours on AWS.
	escalateAfter = 3 * time.Second
	// streamPoll is 250 ms on AWS.
	streamPoll = 50 * time.Millisecond
)

// functions are the examples that run.
var functions = []string{payments, orders, statements, relay, refundSweeper}

// buildFunctions compiles the examples as they are deployed, but for this machine.
func buildFunctions(ctx context.Context, dir string) error {
	const folder = "github.com/idem-go/idempotency/lambda/functions/"
	args := []string{"-tags", "lambda.norpc", "-o", dir + string(os.PathSeparator)}
	for _, name := range functions {
		args = append(args, folder+name)
	}
	err := gorun.Build(ctx, []string{"CGO_ENABLED=0"}, args...)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot compile the functions: %w", err)
	}
	return err
}

// startFunctions makes a pool of each compiled example.
func (s *stack) startFunctions(ctx context.Context) (err error) {
	if s.wire, err = newWire(s.db.Endpoint()); err != nil {
		return err
	}
	counted, err := s.listen(0, s.wire)
	if err != nil {
		return err
	}
	s.provider = &provider{
		asked: map[string]int{}, made: map[string]made{}, held: map[string]chan struct{}{}, silent: map[string]bool{},
	}
	providerURL, err := s.listen(0, s.provider)
	if err != nil {
		return err
	}
	routes, err := json.Marshal(map[string]string{"statements": s.statements.URL, "order-events": s.events.URL})
	if err != nil {
		return err
	}
	provider := "PROVIDER_URL=" + providerURL
	sqs := "AWS_ENDPOINT_URL_SQS=" + s.sqs.Endpoint()
	// No request makes the calls of the sweeper and the relay: they are not counted.
	background := []string{sqs, schema.EnvEndpoint + "=" + s.db.Endpoint(), "AWS_LAMBDA_LOG_LEVEL=INFO"}
	for name, env := range map[string][]string{
		payments:   {provider, "PAYMENTS_API=http", "PAYMENTS_TENANT=jwt:sub"},
		statements: append(s.statements.settings(statement), provider),
		orders:     append(s.orders.settings(fulfil), "ORDERS_TABLE="+ordersTable),
		refundSweeper: append([]string{
			provider, "ESCALATE_AFTER=" + escalateAfter.String(), schema.EnvSweepEscalations + "=" + s.escalations.URL,
		}, background...),
		relay: append([]string{schema.EnvOutboxRoutes + "=" + string(routes)}, background...),
	} {
		common := []string{
			schema.EnvTable + "=" + recordsTable, schema.EnvEndpoint + "=" + counted,
			"AWS_LAMBDA_LOG_FORMAT=JSON", "AWS_LAMBDA_LOG_LEVEL=DEBUG",
		}
		pool, err := runtime.Start(ctx, runtime.Function{
			Path: s.folder.path("bin", name), Name: name, Timeout: functionTimeout, MaxInstances: maxInstances,
			Env: append(common, env...),
		}, &runtime.Options{Output: s.logs})
		if err != nil {
			return err
		}
		s.pools[name] = pool
		s.onClose(pool.Close)
	}
	return nil
}

// startSources starts what invokes the functions: queues, the stream of the records' table, and
// schedules.
func (s *stack) startSources(ctx context.Context) error {
	if err := s.startMapping(ctx, s.orders, s.pools[orders]); err != nil {
		return err
	}
	if err := s.startMapping(ctx, s.statements, s.pools[statements]); err != nil {
		return err
	}
	if err := s.startStream(ctx); err != nil {
		return err
	}
	event, err := samples.Get("eventbridge-scheduled")
	if err != nil {
		return err
	}
	s.schedule(ctx, s.pools[relay], relayEvery, event)
	s.schedule(ctx, s.pools[refundSweeper], sweepEvery, event)
	return nil
}

// startStream brings the stream of the records' table to the relay of the outbox.
func (s *stack) startStream(ctx context.Context) error {
	stream, err := streampoller.StreamOf(ctx, s.dynamodb, recordsTable)
	if err != nil {
		return err
	}
	with := s.dynamodb.Options()
	reads := dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: with.BaseEndpoint, Region: with.Region, Credentials: with.Credentials,
	})
	invoke := func(ctx context.Context, event []byte) ([]byte, error) {
		s.relaying.RLock()
		defer s.relaying.RUnlock()
		return s.pools[relay].Call(ctx, event)
	}
	poller, err := streampoller.Start(ctx, reads, stream, invoke, &streampoller.Options{
		Filter: schema.OutboxFilter, PollInterval: streamPoll,
		Logf: func(format string, args ...any) { fmt.Fprintf(s.logs, format+"\n", args...) },
	})
	if err == nil {
		s.onClose(poller.Close)
	}
	return err
}

// schedule invokes a function with the event, every so often, until the stack is closed.
func (s *stack) schedule(ctx context.Context, function *runtime.Pool, every time.Duration, event []byte) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for smithytime.SleepWithContext(ctx, every) == nil {
			if _, err := function.Call(ctx, event); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.logs, "schedule %v\n", err)
			}
		}
	})
	s.onClose(func() { cancel(); work.Wait() })
}
