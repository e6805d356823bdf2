package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/streampoller"
)

const (
	// streamPoll is 250 ms on AWS.
	streamPoll = 50 * time.Millisecond
	// relayEvery is the time between two sweeps for messages that could not be sent. It is minutes
	// on AWS.
	relayEvery = 5 * time.Second
)

// startRelay runs the relay of the outbox, on the stream of the records' table and a schedule. Its
// calls are not counted: no request makes them.
func (s *stack) startRelay(ctx context.Context) error {
	event, err := samples.Get("eventbridge-scheduled")
	if err != nil {
		return err
	}
	routes, err := json.Marshal(map[string]string{statementsQueue: s.work.URL, eventsQueue: s.events.URL})
	if err != nil {
		return err
	}
	err = s.startFunction(ctx, relay, schema.EnvOutboxRoutes+"="+string(routes), "AWS_ENDPOINT_URL_SQS="+s.sqs.Endpoint(),
		schema.EnvEndpoint+"="+s.db.Endpoint(), "AWS_LAMBDA_LOG_LEVEL=INFO")
	if err != nil {
		return err
	}
	client, err := newDynamoDB(s.db.Endpoint())
	if err != nil {
		return err
	}
	stream, err := streampoller.StreamOf(ctx, client, recordsTable)
	if err != nil {
		return err
	}
	reads := dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: client.Options().BaseEndpoint, Region: client.Options().Region, Credentials: client.Options().Credentials,
	})
	invoke := func(ctx context.Context, event []byte) ([]byte, error) {
		if err := s.relaying.pass(ctx); err != nil {
			return nil, err
		}
		return s.pools[relay].Call(ctx, event)
	}
	poller, err := streampoller.Start(ctx, reads, stream, invoke, &streampoller.Options{
		Filter: schema.OutboxFilter, ReportBatchItemFailures: true, PollInterval: streamPoll,
		Logf: func(format string, args ...any) { fmt.Fprintf(s.logs, "stream "+format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	s.onClose(poller.Close)
	s.schedule(ctx, relay, relayEvery, event)
	return nil
}

// gate lets everything pass until it is closed.
type gate struct {
	mu     sync.Mutex
	closed chan struct{}
}

func (g *gate) close() (open func()) {
	closed := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = nil
		close(closed)
	}
}

func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
