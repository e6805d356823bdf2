package streampoller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// Defaults and limits; those of an event source mapping if it has them.
const (
	DefaultBatchSize = 100
	MaxBatchSize     = 10_000
	MaxFilters       = 5
	// DefaultPollInterval is Lambda's base rate for a shard: four times a second.
	DefaultPollInterval = 250 * time.Millisecond
	// DefaultBackoff is the pause before a retry, which doubles up to 5 s. Lambda's pause
	// is not documented.
	DefaultBackoff = 100 * time.Millisecond

	maxBackoff = 5 * time.Second
	maxEvent   = 6 << 20 // that Lambda takes
)

// Client has the methods of *dynamodbstreams.Client that the poller calls.
type Client interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Invoke runs the function once: [runtime.Pool.Call], or a handler in this
// process. Any error is the function's, unless the context has ended or it is
// [runtime.ErrClosed], which stops the poller. It is called for several shards at
// once.
type Invoke func(ctx context.Context, event []byte) ([]byte, error)

// Options are the settings of an event source mapping. Nil, and zero values, mean
// the defaults.
type Options struct {
	// Filters are at most 5 patterns (see [Filter]). A record must match one of them.
	// Without filters all records are delivered.
	Filters []string
	// BatchSize is the most records of an event. Default 100; at most 10,000.
	BatchSize int
	// BisectBatchOnFunctionError splits a failed batch in two before it is tried
	// again.
	BisectBatchOnFunctionError bool
	// ReportBatchItemFailures reads the first record of the next delivery from the
	// function's answer.
	ReportBatchItemFailures bool

	// PollInterval is the pause between two reads of a shard without new records.
	// Default 250 ms.
	PollInterval time.Duration
	// Backoff is the pause before the first retry; it doubles up to 5 s. Default
	// 100 ms.
	Backoff time.Duration
	// Logf, if set, gets each error, one line a call.
	Logf func(format string, args ...any)
}

type settings struct {
	Options
	filters []*Filter
}

func (o *Options) withDefaults() (*settings, error) {
	s := &settings{}
	if o != nil {
		s.Options = *o
	}
	invalid := func(format string, args ...any) (*settings, error) {
		return nil, fmt.Errorf("streampoller: Options."+format, args...)
	}
	switch {
	case len(s.Filters) > MaxFilters:
		return invalid("Filters has %d patterns: at most %d", len(s.Filters), MaxFilters)
	case s.BatchSize < 0 || s.BatchSize > MaxBatchSize:
		return invalid("BatchSize is %d: use 1 to %d", s.BatchSize, MaxBatchSize)
	case s.PollInterval < 0 || s.Backoff < 0:
		return invalid("PollInterval and Backoff cannot be negative")
	}
	for _, pattern := range s.Filters {
		f, err := ParseFilter(pattern)
		if err != nil {
			return nil, err
		}
		s.filters = append(s.filters, f)
	}
	s.BatchSize = cmp.Or(s.BatchSize, DefaultBatchSize)
	s.PollInterval = cmp.Or(s.PollInterval, DefaultPollInterval)
	s.Backoff = cmp.Or(s.Backoff, DefaultBackoff)
	if s.Logf == nil {
		s.Logf = func(string, ...any) {}
	}
	return s, nil
}

// TableDescriber has the method of *dynamodb.Client that [StreamOf] calls.
type TableDescriber interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

// StreamOf returns the ARN of a table's stream.
func StreamOf(ctx context.Context, client TableDescriber, table string) (string, error) {
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return "", fmt.Errorf("streampoller: table %s: %w", table, err)
	}
	if out.Table == nil || out.Table.LatestStreamArn == nil {
		return "", errors.New("streampoller: table " + table + " has no stream: enable one with new and old images")
	}
	return *out.Table.LatestStreamArn, nil
}
