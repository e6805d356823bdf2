package cloud

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/streampoller"
)

// Mapping brings a queue's messages, or the records of a table's stream, to a function.
type Mapping struct {
	Function, Queue, Table string
	BatchSize              int
	MaxConcurrency         int // of a queue's; 0 if it is not limited
	Filter                 string
	Stream                 string // the ARN of the table's, when that is made; another one if it is made again
	WholeBatch             bool   // the function's answers name no single items that have failed
	of                     *resource
}

// streamPoll is 250 ms on AWS, which is long where a single client waits.
const streamPoll = 50 * time.Millisecond

// visibilityOf is a queue's visibility time-out. One that is no number is refused when the queue is made.
func (p *Plan) visibilityOf(queue string) time.Duration {
	at := slices.IndexFunc(p.Queues, func(q Queue) bool { return q.Name == queue })
	seconds, err := strconv.Atoi(cmp.Or(p.Queues[at].Attributes["VisibilityTimeout"], "30"))
	if err != nil {
		return debugTimeout
	}
	return time.Duration(seconds) * time.Second
}

func init() {
	kinds["AWS::Lambda::EventSourceMapping"] = kind{service: "lambda", plan: planned(planMapping), ignored: []string{
		"StartingPosition", "MaximumRetryAttempts", "BisectBatchOnFunctionError", "DestinationConfig",
		"MaximumRecordAgeInSeconds", "MetricsConfig"}}
}

func planMapping(p *Plan, r *resource, is struct {
	FunctionName, EventSourceArn   string
	BatchSize                      number
	MaximumBatchingWindowInSeconds number
	FunctionResponseTypes          []string
	ScalingConfig                  struct{ MaximumConcurrency number }
	FilterCriteria                 struct{ Filters []struct{ Pattern string } }
	ParallelizationFactor          number
	Enabled                        *flag
}) error {
	if is.Enabled != nil && !*is.Enabled {
		return nil
	}
	m := Mapping{Function: functionName(is.FunctionName), BatchSize: int(is.BatchSize),
		MaxConcurrency: int(is.ScalingConfig.MaximumConcurrency), of: r}
	switch {
	case strings.HasPrefix(is.EventSourceArn, "arn:aws:sqs:"):
		m.Queue = lastPart(is.EventSourceArn)
		if len(is.FilterCriteria.Filters) > 0 {
			return r.fail("filters of a queue's messages do not run here")
		}
	case strings.HasPrefix(is.EventSourceArn, "arn:aws:dynamodb:"):
		m.Table = iam.TableOf(is.EventSourceArn)
		switch filters := is.FilterCriteria.Filters; len(filters) {
		case 0:
		case 1:
			m.Filter = filters[0].Pattern
		default:
			return r.fail("several filters of a stream do not run here")
		}
	default:
		return r.fail("events of %s do not come here: only those of a queue and of a table's stream", is.EventSourceArn)
	}
	if !slices.Contains(is.FunctionResponseTypes, "ReportBatchItemFailures") {
		m.WholeBatch = true
		p.Notes = append(p.Notes, r.String()+": without FunctionResponseTypes: ReportBatchItemFailures an error delivers "+
			"the whole batch again, and an item that the function names as failed is lost")
	}
	if is.MaximumBatchingWindowInSeconds > 0 {
		p.Notes = append(p.Notes, r.String()+": MaximumBatchingWindowInSeconds has no effect here")
	}
	ends := slices.DeleteFunc([]string{"MaximumRetryAttempts", "MaximumRecordAgeInSeconds", "BisectBatchOnFunctionError",
		"DestinationConfig"}, func(name string) bool { return r.Properties[name] == nil })
	if len(ends) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s: a batch that fails is delivered again until it succeeds: %s have no "+
			"effect here", r, strings.Join(ends, ", ")))
	}
	p.Mappings = append(p.Mappings, m)
	return nil
}

// check refuses what the pollers would refuse.
func (m Mapping) check(p *Plan) error {
	if m.Queue != "" {
		return m.fromQueue(p).Check(p.visibilityOf(m.Queue))
	}
	at := slices.IndexFunc(p.Tables, func(t Table) bool { return t.Name == m.Table })
	if p.Tables[at].Create.StreamSpecification == nil {
		return fmt.Errorf("the table %s has no stream: give it a StreamSpecification", m.Table)
	}
	return m.fromStream().Check()
}

func (m Mapping) fromQueue(p *Plan) *queuepoller.Options {
	return &queuepoller.Options{BatchSize: m.BatchSize, MaxConcurrency: min(m.MaxConcurrency, 10),
		WholeBatch: m.WholeBatch, FunctionTimeout: p.function(m.Function).Timeout}
}

func (m Mapping) fromStream() *streampoller.Options {
	return &streampoller.Options{Filter: m.Filter, BatchSize: m.BatchSize, WholeBatch: m.WholeBatch,
		PollInterval: streamPoll}
}

// startMappings starts what brings messages and records to functions.
func (r *Running) startMappings(ctx context.Context, p *Plan) error {
	return renew(r.mappings, p.Mappings, func(m Mapping) (func(), error) {
		f := r.functions[m.Function]
		if m.Queue != "" {
			o := m.fromQueue(p)
			o.Trouble = func(err error) { r.report("%s: %v", m.of, err) }
			o.Delivered = func(d queuepoller.Delivery) {
				if r.options.Delivered != nil {
					r.options.Delivered(m.Queue, d)
				}
			}
			client := queue.NewClient(r.Endpoints.Queues)
			poller, err := queuepoller.Start(from(ctx, m.Queue), client, p.QueueURL(m.Queue), f, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.of, err)
			}
			return poller.Close, nil
		}
		o, at := m.fromStream(), m.Function+" "+m.Table+" "
		o.Logf = r.report
		o.Position = func(shard string) string { return r.positions.get(at + shard) }
		o.Done = func(shard, sequence string) {
			if err := r.positions.set(at+shard, sequence); err != nil {
				r.report("%s: its position is not kept: %v", m.of, err)
			}
		}
		reads := dynamodbstreams.New(dynamodbstreams.Options{
			BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own,
		})
		poller, err := streampoller.Start(from(ctx, "stream of "+m.Table), reads, m.Stream, f.Call, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.of, err)
		}
		return poller.Close, nil
	})
}
