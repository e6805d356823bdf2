package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue"
)

const (
	// sweepEvery is a minute on AWS.
	sweepEvery = 2 * time.Second
	// escalateAfter is the age at which a refund is escalated that the provider says nothing
	// about. It is hours elsewhere.
	escalateAfter = 3 * time.Second
	// escalationQueue has the questions that a sweep escalates.
	escalationQueue = "escalations"
)

// startSweeper runs the sweeper of the payments, which asks the provider, and its schedule.
// Its calls are not counted: no request makes them.
func (s *stack) startSweeper(ctx context.Context, providerURL string) error {
	event, err := samples.Get("eventbridge-scheduled")
	if err != nil {
		return err
	}
	if s.escalations, err = queue.Create(ctx, queue.NewClient(s.sqs.Endpoint()), queue.Spec{Name: escalationQueue}); err != nil {
		return err
	}
	err = s.startFunction(ctx, refundSweeper, "PROVIDER_URL="+providerURL, "ESCALATE_AFTER="+escalateAfter.String(), schema.EnvSweepEscalations+"="+s.escalations.URL,
		"AWS_ENDPOINT_URL_SQS="+s.sqs.Endpoint(), schema.EnvEndpoint+"="+s.db.Endpoint(), "AWS_LAMBDA_LOG_LEVEL=INFO")
	if err != nil {
		return err
	}
	s.schedule(ctx, refundSweeper, sweepEvery, event)
	return nil
}

// schedule invokes a function with the event, every so often, until the stack is closed.
func (s *stack) schedule(ctx context.Context, function string, every time.Duration, event []byte) {
	ctx, cancel := context.WithCancel(ctx)
	var schedule sync.WaitGroup
	schedule.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := s.pools[function].Call(ctx, event); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.logs, "schedule %v\n", err)
			}
		}
	})
	s.onClose(func() { cancel(); schedule.Wait() })
}
