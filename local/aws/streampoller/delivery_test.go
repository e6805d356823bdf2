package streampoller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// fakeStream is a stream in memory. A record's key is its sequence number.
type fakeStream struct {
	mu     sync.Mutex
	shards []types.Shard
	data   map[string][]types.Record // by shard
	// fail, if set, is asked before every GetRecords.
	fail func() error
}

func newStream(ids ...string) *fakeStream {
	f := &fakeStream{data: map[string][]types.Record{}}
	for _, id := range ids {
		f.shards = append(f.shards, types.Shard{ShardId: aws.String(id), SequenceNumberRange: &types.SequenceNumberRange{}})
	}
	return f
}

func (f *fakeStream) put(shard string, numbers ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range numbers {
		seq := strconv.Itoa(n)
		f.data[shard] = append(f.data[shard], types.Record{
			EventName: types.OperationTypeInsert,
			Dynamodb: &types.StreamRecord{
				SequenceNumber: &seq, ApproximateCreationDateTime: aws.Time(time.Now()),
				Keys: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: seq}},
			},
		})
	}
}

func (f *fakeStream) end(shard string, children ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		if *f.shards[i].ShardId == shard {
			f.shards[i].SequenceNumberRange.EndingSequenceNumber = aws.String("end")
		}
	}
	for _, id := range children {
		f.shards = append(f.shards, types.Shard{
			ShardId: aws.String(id), ParentShardId: aws.String(shard), SequenceNumberRange: &types.SequenceNumberRange{},
		})
	}
}

func (f *fakeStream) DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput,
	...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dynamodbstreams.DescribeStreamOutput{
		StreamDescription: &types.StreamDescription{Shards: slices.Clone(f.shards)}}, nil
}

func (f *fakeStream) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput,
	_ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := 0
	if in.ShardIteratorType == types.ShardIteratorTypeAfterSequenceNumber {
		at = 1 + slices.IndexFunc(f.data[*in.ShardId],
			func(r types.Record) bool { return *r.Dynamodb.SequenceNumber == *in.SequenceNumber })
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: aws.String(fmt.Sprintf("%s/%d", *in.ShardId, at))}, nil
}

func (f *fakeStream) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput,
	_ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(); err != nil {
			return nil, err
		}
	}
	id, from, _ := strings.Cut(*in.ShardIterator, "/")
	at, _ := strconv.Atoi(from)
	records := f.data[id][at:]
	out := &dynamodbstreams.GetRecordsOutput{Records: records}
	for _, s := range f.shards {
		if *s.ShardId == id && s.SequenceNumberRange.EndingSequenceNumber != nil {
			return out, nil
		}
	}
	out.NextShardIterator = aws.String(fmt.Sprintf("%s/%d", id, at+len(records)))
	return out, nil
}

// batches collects what a function got: the sequence numbers, joined.
type batches struct {
	mu  sync.Mutex
	got []string
}

func (b *batches) add(event []byte) []string {
	numbers := sequences(event)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, strings.Join(numbers, " "))
	return numbers
}

func (b *batches) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func sequences(event []byte) (list []string) {
	var e struct {
		Records []struct {
			Dynamodb struct{ SequenceNumber string }
		}
	}
	if err := json.Unmarshal(event, &e); err != nil {
		panic(err)
	}
	for _, r := range e.Records {
		list = append(list, r.Dynamodb.SequenceNumber)
	}
	return list
}

// play runs a poller in a bubble of time, for a while, and returns how many records are done.
func play(t *testing.T, f *fakeStream, o *Options, invoke Invoke, between func()) (delivered int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := Start(t.Context(), f, "arn", invoke, o)
		require.NoError(t, err)
		if between != nil {
			between()
		}
		time.Sleep(time.Hour)
		p.Close()
		p.Close()
		delivered = p.Delivered()
	})
	return delivered
}

func ok(b *batches) Invoke {
	return func(_ context.Context, event []byte) ([]byte, error) {
		b.add(event)
		return nil, nil
	}
}

// failing fails the first deliveries that have one of the records, so many times.
func failing(b *batches, times int, poison ...string) Invoke {
	return func(_ context.Context, event []byte) ([]byte, error) {
		for _, n := range b.add(event) {
			if slices.Contains(poison, n) && times > 0 {
				times--
				return nil, errors.New("poison " + n)
			}
		}
		return nil, nil
	}
}

// reporting names the first record that is poison, once.
func reporting(b *batches, poison ...string) Invoke {
	named := false
	return func(_ context.Context, event []byte) ([]byte, error) {
		for _, n := range b.add(event) {
			if slices.Contains(poison, n) && !named {
				named = true
				return fmt.Appendf(nil, `{"batchItemFailures":[{"itemIdentifier":%q}]}`, n), nil
			}
		}
		return []byte(`{"batchItemFailures":[]}`), nil
	}
}

func TestBatches(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"as they come": {Options{}, []string{"1 2 3", "4 5"}},
		"batch size":   {Options{BatchSize: 2}, []string{"1 2", "3", "4 5"}},
		"filtered":     {Options{Filter: `{"dynamodb":{"Keys":{"pk":{"S":["2","4","5"]}}}}`}, []string{"2", "4 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, b := newStream("s"), &batches{}
			f.put("s", 1, 2, 3)
			play(t, f, &c.o, ok(b), func() {
				time.Sleep(10 * time.Second)
				f.put("s", 4, 5)
			})
			require.Equal(t, c.want, b.list())
		})
	}
}

func TestEventsOfSixMegabytes(t *testing.T) {
	f, b := newStream("s"), &batches{}
	f.put("s", 1, 2, 3)
	for i := range f.data["s"] {
		f.data["s"][i].Dynamodb.NewImage = map[string]types.AttributeValue{
			"body": &types.AttributeValueMemberS{Value: strings.Repeat("x", 2_500_000)},
		}
	}
	play(t, f, nil, ok(b), nil)
	require.Equal(t, []string{"1 2", "3"}, b.list())
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		o      Options
		invoke func(*batches) Invoke
		want   []string
	}{
		"again": {
			Options{BatchSize: 2}, func(b *batches) Invoke { return failing(b, 2, "2") },
			[]string{"1 2", "1 2", "1 2", "3 4"},
		},
		"partial": {
			Options{ReportBatchItemFailures: true}, func(b *batches) Invoke { return reporting(b, "3") },
			[]string{"1 2 3 4", "3 4"},
		},
		"partial not asked for": {
			Options{}, func(b *batches) Invoke { return reporting(b, "3") }, []string{"1 2 3 4"},
		},
		"answer that means nothing": {
			Options{ReportBatchItemFailures: true, BatchSize: 2}, func(b *batches) Invoke {
				return func(_ context.Context, event []byte) ([]byte, error) {
					if b.add(event); len(b.list()) == 1 {
						return []byte(`{"batchItemFailures":[{"itemIdentifier":""}]}`), nil
					}
					return nil, nil
				}
			},
			[]string{"1 2", "1 2", "3 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, b := newStream("s"), &batches{}
			f.put("s", 1, 2, 3, 4)
			require.Equal(t, 4, play(t, f, &c.o, c.invoke(b), nil))
			require.Equal(t, c.want, b.list())
		})
	}
}

// A poison record holds up its shard, and no other.
func TestFailureHoldsUpItsShardAlone(t *testing.T) {
	f, b := newStream("s", "t"), &batches{}
	f.put("s", 1)
	f.put("t", 100)
	delivered := play(t, f, nil, failing(b, 1<<30, "1"), func() {
		time.Sleep(time.Minute)
		f.put("s", 2)
		f.put("t", 101)
	})
	require.NotContains(t, b.list(), "2")
	require.Contains(t, b.list(), "101")
	require.Equal(t, 2, delivered)
	require.Greater(t, len(b.list()), 100)
}

// What is in a parent is delivered before what is in its children.
func TestChildrenWaitForTheirParent(t *testing.T) {
	f, b := newStream("parent"), &batches{}
	f.put("parent", 1, 2)
	f.end("parent", "a", "b")
	f.put("a", 3)
	f.put("b", 4)
	var open atomic.Bool
	delivered := play(t, f, nil, func(_ context.Context, event []byte) ([]byte, error) {
		b.add(event)
		if !open.Load() {
			return nil, errors.New("not yet")
		}
		return nil, nil
	}, func() {
		time.Sleep(time.Minute)
		require.NotContains(t, b.list(), "3")
		require.NotContains(t, b.list(), "4")
		open.Store(true)
	})
	require.Equal(t, 4, delivered)
	require.Contains(t, b.list(), "3")
	require.Contains(t, b.list(), "4")
}

func TestReadsThatFail(t *testing.T) {
	f, b := newStream("s"), &batches{}
	f.put("s", 1)
	failures := []error{
		nil, errors.New("reset"), &types.ExpiredIteratorException{}, errors.New("reset"), &types.InternalServerError{}, nil,
	}
	f.fail = func() error {
		if len(failures) == 0 {
			return nil
		}
		err := failures[0]
		failures = failures[1:]
		return err
	}
	play(t, f, nil, ok(b), func() {
		time.Sleep(time.Minute)
		f.put("s", 2)
	})
	require.Equal(t, []string{"1", "2"}, b.list(), "nothing is lost or delivered twice")
}

func TestClosedPoolStopsThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStream("s")
		f.put("s", 1)
		invocations := 0
		p, err := Start(t.Context(), f, "arn", func(context.Context, []byte) ([]byte, error) {
			invocations++
			return nil, runtime.ErrClosed
		}, nil)
		require.NoError(t, err)
		p.work.Wait()
		require.Equal(t, 1, invocations)
	})
}

// tables describe a table, or nothing.
type tables map[string]*dynamodbtypes.TableDescription

func (d tables) DescribeTable(_ context.Context, in *dynamodb.DescribeTableInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	if d[*in.TableName] == nil {
		return nil, errors.New("ResourceNotFoundException")
	}
	return &dynamodb.DescribeTableOutput{Table: d[*in.TableName]}, nil
}

func TestStreamOf(t *testing.T) {
	known := tables{"records": {LatestStreamArn: aws.String("arn")}, "plain": {}}
	stream, err := StreamOf(t.Context(), known, "records")
	require.NoError(t, err)
	require.Equal(t, "arn", stream)
	_, err = StreamOf(t.Context(), known, "plain")
	require.ErrorContains(t, err, "table plain has no stream")
	_, err = StreamOf(t.Context(), known, "none")
	require.ErrorContains(t, err, "table none: ResourceNotFoundException")
	_, err = Start(t.Context(), newStream("s"), "arn", ok(&batches{}), &Options{Filter: "[]"})
	require.ErrorContains(t, err, "filter")
}
