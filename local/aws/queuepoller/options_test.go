package queuepoller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

func noop(fakeEvent) (string, error) { return "null", nil }

// Start refuses what Lambda refuses, and what is no queue.
func TestWhatStartRefuses(t *testing.T) {
	good, hidden := newFakeQueue(standardARN), newFakeQueue(standardARN)
	hidden.attributes["VisibilityTimeout"] = ""
	for want, c := range map[string]struct {
		client  Client
		url     string
		options Options
	}{
		"BatchSize -1 is not in [1, 10]":            {good, "url", Options{BatchSize: -1}},
		"not imitated":                              {good, "url", Options{BatchSize: 11}},
		"MaxConcurrency 1 is not in [2, 1000]":      {good, "url", Options{MaxConcurrency: 1}},
		"MaxConcurrency 1001":                       {good, "url", Options{MaxConcurrency: 1001}},
		"is negative":                               {good, "url", Options{FunctionTimeout: -1}},
		"is less than the function's time-out, 31s": {good, "url", Options{FunctionTimeout: 31 * time.Second}},
		"http://q: QueueDoesNotExist":               {noQueue{}, "http://q", Options{}},
		`ARN "what"`:                                {newFakeQueue("what"), "url", Options{}},
		"visibility time-out":                       {hidden, "url", Options{}},
		"required":                                  {good, "", Options{}},
	} {
		_, err := Start(t.Context(), c.client, c.url, functionFunc(noop), &c.options)
		require.ErrorContains(t, err, want)
	}
}

func TestOptionsThatLambdaTakes(t *testing.T) {
	for _, o := range []*Options{
		nil, {BatchSize: 1, MaxConcurrency: 2},
		{BatchSize: 10, MaxConcurrency: 1000, FunctionTimeout: 30 * time.Second},
	} {
		p, err := Start(t.Context(), newFakeQueue(fifoARN), "url", functionFunc(noop), o)
		require.NoError(t, err)
		p.Close()
		p.Close()
	}
}

type noQueue struct{ Client }

func (noQueue) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput,
	...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return nil, errors.New("QueueDoesNotExist")
}
