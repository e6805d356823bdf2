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

func TestOptionsThatLambdaRefuses(t *testing.T) {
	for _, c := range []struct {
		arn     string
		options Options
		want    string
	}{
		{standardARN, Options{BatchSize: -1}, "BatchSize -1 is not in [1, 10]"},
		{standardARN, Options{BatchSize: 11}, "not imitated"},
		{standardARN, Options{MaxConcurrency: 1}, "MaxConcurrency 1 is not in [2, 1000]"},
		{standardARN, Options{MaxConcurrency: 1001}, "MaxConcurrency 1001"},
		{standardARN, Options{FunctionTimeout: -1}, "is negative"},
		{standardARN, Options{FunctionTimeout: 31 * time.Second}, "is less than the function's time-out, 31s"},
	} {
		_, err := Start(t.Context(), newFakeQueue(c.arn), "url", functionFunc(noop), &c.options)
		require.ErrorContains(t, err, c.want)
	}
	for _, c := range []struct {
		arn     string
		options Options
	}{
		{standardARN, Options{}},
		{standardARN, Options{BatchSize: 1, MaxConcurrency: 2}},
		{fifoARN, Options{BatchSize: 10, MaxConcurrency: 1000, FunctionTimeout: 30 * time.Second}},
	} {
		p, err := Start(t.Context(), newFakeQueue(c.arn), "url", functionFunc(noop), &c.options)
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

func TestStartNeedsAQueue(t *testing.T) {
	_, err := Start(t.Context(), noQueue{}, "http://q", functionFunc(noop), nil)
	require.ErrorContains(t, err, "http://q: QueueDoesNotExist")
	_, err = Start(t.Context(), newFakeQueue("what"), "url", functionFunc(noop), nil)
	require.ErrorContains(t, err, `ARN "what"`)
	q := newFakeQueue(standardARN)
	q.attributes["VisibilityTimeout"] = ""
	_, err = Start(t.Context(), q, "url", functionFunc(noop), nil)
	require.ErrorContains(t, err, "visibility time-out")
	_, err = Start(t.Context(), q, "", functionFunc(noop), nil)
	require.ErrorContains(t, err, "required")
}
