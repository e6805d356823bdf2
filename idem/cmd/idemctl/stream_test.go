package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// fakeStream is a stream in memory. An iterator is a shard's id and a position.
type fakeStream struct {
	mu     sync.Mutex
	shards []types.Shard
	data   map[string][]string // ids of records that were claimed
	fail   error               // of the next GetRecords
	asleep error               // of the next GetShardIterator after the first ones
}

func (f *fakeStream) add(id, parent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shards = append(f.shards, types.Shard{ShardId: &id, ParentShardId: &parent, SequenceNumberRange: &types.SequenceNumberRange{}})
}

func (f *fakeStream) put(shard string, ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data[shard] = append(f.data[shard], ids...)
}

func (f *fakeStream) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeStream) end(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		if *f.shards[i].ShardId == id {
			f.shards[i].SequenceNumberRange.EndingSequenceNumber = aws.String("end")
		}
	}
}

func (f *fakeStream) ended(id string) bool {
	return slices.ContainsFunc(f.shards, func(s types.Shard) bool {
		return *s.ShardId == id && s.SequenceNumberRange.EndingSequenceNumber != nil
	})
}

// DescribeStream has one shard a page.
func (f *fakeStream) DescribeStream(_ context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := 1 + slices.IndexFunc(f.shards, func(s types.Shard) bool { return *s.ShardId == aws.ToString(in.ExclusiveStartShardId) })
	d := &types.StreamDescription{Shards: f.shards[i : i+1]}
	if i+1 < len(f.shards) {
		d.LastEvaluatedShardId = f.shards[i].ShardId
	}
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: d}, nil
}

func (f *fakeStream) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.asleep; err != nil {
		f.asleep = nil
		return nil, err
	}
	at := 0
	switch in.ShardIteratorType {
	case types.ShardIteratorTypeLatest:
		at = len(f.data[*in.ShardId])
	case types.ShardIteratorTypeAfterSequenceNumber:
		n, _ := strconv.Atoi(*in.SequenceNumber)
		at = n + 1
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: aws.String(fmt.Sprint(*in.ShardId, "/", at))}, nil
}

func (f *fakeStream) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail; err != nil {
		f.fail = nil
		return nil, err
	}
	id, from, _ := strings.Cut(*in.ShardIterator, "/")
	at, _ := strconv.Atoi(from)
	out := &dynamodbstreams.GetRecordsOutput{}
	if at < len(f.data[id]) {
		out.Records = []types.Record{{Dynamodb: &types.StreamRecord{
			SequenceNumber: aws.String(strconv.Itoa(at)),
			Keys:           map[string]types.AttributeValue{schema.PK: &types.AttributeValueMemberS{Value: f.data[id][at]}},
		}}}
		at++
	}
	if at < len(f.data[id]) || !f.ended(id) {
		out.NextShardIterator = aws.String(fmt.Sprint(id, "/", at))
	}
	return out, nil
}

// following follows a stream while it changes, and returns what was seen, and what was lost.
func following(t *testing.T, f *fakeStream, change func()) (seen, lost []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		r := &reader{client: f, arn: "arn", lost: func(id string) { lost = append(lost, id) }}
		go func() {
			done <- r.follow(ctx, func(r *types.Record) error {
				seen = append(seen, attr(r.Dynamodb.Keys, schema.PK))
				return nil
			})
		}()
		synctest.Wait()
		change()
		time.Sleep(time.Minute)
		end()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return seen, lost
}

func TestTheStreamIsFollowedFromNowOn(t *testing.T) {
	f := &fakeStream{data: map[string][]string{"a": {"old"}, "b": {"older"}}}
	f.add("b", "")
	f.end("b")
	f.add("a", "b")
	seen, _ := following(t, f, func() { f.put("a", "1", "2") })
	require.Equal(t, []string{"1", "2"}, seen)
}

// A shard that splits is read to its end before its children are, from their beginning.
func TestChildrenOfAShardComeAfterIt(t *testing.T) {
	f := &fakeStream{data: map[string][]string{}}
	f.add("a", "")
	seen, _ := following(t, f, func() {
		time.Sleep(30 * time.Second) // a list of shards is over
		f.put("a", "1", "2")
		f.end("a")
		f.add("b", "a")
		f.add("c", "a")
		f.put("b", "3")
	})
	require.Equal(t, []string{"1", "2", "3"}, seen)
}

func TestAnExpiredIteratorIsReplaced(t *testing.T) {
	f := &fakeStream{data: map[string][]string{}}
	f.add("a", "")
	seen, lost := following(t, f, func() {
		f.put("a", "1")
		time.Sleep(5 * time.Second)
		f.failWith(&types.ExpiredIteratorException{})
		f.put("a", "2")
	})
	require.Equal(t, []string{"1", "2"}, seen)
	require.Empty(t, lost)
}

func TestWhatWasReadTooLateIsSaid(t *testing.T) {
	f := &fakeStream{data: map[string][]string{}}
	f.add("a", "")
	_, lost := following(t, f, func() { f.failWith(&types.TrimmedDataAccessException{}) })
	require.Equal(t, []string{"a"}, lost)
}

// After a day of sleep the place where it was is gone, and so may be the shard.
func TestAfterADayOfSleepTheRestIsFollowed(t *testing.T) {
	for name, asleep := range map[string]error{"place": &types.TrimmedDataAccessException{}, "shard": &types.ResourceNotFoundException{}} {
		t.Run(name, func(t *testing.T) {
			f := &fakeStream{data: map[string][]string{}}
			f.add("a", "")
			seen, lost := following(t, f, func() {
				f.put("a", "1")
				time.Sleep(5 * time.Second)
				f.mu.Lock()
				f.data["a"], f.asleep = nil, asleep
				f.mu.Unlock()
				f.failWith(&types.ExpiredIteratorException{})
				f.add("b", "a")
				if name == "place" {
					f.put("a", "2")
					f.end("a")
				}
				f.put("b", "3")
			})
			require.Equal(t, map[string][]string{"place": {"1", "2", "3"}, "shard": {"1", "3"}}[name], seen)
			require.Equal(t, []string{"a"}, lost)
		})
	}
}

// noStream is a stream that does not answer.
type noStream struct{ streams }

func (noStream) DescribeStream(ctx context.Context, _ *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The exit code must not say that nothing happened to who was never connected.
func TestATailThatWasNeverConnectedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.backend.streams = noStream{}
		b.backend.stream = func(context.Context) (string, error) { return "arn", nil }
		code, _, errs := b.run("tail", "--for", "1m")
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, "has not answered in 1m0s")
		f := &fakeStream{}
		f.add("a", "")
		b.backend.streams = f
		code, _, errs = b.run("tail", "--for", "1m")
		require.Equal(t, exitDone, code, errs)
	})
}

func TestAnErrorOfTheStreamEndsIt(t *testing.T) {
	f := &fakeStream{fail: errors.New("access denied")}
	f.add("a", "")
	err := (&reader{client: f}).follow(t.Context(), func(*types.Record) error { return nil })
	require.EqualError(t, err, "access denied")
}

// A change of a record of shadow is told from one of the live mode.
func TestAChangeInShadowSaysSo(t *testing.T) {
	id := idem.Operation{Name: "refund"}.Key("acme", "r-1").ID()
	for _, shadow := range []bool{false, true} {
		if shadow {
			id = protocol.ShadowID(id)
		}
		st, ok := stepOf(&types.Record{EventName: types.OperationTypeInsert, Dynamodb: &types.StreamRecord{
			Keys: map[string]types.AttributeValue{
				schema.PK: &types.AttributeValueMemberS{Value: id}, schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
			},
			NewImage: map[string]types.AttributeValue{schema.State: &types.AttributeValueMemberS{Value: string(idem.InProgress)}},
		}})
		require.True(t, ok)
		require.Equal(t, "refund", st.Operation)
		require.Equal(t, shadow, st.Shadow)
	}
}
