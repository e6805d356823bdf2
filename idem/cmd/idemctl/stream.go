package main

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// streams is what is used of a *dynamodbstreams.Client.
type streams interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

const (
	// pollEvery is below the five reads a second that a shard allows, which the relay shares.
	pollEvery = time.Second
	// shardsEvery is how often new shards are looked for. A shard lives for four hours at most.
	shardsEvery = 20 * time.Second
)

// reader follows a stream from now on.
type reader struct {
	client streams
	arn    string
	// lost is told of a shard that was read too late: its oldest records are gone.
	lost func(shard string)

	shards map[string]*shard // all that were ever seen; nil for those that are read
	listed time.Time
}

// shard is one that is read now.
type shard struct {
	id, parent string
	next       *string // the iterator; nil before the first one
	last       string  // the sequence number that was read last
	from       types.ShardIteratorType
}

// follow gives each record to each, in the order of its shard, until the context ends.
func (r *reader) follow(ctx context.Context, each func(*types.Record) error) error {
	r.shards = map[string]*shard{}
	if err := r.list(ctx, types.ShardIteratorTypeLatest); err != nil {
		return err
	}
	for {
		ended := false
		for id, sh := range r.shards {
			if sh == nil || r.shards[sh.parent] != nil {
				continue // read, or its parent is not yet
			}
			over, err := r.read(ctx, sh, each)
			if err != nil {
				return err
			}
			if over {
				r.shards[id], ended = nil, true
			}
		}
		if ended || time.Since(r.listed) >= shardsEvery {
			if err := r.list(ctx, types.ShardIteratorTypeTrimHorizon); err != nil {
				return err
			}
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// list finds the shards that are new. Those that there are at the start are read from their
// end, and later ones from their beginning.
func (r *reader) list(ctx context.Context, from types.ShardIteratorType) error {
	for in := (&dynamodbstreams.DescribeStreamInput{StreamArn: &r.arn}); ; {
		out, err := r.client.DescribeStream(ctx, in)
		if err != nil {
			return err
		}
		d := out.StreamDescription
		if d == nil {
			return errors.New("the stream was not described by the endpoint")
		}
		for _, s := range d.Shards {
			id := aws.ToString(s.ShardId)
			if _, known := r.shards[id]; known {
				continue
			}
			over := s.SequenceNumberRange != nil && s.SequenceNumberRange.EndingSequenceNumber != nil
			if over && from == types.ShardIteratorTypeLatest {
				r.shards[id] = nil
				continue
			}
			sh := &shard{id: id, parent: aws.ToString(s.ParentShardId), from: from}
			r.shards[id] = sh
			if from == types.ShardIteratorTypeLatest {
				if err := r.open(ctx, sh); err != nil { // now, so that "latest" is now
					return err
				}
			}
		}
		if in.ExclusiveStartShardId = d.LastEvaluatedShardId; in.ExclusiveStartShardId == nil {
			r.listed = time.Now()
			return nil
		}
	}
}

// open gets an iterator after what was read last.
func (r *reader) open(ctx context.Context, sh *shard) error {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &r.arn, ShardId: &sh.id, ShardIteratorType: sh.from}
	if sh.last != "" {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &sh.last
	}
	out, err := r.client.GetShardIterator(ctx, in)
	if err != nil {
		return err
	}
	if sh.next = out.ShardIterator; sh.next == nil {
		return errors.New("the stream gave no iterator")
	}
	return nil
}

// next reads what comes after what was read last.
func (r *reader) next(ctx context.Context, sh *shard) (*dynamodbstreams.GetRecordsOutput, error) {
	if sh.next == nil {
		if err := r.open(ctx, sh); err != nil {
			return nil, err
		}
	}
	return r.client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: sh.next})
}

// read reads what a shard has now; over says that it has ended.
func (r *reader) read(ctx context.Context, sh *shard, each func(*types.Record) error) (over bool, err error) {
	for {
		out, err := r.next(ctx, sh)
		var expired *types.ExpiredIteratorException
		var trimmed *types.TrimmedDataAccessException
		var gone *types.ResourceNotFoundException
		switch {
		case errors.As(err, &gone):
			r.lost(sh.id) // a shard lives for a day after its end; a stream that is gone ends the list of shards
			return true, nil
		case errors.As(err, &expired):
			sh.next = nil // this machine was asleep for 15 minutes
			if sh.last == "" && sh.from == types.ShardIteratorTypeLatest {
				r.lost(sh.id)
			}
			continue
		case errors.As(err, &trimmed):
			r.lost(sh.id)
			sh.next, sh.last, sh.from = nil, "", types.ShardIteratorTypeTrimHorizon
			continue
		case err != nil:
			return false, err
		}
		for i := range out.Records {
			if err := each(&out.Records[i]); err != nil {
				return false, err
			}
			if d := out.Records[i].Dynamodb; d != nil {
				sh.last = aws.ToString(d.SequenceNumber)
			}
		}
		if sh.next = out.NextShardIterator; sh.next == nil {
			return true, nil
		}
		if len(out.Records) == 0 {
			return false, nil
		}
	}
}
