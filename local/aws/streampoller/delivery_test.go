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
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// fakeStream is a stream in memory. A record's key is its sequence number.
type fakeStream struct {
	mu     sync.Mutex
	shards []types.Shard
	data   map[string][]types.Record // by shard
	// fail, if set, is asked before every GetRecords, and trimmed before every GetShardIterator at a record.
	fail, trimmed func() error
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
	if in.ShardIteratorType == types.ShardIteratorTypeAtSequenceNumber {
		if f.trimmed != nil {
			return nil, f.trimmed()
		}
		at = slices.IndexFunc(f.data[*in.ShardId],
			func(r types.Record) bool { return *r.Dynamodb.SequenceNumber == *in.SequenceNumber })
		if at < 0 { // as DynamoDB Local does
			at = len(f.data[*in.ShardId])
		}
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

// function collects what it got: the sequence numbers of each batch, joined.
type function struct {
	mu  sync.Mutex
	got []string
	// poison is a record for which it fails, so many times: with an error, or with the answer if there is one.
	poison string
	times  int
	answer string
}

func (f *function) invoke(_ context.Context, event []byte) ([]byte, error) {
	var e struct {
		Records []struct {
			Dynamodb struct{ SequenceNumber string }
		}
	}
	if err := json.Unmarshal(event, &e); err != nil {
		panic(err)
	}
	var numbers []string
	for _, r := range e.Records {
		numbers = append(numbers, r.Dynamodb.SequenceNumber)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, strings.Join(numbers, " "))
	if f.times == 0 || !slices.Contains(numbers, f.poison) {
		return nil, nil
	}
	if f.times--; f.answer == "" {
		return nil, errors.New("poison " + f.poison)
	}
	return []byte(f.answer), nil
}

func (f *function) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
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
			f, b := newStream("s"), &function{}
			f.put("s", 1, 2, 3)
			play(t, f, &c.o, b.invoke, func() {
				time.Sleep(10 * time.Second)
				f.put("s", 4, 5)
			})
			require.Equal(t, c.want, b.list())
		})
	}
}

func TestEventsOfSixMegabytes(t *testing.T) {
	f, b := newStream("s"), &function{}
	f.put("s", 1, 2, 3)
	for i := range f.data["s"] {
		f.data["s"][i].Dynamodb.NewImage = map[string]types.AttributeValue{
			"body": &types.AttributeValueMemberS{Value: strings.Repeat("x", 2_500_000)},
		}
	}
	play(t, f, nil, b.invoke, nil)
	require.Equal(t, []string{"1 2", "3"}, b.list())
}

func TestFailures(t *testing.T) {
	const third = `{"batchItemFailures":[{"itemIdentifier":"3"}]}`
	for name, c := range map[string]struct {
		o    Options
		fn   *function
		want []string
	}{
		"again": {Options{BatchSize: 2}, &function{poison: "2", times: 2}, []string{"1 2", "1 2", "1 2", "3 4"}},
		"partial": {Options{}, &function{poison: "3", times: 1, answer: third},
			[]string{"1 2 3 4", "3 4"}},
		"partial, of whole batches": {Options{WholeBatch: true}, &function{poison: "3", times: 1, answer: third},
			[]string{"1 2 3 4"}},
		"answer that means nothing": {Options{BatchSize: 2},
			&function{poison: "1", times: 1, answer: `{"batchItemFailures":[{"itemIdentifier":""}]}`},
			[]string{"1 2", "1 2", "3 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStream("s")
			f.put("s", 1, 2, 3, 4)
			require.Equal(t, 4, play(t, f, &c.o, c.fn.invoke, nil))
			require.Equal(t, c.want, c.fn.list())
		})
	}
}

// A poison record holds up its shard, and no other.
func TestFailureHoldsUpItsShardAlone(t *testing.T) {
	f, b := newStream("s", "t"), &function{poison: "1", times: 1 << 30}
	f.put("s", 1)
	f.put("t", 100)
	delivered := play(t, f, nil, b.invoke, func() {
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
	f, b := newStream("parent"), &function{}
	f.put("parent", 1, 2)
	f.end("parent", "a", "b")
	f.put("a", 3)
	f.put("b", 4)
	var open atomic.Bool
	delivered := play(t, f, nil, func(ctx context.Context, event []byte) ([]byte, error) {
		_, err := b.invoke(ctx, event)
		if !open.Load() {
			err = errors.New("not yet")
		}
		return nil, err
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
	f, b := newStream("s"), &function{}
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
	play(t, f, nil, b.invoke, func() {
		time.Sleep(time.Minute)
		f.put("s", 2)
	})
	require.Equal(t, []string{"1", "2"}, b.list(), "nothing is lost or delivered twice")
}

// A poller goes on behind the position that another one has kept, and begins with the oldest record if that one is not
// there.
func TestPositions(t *testing.T) {
	trimmed := func() error { return &types.TrimmedDataAccessException{} }
	for position, c := range map[string]struct {
		trimmed func() error
		want    []string
	}{
		"5": {nil, []string{"6 7"}}, "7": {nil, nil}, "9": {nil, []string{"5 6 7"}}, "1": {trimmed, []string{"5 6 7"}},
	} {
		f, b, kept := newStream("s"), &function{}, []string{}
		f.put("s", 5, 6, 7)
		f.trimmed = c.trimmed
		play(t, f, &Options{Position: func(string) string { return position },
			Done: func(_, at string) { kept = append(kept, at) }}, b.invoke, nil)
		require.Equal(t, c.want, b.list(), position)
		require.Equal(t, c.want != nil, slices.Contains(kept, "7"), position)
	}
}

// Close lets the function end, and keeps what it has done.
func TestCloseWaitsForTheFunction(t *testing.T) {
	f, kept := newStream("s"), ""
	f.put("s", 1, 2, 3)
	synctest.Test(t, func(t *testing.T) {
		p, err := Start(t.Context(), f, "arn", func(ctx context.Context, _ []byte) ([]byte, error) {
			return nil, smithytime.SleepWithContext(ctx, time.Minute)
		}, &Options{BatchSize: 2, Done: func(_, at string) { kept = at }})
		require.NoError(t, err)
		synctest.Wait()
		p.Close()
	})
	require.Equal(t, "2", kept)
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

func TestStartRefusesAFilter(t *testing.T) {
	_, err := Start(t.Context(), newStream("s"), "arn", new(function).invoke, &Options{Filter: "[]"})
	require.ErrorContains(t, err, "filter")
}
