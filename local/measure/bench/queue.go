package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

const (
	// callTime is added to every call of DynamoDB.
	callTime = 20 * time.Millisecond
	// maxBatchShare is how much longer than one message a batch of ten may take.
	maxBatchShare = 1.5
	// warmUp is how many batches come first: they open the connections, and DynamoDB
	// Local is slow until its code is compiled.
	warmUp = 50
)

// errDisturbed is a batch that a stalled machine has spoiled: a call was tried again,
// or came too late. Its round does not count; too many of them are a failure.
var errDisturbed = errors.New("queue: not two calls for each of a batch of new messages")

// slow is a connection that takes its time.
type slow struct {
	http.RoundTripper
	calls atomic.Int64
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls.Add(1)
	time.Sleep(callTime)
	return s.RoundTripper.RoundTrip(r)
}

// queueBench compares a batch of ten new messages with one, in turns.
func queueBench(ctx context.Context, d *dynamo, rounds int) error {
	rounds *= 4 // a round is short, and one that is disturbed should not count for much
	line := &slow{RoundTripper: &http.Transport{MaxIdleConnsPerHost: 16}}
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint), Transport: line})
	if err != nil {
		return err
	}
	store, err := dynamostore.New(client, d.table, nil)
	if err != nil {
		return err
	}
	engine, err := idem.New(store, nil)
	if err != nil {
		return err
	}
	var ran atomic.Int64
	handler := idemlambda.SQS(engine, work, idemlambda.SQSMessageID(idem.NoTenant), &idemlambda.SQSOptions{Logger: slog.New(slog.DiscardHandler)},
		func(context.Context, []byte) error { ran.Add(1); return nil })
	next := 0
	batch := func(n int) (float64, error) {
		event := events.SQSEvent{Records: make([]events.SQSMessage, n)}
		for i := range event.Records {
			next++
			event.Records[i] = events.SQSMessage{MessageId: "bench" + strconv.Itoa(next), Body: "{}"}
		}
		ran.Store(0)
		line.calls.Store(0)
		begun := time.Now()
		res, err := handler(ctx, event)
		took := time.Since(begun)
		switch {
		case err != nil:
			return 0, err
		case len(res.BatchItemFailures) > 0 || ran.Load() != int64(n):
			return 0, fmt.Errorf("%w: %d of %d messages ran, %d are redelivered", errDisturbed, ran.Load(), n, len(res.BatchItemFailures))
		case line.calls.Load() != int64(2*n):
			return 0, fmt.Errorf("%w: %d calls for %d messages, two each were expected", errDisturbed, line.calls.Load(), n)
		}
		return took.Seconds() * 1e3, nil
	}
	for range warmUp {
		if _, err := batch(10); err != nil && !errors.Is(err, errDisturbed) {
			return err
		}
	}
	var ones, tens, ratios []float64
	for disturbed := 0; len(ratios) < rounds; {
		one, err := batch(1)
		var ten float64
		if err == nil {
			ten, err = batch(10)
		}
		switch {
		case errors.Is(err, errDisturbed) && disturbed < rounds/2:
			disturbed++
			continue
		case err != nil:
			return err
		}
		ones, tens, ratios = append(ones, one), append(tens, ten), append(ratios, ten/one)
	}
	low, high := interval(ratios)
	fmt.Printf("\nqueue: a batch of ten new messages against one, with %v added to every DynamoDB call, %d rounds\n", callTime, rounds)
	fmt.Printf("  one %.1f ms, ten %.1f ms: %.3f times, 95 %% interval %.3f to %.3f\n", middle(ones), middle(tens), middle(ratios), low, high)
	if low > maxBatchShare {
		return fmt.Errorf("queue: a batch of ten takes between %.2f and %.2f times one message, at most %.1f is allowed", low, high, maxBatchShare)
	}
	return nil
}
