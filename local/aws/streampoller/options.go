package streampoller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// Defaults and limits, those of an event source mapping where it has them.
const (
	DefaultBatchSize    = 100
	MaxBatchSize        = 10_000
	MaxBatchWindow      = 300 * time.Second
	MaxMaxRetryAttempts = 10_000
	MinMaxRecordAge     = 60 * time.Second
	MaxFilters          = 5
	// DefaultPollInterval is Lambda's base rate for a shard: four times a second.
	DefaultPollInterval = 250 * time.Millisecond
	// DefaultBackoff and DefaultMaxBackoff bound the pause before a retry, which
	// doubles. What Lambda does is not documented.
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 5 * time.Second

	// maxEvent is the largest event that Lambda takes.
	maxEvent = 6 << 20
)

// StartingPosition is where in the stream the first delivery begins.
type StartingPosition string

const (
	// TrimHorizon begins with the oldest record that the stream still has.
	TrimHorizon StartingPosition = "TRIM_HORIZON"
	// Latest delivers what is written after [Start] has returned.
	Latest StartingPosition = "LATEST"
)

// Client is what the poller uses of a *dynamodbstreams.Client.
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
	// StartingPosition is where the first delivery begins. Default [TrimHorizon].
	StartingPosition StartingPosition
	// Filters are patterns (see [Filter]), of which a record must match one. At
	// most 5. None lets all through.
	Filters []string
	// BatchSize is the most records of an event. Default 100; at most 10,000.
	BatchSize int
	// BatchWindow is how long records are gathered for an event that is not full.
	// Default 0: not at all. At most 300 s.
	BatchWindow time.Duration
	// BisectBatchOnFunctionError splits a failed batch in two before it is tried
	// again; that does not count as a retry.
	BisectBatchOnFunctionError bool
	// MaxRetryAttempts is how often a failed batch is delivered again before it is
	// discarded. Default 0: without end, as Lambda's -1. [NoRetry] is none.
	MaxRetryAttempts int
	// MaxRecordAge is the age from which a record is discarded. Default 0: as long
	// as the stream keeps it. 60 s to 7 days.
	MaxRecordAge time.Duration
	// ReportBatchItemFailures reads from the function's answer at which record the
	// next delivery begins.
	ReportBatchItemFailures bool
	// OnFailure is the destination of what is discarded. It is called for several
	// shards at once.
	OnFailure func(Discarded)

	// PollInterval is the pause between two looks at a shard without new records.
	// Default 250 ms.
	PollInterval time.Duration
	// Backoff is the pause before the first retry; it doubles up to 5 s. Default
	// 100 ms.
	Backoff time.Duration
	// Logf, if set, gets what goes wrong, one line each.
	Logf func(format string, args ...any)
}

// NoRetry as [Options.MaxRetryAttempts] discards a batch that fails once, as
// Lambda's 0.
const NoRetry = -1

// Discarded is what a destination is told of records that are not delivered again.
type Discarded struct {
	// Condition is RetryAttemptsExhausted or RecordAgeExceeded.
	Condition string
	// Invocations counts the deliveries of the batch.
	Invocations int
	// Err is the last failure; nil if there was no delivery.
	Err error
	// StreamARN, ShardID and sequence numbers say where the records are.
	StreamARN, ShardID, FirstSequenceNumber, LastSequenceNumber string
	// FirstArrival and LastArrival are approximate, in seconds.
	FirstArrival, LastArrival time.Time
	// Records are as the function got them.
	Records [][]byte
}

// Conditions of [Discarded].
const (
	RetryAttemptsExhausted = "RetryAttemptsExhausted"
	RecordAgeExceeded      = "RecordAgeExceeded"
)

type settings struct {
	Options
	filters []*Filter
}

func (o *Options) withDefaults() (*settings, error) {
	s := &settings{}
	if o != nil {
		s.Options = *o
	}
	bad := func(format string, args ...any) (*settings, error) {
		return nil, fmt.Errorf("streampoller: Options."+format, args...)
	}
	switch {
	case s.StartingPosition != "" && s.StartingPosition != TrimHorizon && s.StartingPosition != Latest:
		return bad("StartingPosition is %q: use %q or %q", s.StartingPosition, TrimHorizon, Latest)
	case len(s.Filters) > MaxFilters:
		return bad("Filters has %d patterns: at most %d", len(s.Filters), MaxFilters)
	case s.BatchSize < 0 || s.BatchSize > MaxBatchSize:
		return bad("BatchSize is %d: use 1 to %d", s.BatchSize, MaxBatchSize)
	case s.BatchWindow < 0 || s.BatchWindow > MaxBatchWindow:
		return bad("BatchWindow is %v: use 0 to %v", s.BatchWindow, MaxBatchWindow)
	case s.MaxRetryAttempts < NoRetry || s.MaxRetryAttempts > MaxMaxRetryAttempts:
		return bad("MaxRetryAttempts is %d: use 1 to %d, 0 for no limit, NoRetry for none", s.MaxRetryAttempts, MaxMaxRetryAttempts)
	case s.MaxRecordAge != 0 && (s.MaxRecordAge < MinMaxRecordAge || s.MaxRecordAge > 7*24*time.Hour):
		return bad("MaxRecordAge is %v: use %v to 7 days, or 0 for no limit", s.MaxRecordAge, MinMaxRecordAge)
	case s.PollInterval < 0 || s.Backoff < 0:
		return bad("PollInterval and Backoff cannot be negative")
	}
	for _, pattern := range s.Filters {
		f, err := ParseFilter(pattern)
		if err != nil {
			return nil, err
		}
		s.filters = append(s.filters, f)
	}
	if s.StartingPosition == "" {
		s.StartingPosition = TrimHorizon
	}
	if s.BatchSize == 0 {
		s.BatchSize = DefaultBatchSize
	}
	if s.PollInterval == 0 {
		s.PollInterval = DefaultPollInterval
	}
	if s.Backoff == 0 {
		s.Backoff = DefaultBackoff
	}
	if s.Logf == nil {
		s.Logf = func(string, ...any) {}
	}
	if s.OnFailure == nil {
		s.OnFailure = func(Discarded) {}
	}
	return s, nil
}

// TableDescriber is what [StreamOf] uses of a *dynamodb.Client.
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
